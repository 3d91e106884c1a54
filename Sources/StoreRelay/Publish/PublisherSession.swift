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
    private let held: HeldBatch
    private let status: StatusWriter
    private let reporter: RelayReporter
    private var confirmations: FollowerConfirmations
    private var outdated = OutdatedHistory()

    init(
        _ location: StoreLocation, _ options: PublisherOptions, _ connection: NATSConnection, number: Int,
        _ snapshots: SnapshotServer, _ mailbox: PublisherMailbox, _ held: HeldBatch, _ status: StatusWriter,
        _ reporter: RelayReporter
    ) {
        self.location = location
        self.options = options
        self.connection = connection
        self.number = number
        self.snapshots = snapshots
        self.mailbox = mailbox
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
        try connection.ensureStream(configuration)
        // A new one for each connection: the store may have been replaced meanwhile.
        let source = try stop.retryingBusy { try ReplicationSource(location) }
        let end = try stop.retryingBusy {
            try StreamEnd(stream, connection, source, key: options.key, takingOver: takingOver)
        }
        let publisher = try FencedPublisher(
            connection, stream: stream.streamName, subject: stream.changes, after: end.sequence,
            maxMessages: maxAhead)
        var outlet = BatchOutlet(publisher, stream, key: options.key, mac: end.mac, maxPayload: connection.maxPayload)
        held.meet(endOf: end.token, unfinished: end.unfinished, in: source)
        reportBegin(end)
        status.record.state = "publishing"
        var position = end.token
        try publish(source, &position, &outlet, stop)
        begun()
        try stop.retryingBusy { try snapshots.withdrawUnusable(source) }
        try startListeners()
        while !stop.isRequested {
            let content = mailbox.take(within: source.isOpen ? min(patience, ReusableReader.idleTimeout) : patience)
            if let failure = content.failures[number] { throw failure }
            if let failure = content.watchFailure { reporter.report(failure) }
            if content.storeChanged || outdated.isDue {
                try outdated.waiting(status, reporter) { try publish(source, &position, &outlet, stop) }
            }
            confirmations.add(content.confirmed, to: &status.record)
            try confirmations.write(to: source)
            if content.wantsSnapshot { makeSnapshot(source, stop) }
            snapshots.removeUnused()
            source.closeIfIdle()
            status.write()
        }
    }

    /// The time between two batches, in which a writer has the store for itself.
    private static let rest = Duration.milliseconds(5)

    private var patience: Duration {
        min(confirmations.isPending || status.isPending ? .seconds(1) : .seconds(60), outdated.remaining)
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

    /// Publishes batches until nothing is left.
    private func publish(
        _ source: ReplicationSource, _ position: inout HistoryToken, _ outlet: inout BatchOutlet, _ stop: RelayStop
    ) throws {
        let before = position
        let wasPublished = status.record.state == "caught_up"
        do {
            snapshots.setPublished(nil)
            while let batch = try next(source, after: position, stop) {
                try send(batch, of: source, &outlet)
                source.note(sent: batch)
                held.clear()
                position = batch.upto
                status.record.batches += 1
                (status.record.messages, status.record.bytes) = (outlet.messages, outlet.bytes)
                // Beside a writer that commits all the time, batches get longer, and not more.
                stop.wait(Self.rest)
            }
        } catch StoreHistory.Discontinuity.epoch {
            // The store was restored from a backup, or its history was begun again.
            throw RelayError.superseded(stream: options.stream.streamName, position, location.path)
        }
        snapshots.setPublished(position)
        status.record.position = "\(position)"
        status.setLag(0)
        status.record.state = "caught_up"
        status.write()
        guard position != before || !wasPublished else { return }
        reporter.report(RelayEvent("caught_up", ["upto": .string("\(position)")], "published up to \(position)"))
    }

    /// Returns the next batch; nil if there is none.
    private func next(
        _ source: ReplicationSource, after position: HistoryToken, _ stop: RelayStop
    ) throws -> UnsentBatch? {
        if let batch = held.batch, batch.from == position { return batch }
        guard let batch = try stop.retryingBusy({ try source.read(after: position) }) else { return nil }
        held.take(batch)
        return batch
    }

    /// Sends the parts of the held batch that the stream lacks, and waits until the broker has them.
    private func send(_ batch: UnsentBatch, of source: ReplicationSource, _ outlet: inout BatchOutlet) throws {
        try held.forEachPart(maxSize: outlet.maxPartSize) { part in
            source.closeIfIdle()
            try outlet.send(part)
            status.setLag(batch.upto.number - batch.from.number)
            status.write()
        }
        try outlet.finish()
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
    private func startListeners() throws {
        let stream = options.stream
        let (connection, mailbox, snapshots, key) = (connection, mailbox, snapshots, options.key)
        try Self.start("gs-requests", number, mailbox) {
            let requests = try connection.subscribe(stream.snapshots)
            try snapshots.answer(requests, on: connection, mailbox)
        }
        try Self.start("gs-acks", number, mailbox) {
            let messages = try connection.subscribe(stream.acknowledgements(of: "*"))
            while true {
                guard let message = try messages.next(within: .seconds(60)) else { continue }
                guard let found = try Acknowledgement(message, stream, key: key) else { continue }
                mailbox.post { $0.confirmed[found.follower] = found.token }
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

/// Sends the parts of batches, each with the digest of the one before.
struct BatchOutlet {
    private let publisher: FencedPublisher
    private let stream: RelayStream
    private let key: RelayKey?
    private var mac: String
    let maxPartSize: Int
    private(set) var messages: Int64 = 0
    private(set) var bytes: Int64 = 0

    init(_ publisher: FencedPublisher, _ stream: RelayStream, key: RelayKey?, mac: String, maxPayload: Int) {
        self.publisher = publisher
        self.stream = stream
        self.key = key
        self.mac = mac
        // Headers count too.
        maxPartSize = max(16 << 10, min(BatchPart.maxBodySize, maxPayload - (8 << 10)))
    }

    mutating func send(_ part: BatchPart) throws {
        let (headers, digest) = try BatchMessage.headers(part, in: stream, after: mac, key: key)
        try publisher.publish(headers: headers, body: part.body)
        mac = digest ?? BatchMessage.noPrevious
        messages += 1
        bytes += Int64(part.body.count)
    }

    /// Waits until the broker has everything.
    func finish() throws { try publisher.finish() }
}
