import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem

@main
struct GroupStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "groupstore",
        abstract: "Share SQLite and Core Data stores: relocate, migrate and watch them.",
        discussion: """
            A group container is a directory that several programs share. To share a store that is in one program's \
            private directory, create a container, move the store into it, and have the programs open it there. \
            'groupstore agent' does this in the background.

            Example:
              groupstore group create group.com.example.notes
              groupstore relocate ~/old/Notes.sqlite group.com.example.notes
              groupstore watch group.com.example.notes/Notes.sqlite
            """,
        version: ProgramVersion.current,
        subcommands: [
            AgentCommand.self, RelocateCommand.self, WatchCommand.self, StatusCommand.self, InspectCommand.self,
            DoctorCommand.self, RecoverCommand.self, ModelCommand.self, CreateCommand.self, MigrateCommand.self,
            HistoryCommand.self, ChangesCommand.self, RowsCommand.self, GroupCommand.self, ArchiveCommand.self,
            GuardCommand.self, RescueCommand.self, MoveAppCommand.self, AppCommand.self, CompleteCommand.self,
        ])

    /// Rejects empty arguments: an empty path would mean the working directory, and is usually an unset variable in a
    /// script.
    static func main() {
        StandardDescriptors.openMissing()
        let given = ProgramArguments.words
        if let script = CompletionScript.requested(by: given, for: self) { return print(script) }
        let arguments = FormerOptions.renamed(given)
        // A shell that completes a new word passes an empty one.
        if arguments.first != "---completion" {
            guard !arguments.contains("") else { exit(withError: ValidationError("an argument is empty")) }
            CommandSuggestion.check(arguments[...], of: self)
        }
        run(arguments, program: "groupstore")
    }
}
