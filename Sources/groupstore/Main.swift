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
            HistoryCommand.self, ChangesCommand.self, GroupCommand.self, CompleteCommand.self,
        ])

    /// Rejects empty arguments: an empty path would mean the working directory, and is usually an unset variable in a
    /// script.
    static func main() {
        StandardDescriptors.openMissing()
        if let script = CompletionScript.requested(by: CommandLine.arguments) { return print(script) }
        // A shell that completes a new word passes an empty one.
        let isCompletion = CommandLine.arguments.dropFirst().first == "---completion"
        guard isCompletion || !CommandLine.arguments.contains("") else {
            exit(withError: ValidationError("an argument is empty"))
        }
        main(nil)
    }
}
