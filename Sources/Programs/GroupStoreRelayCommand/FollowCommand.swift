import ArgumentParser
import CommandSupport
import GroupContainers
import LinuxSystem
import RelayStatus
import SQLiteFormat
import StoreRelay
import SystemPackage

struct FollowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "follow",
        abstract: "Keep a replica of a published store up to date.",
        discussion: """
            Runs in the foreground until it is stopped. Takes a snapshot from the home first, then applies its changes, \
            each batch in one transaction: readers see only states that the home had. Programs on this machine read \
            and watch the replica like any store, with the home's durable tokens. Nobody else may write to it: if \
            somebody has, it stops with exit code 73: diverged.

            Example:
              groupstore-relay follow group.com.example.notes --server nats://localhost --stream Notes
            """)

    @Argument(
        help: ArgumentHelp(
            "The group container for the replica: a directory or a group's identifier.", valueName: "group"),
        completion: .containers)
    var group: String

    @OptionGroup var connection: ConnectionArguments

    @Option(help: ArgumentHelp("The replica's file name (default: NAME.sqlite).", valueName: "file"))
    var name: String?

    @Option(
        help: ArgumentHelp(
            "This follower's name, unique per stream (default: the host name).", valueName: "id"))
    var follower: String?

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard let name else { return }
        guard let component = FilePath.Component(bytes: Array(name.utf8)), StoreName(component) != nil else {
            throw ValidationError(
                "--name must be a file name for a store: without /, not reserved (.groupstore), and not SQLite's "
                    + "(-wal, -shm, -journal)")
        }
    }

    func run() throws {
        let output = Output(outputOptions)
        try output.running { stop, report in
            let follower = follower ?? Environment.hostName
            let relay = try connection.options(role: "follow", as: follower, watchdog: try output.watchdog())
            let options = try FollowerOptions(relay, follower: follower)
            let location = try StorePlaces.replica(name ?? "\(relay.stream.name).sqlite", in: group)
            try StoreFollower.follow(location, options, until: stop, report: report)
        }
    }
}
