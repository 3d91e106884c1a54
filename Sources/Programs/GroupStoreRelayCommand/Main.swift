import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import LinuxSystem

@main
struct GroupStoreRelayCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "groupstore-relay",
        abstract: "Send a store's changes to other machines through NATS JetStream.",
        discussion: """
            'publish' runs where the store is, its home: it sends each change with its values to a stream of a broker. \
            'follow' runs on another machine, and keeps a replica up to date there: a store that programs read and \
            watch like any other. The broker is trusted with nothing but carrying: with --key, it can delay or drop \
            messages, but not alter them.
            """,
        version: ProgramVersion.current,
        subcommands: [PublishCommand.self, FollowCommand.self, PromoteCommand.self, RelayStatusCommand.self])

    /// Rejects empty arguments: they are usually an unset variable in a script.
    static func main() {
        // Ends the program without the destructors of libraries. libnats's and OpenSSL's free what the threads of a
        // connection still use, and such a thread then aborts.
        on_exit(
            { status, _ in
                fflush(nil)
                _exit(status)
            }, nil)
        StandardDescriptors.openMissing()
        let arguments = ProgramArguments.words
        if let script = CompletionScript.requested(by: arguments, for: self) { return print(script) }
        guard !arguments.contains("") || arguments.first == "---completion" else {
            exit(withError: ValidationError("an argument is empty"))
        }
        run(arguments, program: "groupstore-relay")
    }
}
