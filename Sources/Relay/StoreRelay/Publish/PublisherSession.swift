import AgentProtocol
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication

/// What a publisher does over one connection.
final class PublisherSession {
    private let options: PublisherOptions
    private let location: StoreLocation
    private let connection: NATSConnection
    private let number: Int
    private let snapshots: SnapshotServer
    private let mailbox: PublisherMailbox
    private let watch: StoreWatch
    private let held: HeldBatch
    private let status: StatusWriter
    private let reporter: RelayReporter
    private var confirmations: FollowerConfirmations
    private var outdated = OutdatedHistory()

    init(
        _ location: StoreLocation, _ options: PublisherOptions, _ connection: NATSConnection, number: Int,
        _ snapshots: SnapshotServer, _ mailbox: PublisherMailbox, _ watch: StoreWatch, _ held: HeldBatch,
        _ status: StatusWriter, _ reporter: RelayReporter
    ) {
        self.location = location
        self.options = options
        self.connection = connection
        self.number = number
        self.snapshots = snapshots
        self.mailbox = mailbox
        self.watch = watch
        self.held = held
        self.status = status
        self.reporter = reporter
        confirmations = FollowerConfirmations(options.stream)
    }

    /// Publishes until `stop` is requested or something fails. Calls `begun` once the first batch is stored.
    ///
    /// - Parameter maxAhead: The messages that may be sent ahead of the broker's confirmations.
    func run(_ stop: RelayStop, takingOver: HistoryToken?, maxAhead: Int, begun: () -> Void) throws {
        let stream = options.stream
        reporter.reportState(
            RelayEvent("connected", ["server": .string("\(connection.server)")], "connected to \(connection.server)"))
        status.record.server = "\(connection.server)"
        var configuration = StreamConfiguration(name: stream.streamName, subject: stream.changes)
        configuration.maxAge = options.maxAge
        configuration.maxBytes = options.maxBytes
        configuration.replicas = options.replicas
        guard connection.maxPayload >= BatchOutlet.minPayload else {
            throw NATSError(
                .smallPayload,
                "\(connection.server): its max_payload is \(connection.maxPayload) bytes, and a batch needs "
                    + "\(BatchOutlet.minPayload)")
        }
        try connection.ensureStream(configuration)
        // A new one for each connection: the store may have been replaced meanwhile.
        let source = try stop.retryingBusy { try ReplicationSource(location) }
        let end = try stop.retryingBusy {
            try StreamEnd(stream, connection, source, key: options.key, takingOver: takingOver)
        }
        let publisher = try FencedPublisher(
            connection, stream: stream.streamName, subject: stream.changes, after: end.sequence,
            maxMessages: maxAhead)
        let look = StreamLook(configuration, created: end.created, publisher.place)
        var nextLook = ContinuousClock.now + Self.lookInterval
        let outlet = BatchOutlet(publisher, stream, key: options.key, mac: end.mac, maxPayload: connection.maxPayload)
        held.meet(endOf: end.token, unfinished: end.unfinished, in: source)
        reportBegin(end)
        status.record.state = "publishing"
        let batches = BatchPublisher(
            source, after: end.token, outlet, stream, snapshots, watch, held, status, reporter)
        try batches.publishNext(stop)
        begun()
        try stop.retryingBusy { try snapshots.withdrawUnusable(source) }
        try startListeners(look)
        while !stop.isRequested {
            let content = mailbox.take(within: batches.untilNextLook ?? patience(source))
            if let failure = content.failures[number] { throw failure }
            status.record.rejected += Int64(content.refused)
            if let failure = content.watchFailure { reporter.report(failure) }
            // What is written while it publishes is found by one of its next looks.
            let isDue = batches.untilNextLook.map { $0 == .zero } ?? content.storeChanged
            if isDue || outdated.isDue {
                try outdated.waiting(status, reporter) { try batches.publishNext(stop) }
            }
            confirmations.add(content.confirmed)
            try confirmations.write(to: source, &status.record)
            if content.wantsSnapshot { makeSnapshot(source, stop) }
            try snapshots.removeUnused()
            if nextLook <= .now {
                nextLook = .now + Self.lookInterval
                try look.look(over: connection)
            }
            source.closeIfIdle()
            status.write()
        }
    }

    /// The time after which the stream is looked at, even if nothing is published and nobody asks.
    private static let lookInterval = Duration.seconds(60)

    private func patience(_ source: ReplicationSource) -> Duration {
        let limit: Duration = confirmations.isPending || status.isPending ? .seconds(1) : .seconds(60)
        return min(limit, outdated.remaining, source.isOpen ? ReusableReader.idleTimeout : .seconds(60))
    }

    private func reportBegin(_ end: StreamEnd) {
        let stream = options.stream.streamName
        let members: JSONObject = [
            "stream": .string(stream), "after": .string("\(end.token)"),
            "sequence": .integer(Int64(clamping: end.sequence)),
        ]
        if end.isReset {
            reporter.report(
                RelayEvent(
                    "reset", members, "followers of \(stream) need a snapshot: changes before \(end.token) are gone"))
        }
        reporter.reportState(RelayEvent("publishing", members, "publishing to \(stream) after \(end.token)"))
    }

    private func makeSnapshot(_ source: ReplicationSource, _ stop: RelayStop) {
        do {
            guard try stop.retryingBusy({ try snapshots.make(of: source) }) else { return }
            status.record.snapshots += 1
            reporter.report(RelayEvent("snapshot", ["stream": .string(options.stream.streamName)], "made a snapshot"))
        } catch {
            if let error = error as? any ActionableError { reporter.report(error) }
        }
    }

    // MARK: Other threads

    /// Starts the threads that wait for followers. They end with the connection.
    private func startListeners(_ look: StreamLook) throws {
        let stream = options.stream
        let (connection, mailbox, snapshots, key) = (connection, mailbox, snapshots, options.key)
        try Self.start("gs-requests", number, mailbox) {
            let requests = try connection.subscribe(stream.snapshots)
            try snapshots.answer(requests, on: connection, mailbox) { try look.look(over: connection) }
        }
        try Self.start("gs-acks", number, mailbox) {
            let messages = try connection.subscribe(stream.acknowledgements(of: "*"))
            while true {
                guard let message = try messages.next(within: .seconds(60)) else { continue }
                guard let found = try Acknowledgement(message, stream, key: key) else { continue }
                mailbox.post { FollowerConfirmations.add(found, to: &$0.confirmed) }
            }
        }
    }

    private static func start(
        _ name: String, _ number: Int, _ mailbox: PublisherMailbox, _ body: @escaping @Sendable () throws -> Void
    ) throws {
        _ = try SystemThread(name: name) {
            do {
                try body()
            } catch {
                let failure = error as? NATSError ?? NATSError(.lost, "\(error)")
                mailbox.post { $0.failures[number] = failure }
            }
        }
    }
}
