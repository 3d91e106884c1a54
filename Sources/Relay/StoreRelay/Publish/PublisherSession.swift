import AgentProtocol
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication

/// Publishes a store over one connection.
///
/// One thread, the caller's, touches the store. Others wait for the store's writers, for followers' requests and for
/// their confirmations, and leave what they found in the mailbox.
final class PublisherSession {
    private let publisher: StorePublisher
    private let context: RelayContext
    private let link: StreamLink
    private let watch: StoreWatch
    private var confirmations: FollowerConfirmations
    private var outdated = OutdatedHistory()

    /// Throws `SystemError` if no thread can be created.
    init(_ publisher: StorePublisher, over connection: NATSConnection) throws {
        self.publisher = publisher
        context = publisher.context
        link = StreamLink(connection: connection, stream: context.stream, key: context.key)
        // Only now: while the store is watched, each write costs its writer time.
        watch = try StoreWatch(
            context.location.path, publisher.mailbox, namesTables: publisher.mirror != nil)
        confirmations = FollowerConfirmations(context.stream)
    }

    /// Publishes until the end is requested or something fails. Calls `begun` once the first batch is stored.
    func run(begun: () throws -> Void) throws {
        let connection = link.connection
        context.reportConnection(connection)
        guard connection.maxPayload >= BatchOutlet.minPayload else {
            throw NATSError(
                .smallPayload,
                "\(connection.server): its max_payload is \(connection.maxPayload) bytes, and a batch needs "
                    + "\(BatchOutlet.minPayload)")
        }
        let configuration = publisher.options.configuration
        try connection.ensureStream(configuration)
        // A new one for each connection: the store may have been replaced meanwhile.
        let source = try publisher.source()
        let end = try context.stop.retryingBusy { try StreamEnd(link, source, takingOver: publisher.takeOver) }
        let fenced = try FencedPublisher(
            connection, stream: configuration.name, subject: configuration.subject, after: end.sequence,
            maxMessages: publisher.maxAhead)
        let look = StreamLook(configuration, created: end.created, fenced.place)
        publisher.held.meet(endOf: end.token, unfinished: end.unfinished, in: source)
        reportBegin(end)
        let batches = BatchPublisher(
            publisher, source, after: end.token, outlet: BatchOutlet(fenced, link, after: end.mac), watch: watch)
        try batches.publishNext()
        try begun()
        try context.stop.retryingBusy { try publisher.snapshots.withdrawUnusable(source) }
        try startListeners(look)
        try serve(source, batches, look: look)
    }

    /// Publishes what the store's writers add, and serves followers, until the end is requested.
    private func serve(_ source: ReplicationSource, _ batches: BatchPublisher, look: StreamLook) throws {
        let (status, snapshots) = (context.status, publisher.snapshots)
        var nextLook = ContinuousClock.now + Self.lookInterval
        while !context.stop.isRequested {
            let content = publisher.mailbox.take(within: batches.untilNextLook ?? patience(source))
            if let failure = content.failures[publisher.session] { throw failure }
            status.record.rejected += Int64(content.refused)
            if let failure = content.watchFailure { context.reporter.report(failure) }
            if content.hasOtherWrites { source.recordOtherWrites() }
            // The next looks find changes that are committed while it publishes.
            let isDue = batches.untilNextLook.map { $0 == .zero } ?? content.storeChanged
            if isDue || outdated.isDue {
                try outdated.waiting(context) { try batches.publishNext() }
            }
            confirmations.add(content.confirmed)
            try confirmations.write(to: source, &status.record)
            if content.wantsSnapshot { try makeSnapshot(source) }
            try snapshots.removeUnused()
            if nextLook <= .now {
                nextLook = .now + Self.lookInterval
                try look.look(over: link.connection)
            }
            source.closeIfIdle()
            status.write()
        }
    }

    /// The time after which the stream is looked at, even if nothing is published and nobody asks.
    private static let lookInterval = Duration.seconds(60)

    private func patience(_ source: ReplicationSource) -> Duration {
        let limit: Duration = confirmations.isPending || context.status.isPending ? .seconds(1) : .seconds(60)
        return min(limit, outdated.remaining ?? limit, source.isOpen ? ReusableReader.idleTimeout : limit)
    }

    private func reportBegin(_ end: StreamEnd) {
        let stream = context.stream.streamName
        let members: JSONObject = [
            "stream": .string(stream), "after": .string("\(end.token)"),
            "sequence": .integer(Int64(clamping: end.sequence)),
        ]
        if let reset = end.reset {
            var resetMembers = members
            resetMembers["reason"] = .string(reset.rawValue)
            context.reporter.report(
                RelayEvent("reset", resetMembers, "followers of \(stream) need a snapshot: \(reset.sentence)"))
        }
        context.reporter.reportState(
            RelayEvent("publishing", members, "publishing to \(stream) after \(end.token)"))
        context.status.record.state = "publishing"
    }

    /// Throws `StoreHistory.Discontinuity` if followers need a snapshot of another history.
    private func makeSnapshot(_ source: ReplicationSource) throws {
        let reporter = context.reporter
        do {
            guard try context.stop.retryingBusy({ try publisher.snapshots.make(of: source) }) else { return }
            context.status.record.snapshots += 1
            reporter.report(
                RelayEvent("snapshot", ["stream": .string(context.stream.streamName)], "made a snapshot"))
        } catch {
            if error is StoreHistory.Discontinuity { throw error }
            if let error = error as? any ActionableError { reporter.report(error) }
        }
    }

    // MARK: Other threads

    /// Starts the threads that wait for followers. They end with the connection.
    private func startListeners(_ look: StreamLook) throws {
        let (link, mailbox, snapshots) = (link, publisher.mailbox, publisher.snapshots)
        try startThread("gs-requests") {
            let requests = try link.connection.subscribe(link.stream.snapshots)
            try snapshots.answer(requests, on: link.connection, mailbox: mailbox) {
                try look.look(over: link.connection)
            }
        }
        try startThread("gs-acks") {
            let messages = try link.connection.subscribe(link.stream.acknowledgements(of: "*"))
            while true {
                guard let message = try messages.next(within: .seconds(60)) else { continue }
                guard let found = try Acknowledgement(message, link.stream, key: link.key) else { continue }
                mailbox.post { FollowerConfirmations.add(found, to: &$0.confirmed) }
            }
        }
    }

    /// Starts a thread whose error ends this session. Sessions are numbered, because a thread may notice its lost
    /// connection only when the next session runs.
    private func startThread(_ name: String, _ body: @escaping @Sendable () throws -> Void) throws {
        let (session, mailbox) = (publisher.session, publisher.mailbox)
        _ = try SystemThread(name: name) {
            do {
                try body()
            } catch {
                let failure = error as? NATSError ?? NATSError(.lost, "\(error)")
                mailbox.post { $0.failures[session] = failure }
            }
        }
    }
}
