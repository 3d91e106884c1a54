import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import StoreRelay
import StoreReplication

struct PromoteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "promote",
        abstract: "Make a replica the home of its store.",
        discussion: """
            The replica becomes a store of its own that programs may write to, with a new history: tokens of the old \
            one are answered with a reset. Stop 'follow' first. If it is published to the old home's stream, with \
            --take-over, the old home finds itself superseded and stops.

            Example:
              groupstore-relay promote group.com.example.notes/Notes.sqlite
            """)

    @Argument(help: ArgumentHelp("The replica, a path or GROUP_ID/NAME.", valueName: "store"), completion: .stores)
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try output.reporting {
            let location = try StorePlaces.existing(store)
            let lock = try ReplicaLock.ifFollowed(location)
            let token = try withExtendedLifetime(lock) { try Replica.promote(location) }
            output.record(
                ["type": "summary", "outcome": "promoted", "token": .string("\(token)")],
                "\(PrintablePath(location.path)) is a home now; its history begins with \(token)")
        }
    }
}
