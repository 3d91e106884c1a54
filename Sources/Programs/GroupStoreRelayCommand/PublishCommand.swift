import ArgumentParser
import CommandSupport
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import StoreRelay
import SystemPackage

struct PublishCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "publish",
        abstract: "Publish a store's changes to a stream.",
        discussion: """
            Runs in the foreground until it is stopped. A broker that is away costs lag and nothing else: no writer \
            waits, and nothing is lost. Changes that followers lack are kept in the store's history, or, if it keeps \
            none, in that of a copy of the store in the state directory. If the stream leads to a change that isn't in \
            this history, because another store is published there, it stops with exit code 73: superseded.

            Example:
              groupstore-relay publish Notes.sqlite --server nats://localhost --stream Notes
            """)

    @Argument(help: ArgumentHelp("The store, a path or GROUP_ID/NAME.", valueName: "store"), completion: .stores)
    var store: String

    @OptionGroup var connection: ConnectionArguments

    @Option(
        help: ArgumentHelp("The time for which the broker keeps messages, such as 12h or 7d.", valueName: "time"),
        transform: DurationArgument.init)
    var maxAge: DurationArgument?

    @Option(help: ArgumentHelp("The bytes above which the broker drops the oldest messages.", valueName: "bytes"))
    var maxBytes: Int64?

    @Option(help: "The number of the stream's copies in a cluster, 1 to 5 (default: 3, or 1 without a cluster).")
    var replicas: Int?

    @Option(
        help: ArgumentHelp(
            "Continue a stream that another home has filled. The token is its last one, as 'superseded' states it.",
            valueName: "token"))
    var takeOver: String?

    @Option(
        help: ArgumentHelp(
            "Where two snapshots at most are kept while followers load them (default: the user's cache).",
            valueName: "dir"), completion: .directory)
    var snapshotDirectory: String?

    @Option(
        help: ArgumentHelp(
            "Where a copy of a store without history is kept (default: the user's state directory).",
            valueName: "dir"), completion: .directory)
    var stateDirectory: String?

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if let replicas, !(1...5).contains(replicas) { throw ValidationError("--replicas must be 1 to 5") }
        if let maxBytes, maxBytes < 1 << 20 { throw ValidationError("--max-bytes must be at least 1048576") }
        try maxAge?.validate("--max-age", in: 1...36_500 * 86_400)
        if let takeOver, HistoryToken(takeOver) == nil { throw ValidationError("--take-over must be a token") }
    }

    func run() throws {
        let output = Output(outputOptions)
        try output.running { stop, report in
            let location = try StorePlaces.existing(store)
            let relay = try connection.options(role: "publish", watchdog: try output.watchdog())
            var options = PublisherOptions(
                relay, snapshots: snapshotDirectory.map { FilePath($0) } ?? Environment.snapshots,
                mirrors: try stateDirectory.map { try StorePlaces.absolute($0) } ?? Environment.mirrors)
            options.maxAge = maxAge?.duration
            options.maxBytes = maxBytes
            options.replicas = replicas
            options.takeOver = takeOver.flatMap(HistoryToken.init)
            try StorePublisher.publish(location, options, until: stop, report: report)
        }
    }
}
