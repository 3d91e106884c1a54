import AgentProtocol
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import SQLiteFormat
import SQLiteStore
import StoreReplication
import SystemPackage

/// How a store is published.
package struct PublisherOptions: Sendable {
    package let stream: RelayStream
    package var connection: ConnectionOptions
    /// The limits of the stream.
    package var maxAge: Duration?
    package var maxBytes: Int64?
    package var replicas: Int?
    package var key: RelayKey?
    /// The last token of a stream that another home, or this one before a restored backup, has filled, and which this
    /// store takes over.
    package var takeOver: HistoryToken?
    /// The directory of snapshots that are being sent.
    package var snapshots: FilePath
    /// The directory of the status record; nil to write none.
    package var status: FilePath?

    package init(_ stream: RelayStream, _ connection: ConnectionOptions, snapshots: FilePath) {
        self.stream = stream
        self.connection = connection
        self.snapshots = snapshots
    }
}

/// Publishes a store's changes to a stream, until it is stopped.
///
/// The spine: `run` connects, again and again; `PublisherSession.run` reads the stream's end, publishes all that is
/// missing there, and then waits for the store, for followers and for the broker.
package final class StorePublisher {
    private let location: StoreLocation
    private let options: PublisherOptions
    private let reporter: RelayReporter
    private let mailbox = PublisherMailbox()
    private let held = HeldBatch()
    private let status: StatusWriter

    package init(
        _ location: StoreLocation, _ options: PublisherOptions, report: @escaping @Sendable (RelayEvent) -> Void
    ) {
        self.location = location
        self.options = options
        reporter = RelayReporter(report)
        status = StatusWriter(
            RelayRecord(.publish, store: location.path, stream: options.stream.streamName), in: options.status)
    }

    /// Publishes until `stop` is requested. A broker that is away, or a store that is being replaced, is waited for.
    ///
    /// Throws `RelayError.superseded`, `ReplicationError`, `HistoryError`, and `NATSError` if waiting wouldn't help.
    package func run(_ stop: RelayStop) throws {
        do {
            try runSessions(stop)
            status.end(with: nil)
        } catch {
            status.end(with: error as? any ActionableError)
            throw error
        }
    }

    private func runSessions(_ stop: RelayStop) throws {
        // The kernel's threads end a writer's syncs. They don't wait for a long batch to be read.
        shortenTimeSlices()
        try options.connection.checkFiles()
        // What can't be replicated is refused before anything is published.
        do {
            try checkStore(stop)
        } catch HistoryError.outdated {}
        let snapshots = try SnapshotServer(options.stream, in: options.snapshots, key: options.key)
        var backoff = Backoff(first: .milliseconds(200), longest: .seconds(10), isRandomized: true)
        var storeBackoff = Backoff(first: .milliseconds(100), longest: .seconds(5))
        var hasConnected = false
        var takeOver = options.takeOver
        var maxAhead = Self.maxAhead
        var number = 0
        var connecting = options.connection
        connecting.inboxPrefix = options.stream.homeInbox
        while !stop.isRequested {
            var begun: ContinuousClock.Instant?
            var server: ServerAddress?
            let before = status.record.position
            do {
                // The broker isn't bothered with a store that can't be published.
                try checkStore(stop)
                storeBackoff.reset()
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
                number += 1
                // Only now: each write costs the writer an event for it.
                let watch = try StoreWatch(location.path, mailbox)
                let session = PublisherSession(
                    location, options, connection, number: number, snapshots, mailbox, watch, held, status, reporter)
                try session.run(stop, takingOver: takeOver, maxAhead: maxAhead) {
                    hasConnected = true
                    takeOver = nil
                    begun = .now
                }
            } catch let error as any ActionableError {
                guard !stop.isRequested else { break }
                if case HistoryError.outdated = error {
                    status.record.lag = nil
                    status.setWaiting(error)
                    reporter.report(error)
                    stop.wait(storeBackoff.next())
                    continue
                }
                guard Self.isTransient(error, hasConnected: hasConnected) else { throw error }
                let worked =
                    begun.map { $0.duration(to: .now) >= Self.steadyTime } ?? false
                    || status.record.position != before || held.hasAdvanced
                if worked {
                    backoff.reset()
                    reporter.clearErrors()
                }
                if let server { connecting.note(error, of: server, worked: worked) }
                // Where somebody else publishes too, each message waits for the one before.
                maxAhead = (error as? NATSError)?.code == .streamMoved ? 1 : Self.maxAhead
                status.setFailure(error)
                reporter.report(error)
                wait(backoff.next(), stop)
            }
        }
    }

    /// The messages that may be sent ahead of the broker's confirmations.
    private static let maxAhead = 256

    /// The time after which a session counts as one that worked.
    private static let steadyTime = Duration.seconds(5)

    private func checkStore(_ stop: RelayStop) throws {
        _ = try stop.retryingBusy { try ReplicationSource(location) }
    }

    /// Waits before the next attempt, and keeps the lag in the status up to date meanwhile.
    private func wait(_ duration: Duration, _ stop: RelayStop) {
        status.record.state = "connecting"
        if let position = status.record.position.flatMap(HistoryToken.init), mailbox.take(within: .zero).storeChanged,
            let current = try? ReplicationSource(location).current(), current.history == position.history
        {
            status.setLag(current.number - position.number)
        }
        mailbox.post { $0.storeChanged = true }
        status.write()
        stop.wait(duration)
    }

    /// True if another attempt may succeed without anybody's help.
    private static func isTransient(_ error: any ActionableError, hasConnected: Bool) -> Bool {
        switch error {
        case let error as NATSError:
            // Once it worked, a broker that refuses is being changed or repaired.
            error.isTransient || hasConnected && error.code != .streamDiffers || error.code == .noStream
        case let error as StoreError:
            switch error {
            // A store that is being relocated, restored or replaced.
            case .busy, .missing: true
            case .sqlite: !error.isPermission
            case .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .corrupt, .superJournalElsewhere: false
            }
        case let error as SystemError: !error.isPermission
        case is StoreHistory.Discontinuity: true
        default: false
        }
    }
}
