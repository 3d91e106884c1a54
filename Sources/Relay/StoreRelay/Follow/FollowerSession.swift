import AgentProtocol
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication

/// What a follower does over one connection.
final class FollowerSession {
    let location: StoreLocation
    let options: FollowerOptions
    let connection: NATSConnection
    let held: HeldReplica
    let status: StatusWriter
    let reporter: RelayReporter
    var progress: FollowerProgress
    /// The last tenth of a snapshot that was reported.
    var reportedTenths: Int64 = -1
    /// The delays between snapshots, until one has led to the stream's end.
    var snapshotDelay = Backoff(first: .milliseconds(100), longest: .seconds(10))
    /// The delays after failures that the broker has no part in.
    var retryDelay = Backoff(first: .milliseconds(100), longest: .seconds(3), isRandomized: true)

    /// The time that a home has to repair a stream whose last message is of no use, by publishing again.
    private static let repairTime = Duration.seconds(2)

    init(
        _ location: StoreLocation, _ options: FollowerOptions, _ connection: NATSConnection, _ held: HeldReplica,
        _ status: StatusWriter, _ reporter: RelayReporter
    ) {
        self.location = location
        self.options = options
        self.connection = connection
        self.held = held
        self.status = status
        self.reporter = reporter
        progress = FollowerProgress(options, connection)
    }

    /// Follows until `stop` is requested or something fails. Calls `begun` once the stream can be read.
    func run(_ stop: RelayStop, begun: () -> Void) throws {
        status.record.server = "\(connection.server)"
        _ = try connection.state(ofStream: options.stream.streamName)
        reporter.reportState(
            RelayEvent("connected", ["server": .string("\(connection.server)")], "connected to \(connection.server)"))
        begun()
        while !stop.isRequested {
            do {
                try follow(stop)
            } catch let error as any ActionableError {
                guard !stop.isRequested, !connection.isClosed,
                    FollowerFailure(error, hasConnected: true) == .retry
                else { throw error }
                held.abandonBatch()
                status.setWaiting(error)
                reporter.report(error)
                stop.wait(retryDelay.next())
                if case ReplicationError.gone = error { try stop.retryingBusy { try held.openAgain() } }
            }
        }
        if let replica = held.replica { try progress.confirm(replica.position, force: true) }
    }

    /// Takes the first snapshot, if there is no replica, and applies what the stream has. Takes a snapshot where that
    /// doesn't fit.
    private func follow(_ stop: RelayStop) throws {
        if held.replica == nil { try takeSnapshot(.first, stop) }
        while !stop.isRequested, let replica = held.replica {
            let search = try StreamSearch(options.stream, connection, key: options.key)
            let (start, upto) = try search.start(after: replica.position)
            progress.learn(upto)
            let rest = try held.unfinished.flatMap { try search.rest(after: $0, ofBatchAt: start) }
            if rest == nil { held.abandonBatch() }
            let reader = try StreamReader(
                connection, stream: options.stream.streamName, news: options.stream.news, from: rest ?? start)
            reportFollowing(replica, from: rest ?? start)
            var damage = StreamDamage()
            if upto == nil { damage.suspect() }
            if rest != nil { damage.continueBatch() }
            if let reason = try read(reader, replica, &damage, stop) { try takeSnapshot(reason, stop) }
        }
    }

    private func reportFollowing(_ replica: Replica, from sequence: UInt64) {
        let stream = options.stream.streamName
        status.record.state = "following"
        note(replica.position)
        reporter.reportState(
            RelayEvent(
                "following",
                [
                    "stream": .string(stream), "after": .string("\(replica.position)"),
                    "sequence": .integer(Int64(clamping: sequence)),
                ], "following \(stream) after \(replica.position)"))
    }

    /// Applies batches. Returns the reason for a snapshot, or nil if the end was requested.
    private func read(
        _ reader: StreamReader, _ replica: Replica, _ damage: inout StreamDamage, _ stop: RelayStop
    ) throws -> SnapshotRequest.Reason? {
        while !stop.isRequested {
            guard let message = try reader.next(within: .seconds(1)) else {
                try replica.check()
                try progress.checkPermission()
                try progress.confirm(replica.position, force: false)
                status.write()
                if damage.needsSnapshot(after: Self.repairTime) { return damage.reason }
                continue
            }
            status.record.messages += 1
            status.record.bytes += Int64(message.message.body.count)
            if let reason = try take(message, replica, &damage) { return reason }
            if message.pending == 0, damage.isNone {
                snapshotDelay.reset()
                retryDelay.reset()
                try caughtUp(replica)
            }
            status.write()
        }
        return nil
    }

    private func take(
        _ message: StreamMessage, _ replica: Replica, _ damage: inout StreamDamage
    ) throws -> SnapshotRequest.Reason? {
        guard let batch = BatchMessage(message.message),
            try batch.isAuthentic(in: options.stream, key: options.key)
        else {
            reject(message.sequence, "it is no part of a batch with a right digest", &damage)
            return nil
        }
        progress.learn(batch.part.upto.number)
        let outcome: Replica.Outcome
        do {
            outcome = try replica.apply(batch.part)
        } catch let error as ReplicationError {
            guard case .malformedBatch(let what, _) = error else { throw error }
            held.abandonBatch()
            reject(message.sequence, what, &damage)
            return nil
        }
        held.unfinished = outcome == .partial ? batch : nil
        switch outcome {
        case .partial: damage.continueBatch()
        case .applied(let position):
            damage.clear()
            retryDelay.reset()
            reporter.clearErrors()
            status.record.batches += 1
            note(position)
            reporter.report(
                RelayEvent(
                    "applied", ["from": .string("\(batch.part.from)"), "upto": .string("\(position)")],
                    "applied up to \(position)"))
            try progress.confirm(position, force: false)
        case .skipped:
            guard batch.part.upto.number > replica.position.number else {
                if batch.part.isLast { damage.endBatch() }
                // The home was set back, or the stream was: only the home knows.
                if batch.part.upto != replica.position, message.pending == 0 { damage.suspectSetback() }
                break
            }
            // A batch whose beginning is missing, rather than one that is known already.
            if batch.part.isLast { damage.suspect() } else { damage.continueBatch() }
        case .purged: if message.pending == 0 { damage.suspectSetback() }
        case .gap: return .gap
        case .otherHistory: return .otherHistory
        case .schemaChanged: return .schemaChanged
        }
        return nil
    }

    private func reject(_ sequence: UInt64, _ reason: String, _ damage: inout StreamDamage) {
        damage.suspect()
        status.record.rejected += 1
        let text = "message \(sequence) of \(options.stream.streamName) is left out: \(PrintableText(reason))"
        reporter.report(
            NATSError(
                .rejected, text,
                remedy: "see that only the relay may publish there, and that both sides have the same --key"))
    }

    func caughtUp(_ replica: Replica) throws {
        note(replica.position)
        status.record.state = "caught_up"
        guard progress.isNew(replica.position) else { return }
        try progress.confirm(replica.position, force: true)
        reporter.report(
            RelayEvent("caught_up", ["upto": .string("\(replica.position)")], "caught up with \(replica.position)"))
    }

    func note(_ position: HistoryToken) {
        status.record.position = "\(position)"
        status.setLag(progress.lag(at: position))
    }
}
