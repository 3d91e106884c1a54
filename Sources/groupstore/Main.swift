import ArgumentParser

@main
struct GroupStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "groupstore",
        abstract: "Shared SQLite and Core Data stores: relocate them into a group container, and hear of each change.",
        version: "0.1.0",
        subcommands: [
            AgentCommand.self, RelocateCommand.self, WatchCommand.self, StatusCommand.self, InspectCommand.self,
            DoctorCommand.self, RecoverCommand.self, ModelCommand.self, CreateCommand.self, MigrateCommand.self,
            HistoryCommand.self, ChangesCommand.self,
        ])

    /// An empty path would stand for the working directory: mostly it is a variable of a script that isn't set.
    static func main() {
        StandardDescriptors.takeMissingOnes()
        guard !CommandLine.arguments.contains("") else { exit(withError: ValidationError("an argument is empty")) }
        main(nil)
    }
}
