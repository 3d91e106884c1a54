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
            A group container is a directory that several programs share. For a store in one program's private \
            directory: create a container (groupstore group create group.com.example.notes), move the store into it \
            (groupstore relocate NOTES.sqlite group.com.example.notes), and have the programs open it there. \
            'groupstore watch' prints its changes; 'groupstore agent' does all of this in the background.
            """,
        version: ProgramVersion.current,
        subcommands: [
            AgentCommand.self, RelocateCommand.self, WatchCommand.self, StatusCommand.self, InspectCommand.self,
            DoctorCommand.self, RecoverCommand.self, ModelCommand.self, CreateCommand.self, MigrateCommand.self,
            HistoryCommand.self, ChangesCommand.self, GroupCommand.self, ArchiveCommand.self, MoveAppCommand.self,
            CompleteCommand.self,
        ])

    /// Rejects empty arguments: an empty path would mean the working directory, and is usually an unset variable in a
    /// script.
    static func main() {
        StandardDescriptors.openMissing()
        let given = ProgramArguments.words
        if let script = CompletionScript.requested(by: given) { return print(script) }
        let arguments = FormerOptions.renamed(given)
        // A shell that completes a new word passes an empty one.
        if arguments.first != "---completion" {
            guard !arguments.contains("") else { exit(withError: ValidationError("an argument is empty")) }
            CommandSuggestion.check(arguments[...], of: self)
        }
        run(arguments, program: "groupstore")
    }
}
