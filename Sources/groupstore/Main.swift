import ArgumentParser

@main
struct GroupStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "groupstore",
        abstract: "Share SQLite and Core Data stores: relocate, migrate and watch them.",
        version: "0.1.0",
        subcommands: [
            AgentCommand.self, RelocateCommand.self, WatchCommand.self, StatusCommand.self, InspectCommand.self,
            DoctorCommand.self, RecoverCommand.self, ModelCommand.self, CreateCommand.self, MigrateCommand.self,
            HistoryCommand.self, ChangesCommand.self, GroupCommand.self,
        ])

    /// Rejects empty arguments: an empty path would mean the working directory, and is usually an unset variable in a
    /// script.
    static func main() {
        StandardDescriptors.openMissing()
        guard !CommandLine.arguments.contains("") else { exit(withError: ValidationError("an argument is empty")) }
        main(nil)
    }
}
