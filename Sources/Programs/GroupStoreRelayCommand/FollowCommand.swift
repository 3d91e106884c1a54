import ArgumentParser
import CommandSupport
import GroupContainers
import LinuxSystem
import RelayStatus
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
            """)

    @Argument(
        help: ArgumentHelp(
            "The group container for the replica: a directory or a group's identifier.", valueName: "group"),
        completion: .directory)
    var group: String

    @OptionGroup var connection: ConnectionArguments

    @Option(help: ArgumentHelp("The replica's file name (default: NAME.sqlite).", valueName: "file"))
    var name: String?

    @Option(
        help: ArgumentHelp(
            "This follower's name, of its own among all of the stream (default: the host's).", valueName: "id"))
    var follower: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try output.running { stop, report in
            let stream = try connection.relayStream()
            let follower = follower ?? Environment.hostName
            var options = try FollowerOptions(
                stream, try connection.options(name: "groupstore-relay follow \(stream.name) \(follower)"),
                follower: follower)
            options.connection.watchdog = try output.watchdog()
            options.key = try connection.relayKey()
            options.status = RelayRecord.ownDirectory(environment: Environment.all)
            let location = try StorePlaces.replica(name ?? "\(stream.name).sqlite", in: group)
            try StoreFollower(location, options, report: report).run(stop)
        }
    }
}
