import AgentProtocol
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import SQLiteFormat
import SQLiteStore
import StoreReplication
import SystemPackage

/// How a stream is followed.
package struct FollowerOptions: Sendable {
    package let stream: RelayStream
    package var connection: ConnectionOptions
    /// The follower's name, under which the home keeps what it has confirmed.
    package let follower: String
    package var key: RelayKey?
    /// The directory of the status record; nil to write none.
    package var status: FilePath?

    /// Throws `RelayError.badName`.
    package init(_ stream: RelayStream, _ connection: ConnectionOptions, follower: String) throws(RelayError) {
        guard RelayStream.isName(follower) else { throw .badName("follower", follower) }
        self.stream = stream
        self.connection = connection
        self.follower = follower
    }
}

/// Keeps a replica of a store up to date, until it is stopped.
///
/// The spine: `run` connects, again and again; `FollowerSession.run` searches the stream, applies batches, and takes a
/// snapshot where they don't fit.
package final class StoreFollower {
    private let location: StoreLocation
    private let options: FollowerOptions
    private let reporter: RelayReporter
    private let status: StatusWriter
    private let held: HeldReplica

    /// - Parameter location: The replica's place, in a group container. It need not exist.
    package init(
        _ location: StoreLocation, _ options: FollowerOptions, report: @escaping @Sendable (RelayEvent) -> Void
    ) {
        self.location = location
        self.options = options
        reporter = RelayReporter(report)
        held = HeldReplica(location, stream: options.stream.streamName)
        status = StatusWriter(
            RelayRecord(
                .follow, store: location.path, stream: options.stream.streamName, follower: options.follower),
            in: options.status)
    }

    /// Follows until `stop` is requested. A broker or a home that is away is waited for.
    ///
    /// Throws `ReplicationError`, with `diverged` if somebody else wrote to the replica, and `NATSError` if waiting
    /// wouldn't help.
    package func run(_ stop: RelayStop) throws {
        do {
            try runSessions(stop)
            status.end(with: nil)
        } catch {
            status.end(with: error as? any ActionableError)
            throw error
        }
    }

    /// The time after which a session counts as one that worked.
    private static let steadyTime = Duration.seconds(5)

    private func runSessions(_ stop: RelayStop) throws {
        try options.connection.checkFiles()
        try stop.retryingBusy { try held.open() }
        var backoff = Backoff(first: .milliseconds(200), longest: .seconds(10), isRandomized: true)
        var hasConnected = false
        var connecting = options.connection
        connecting.inboxPrefix = options.stream.inbox(of: options.follower)
        connecting.streamAPI = (options.stream.api, options.stream.streamName)
        while !stop.isRequested {
            var begun: ContinuousClock.Instant?
            var server: ServerAddress?
            let before = held.reach
            do {
                status.record.state = "connecting"
                status.write()
                let connection = try NATSConnection(connecting)
                server = connection.server
                stop.use(connection)
                defer {
                    stop.use(nil)
                    connection.close()
                    status.record.server = nil
                }
                let session = FollowerSession(location, options, connection, held, status, reporter)
                try session.run(stop) {
                    hasConnected = true
                    begun = .now
                }
            } catch let error as any ActionableError {
                guard !stop.isRequested else { break }
                guard FollowerFailure(error, hasConnected: hasConnected) != .end else { throw error }
                let worked =
                    begun.map { $0.duration(to: .now) >= Self.steadyTime } ?? false || held.reach.isBeyond(before)
                if worked {
                    backoff.reset()
                    reporter.clearErrors()
                }
                if let server { connecting.note(error, of: server, worked: worked) }
                status.setFailure(error)
                reporter.report(error)
                status.record.state = "connecting"
                status.write(force: true)
                stop.wait(backoff.next())
            }
        }
    }
}
