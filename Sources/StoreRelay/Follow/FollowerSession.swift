import AgentProtocol
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication

/// What a follower does over one connection.
final class FollowerSession {
    /// The reasons for taking a snapshot, as the events state them.
    private enum ResetReason: String {
        /// There is no replica yet.
        case first
        /// Changes are no longer in the stream.
        case gap
        case otherHistory = "other_history"
        case schemaChanged = "schema_changed"
        /// Messages were forged, altered or lost.
        case damaged
    }

    private let location: StoreLocation
    private let options: FollowerOptions
    private let connection: NATSConnection
    private let held: HeldReplica
    private let status: StatusWriter
    private let reporter: RelayReporter
    private var progress: FollowerProgress
    private var snapshotDelay = Backoff(first: .milliseconds(100), longest: .seconds(60))

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
        reporter.report(
            RelayEvent("connected", ["server": .string("\(connection.server)")], "connected to \(connection.server)"))
        begun()
        if held.replica == nil { try takeSnapshot(.first, stop) }
        while !stop.isRequested, let replica = held.replica {
            let search = try StreamSearch(options.stream, connection, key: options.key)
            let (start, upto) = try search.start(after: replica.position)
            progress.learn(upto)
            let reader = try StreamReader(connection, stream: options.stream.streamName, from: start)
            reportFollowing(replica, from: start)
            var damage = StreamDamage()
            if upto == nil { damage.suspect() }
            if let reason = try read(reader, replica, &damage, stop) { try takeSnapshot(reason, stop) }
        }
        if let replica = held.replica { try progress.confirm(replica.position, force: true) }
    }

    private func reportFollowing(_ replica: Replica, from sequence: UInt64) {
        let stream = options.stream.streamName
        status.record.state = "following"
        note(replica.position)
        reporter.report(
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
    ) throws -> ResetReason? {
        while !stop.isRequested {
            guard let message = try reader.next(within: .seconds(1)) else {
                try replica.check()
                try progress.confirm(replica.position, force: false)
                status.write()
                if damage.needsSnapshot(after: Self.repairTime) { return .damaged }
                continue
            }
            status.record.messages += 1
            status.record.bytes += Int64(message.message.body.count)
            if let reason = try take(message, replica, &damage) { return reason }
            if message.pending == 0, damage.isNone { try caughtUp(replica) }
            status.write()
        }
        return nil
    }

    private func take(
        _ message: StreamMessage, _ replica: Replica, _ damage: inout StreamDamage
    ) throws -> ResetReason? {
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
            reject(message.sequence, what, &damage)
            return nil
        }
        switch outcome {
        case .partial: damage.continueBatch()
        case .applied(let position):
            damage.clear()
            snapshotDelay.reset()
            reporter.clearError()
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
                if batch.part.upto != replica.position, message.pending == 0 { damage.suspect() }
                break
            }
            // A batch whose beginning is missing, rather than one that is known already.
            if batch.part.isLast { damage.suspect() } else { damage.continueBatch() }
        case .purged: if message.pending == 0 { damage.suspect() }
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

    private func caughtUp(_ replica: Replica) throws {
        note(replica.position)
        guard progress.isNew(replica.position) else { return }
        status.record.state = "caught_up"
        try progress.confirm(replica.position, force: true)
        reporter.report(
            RelayEvent("caught_up", ["upto": .string("\(replica.position)")], "caught up with \(replica.position)"))
    }

    private func note(_ position: HistoryToken) {
        status.record.position = "\(position)"
        status.setLag(progress.lag(at: position))
    }

    // MARK: Snapshots

    private func takeSnapshot(_ reason: ResetReason, _ stop: RelayStop) throws {
        held.replica?.abandonBatch()
        if reason != .first { stop.wait(snapshotDelay.next()) }
        let container = GroupContainer(directory: location.directory)
        let download = try SnapshotDownload(
            connection, options.stream, key: options.key, in: container, for: location.name.database)
        status.record.state = "snapshot"
        status.write(force: true)
        let have = reason == .damaged ? held.replica?.position : nil
        guard
            let snapshot = try download.run(
                after: have, stop,
                progress: { done, size in
                    status.write()
                    reportProgress(done, of: size)
                })
        else {
            // Whatever was left out, the home has nothing more.
            if let have, let replica = held.replica, !stop.isRequested, replica.position == have {
                try caughtUp(replica)
            }
            return
        }
        do {
            try held.take(snapshot)
        } catch {
            try? download.remove()
            throw error
        }
        try download.remove()
        status.record.snapshots += 1
        reporter.clearError()
        guard let position = held.replica?.position else { return }
        progress.learn(position.number)
        note(position)
        try progress.confirm(position, force: true)
        reporter.report(
            RelayEvent(
                "reset", ["reason": .string(reason.rawValue), "upto": .string("\(position)")],
                "took a snapshot (\(reason.rawValue)) up to \(position)"))
    }

    private var reportedTenths: Int64 = -1

    /// Reports each tenth.
    private func reportProgress(_ done: Int64, of size: Int64) {
        let tenths = done * 10 / max(1, size)
        guard tenths != reportedTenths else { return }
        reportedTenths = tenths
        reporter.report(
            RelayEvent(
                "snapshot", ["bytes": .integer(done), "size": .integer(size)],
                "received \(ByteCount(done)) of \(ByteCount(size)) of a snapshot"))
    }
}

/// What is known of batches and messages that were of no use: if nothing replaces them, the replica would stay behind
/// without noticing.
private struct StreamDamage {
    private var suspected: ContinuousClock.Instant?
    private var lastPart: ContinuousClock.Instant?

    /// The time after which the rest of a batch isn't expected any more.
    private static let batchTime = Duration.seconds(60)

    /// True if no batch is incomplete, and nothing was left out since the last whole one.
    var isNone: Bool { suspected == nil && lastPart == nil }

    mutating func suspect() { suspected = suspected ?? .now }
    mutating func continueBatch() { lastPart = .now }
    mutating func endBatch() { lastPart = nil }

    mutating func clear() {
        suspected = nil
        lastPart = nil
    }

    func needsSnapshot(after time: Duration) -> Bool {
        if let lastPart, lastPart.duration(to: .now) >= Self.batchTime { return true }
        return suspected.map { $0.duration(to: .now) >= time } ?? false
    }
}

/// What a follower knows of the stream, and what it has confirmed.
private struct FollowerProgress {
    private let options: FollowerOptions
    private let connection: NATSConnection
    private var upto: Int64 = 0
    private var confirmed: HistoryToken?
    private var lastConfirmation: ContinuousClock.Instant?
    private var reported: HistoryToken?

    init(_ options: FollowerOptions, _ connection: NATSConnection) {
        self.options = options
        self.connection = connection
    }

    /// Notes that the stream leads to the change of this number.
    mutating func learn(_ number: Int64?) { if let number { upto = max(upto, number) } }

    func lag(at position: HistoryToken) -> Int64 { max(0, upto - position.number) }

    /// True the first time that this position is the last one.
    mutating func isNew(_ position: HistoryToken) -> Bool {
        defer { reported = position }
        return reported != position
    }

    /// Sends the position to the home, if it has moved: at most once a second unless it is forced.
    mutating func confirm(_ position: HistoryToken, force: Bool) throws {
        guard confirmed != position else { return }
        if !force, let lastConfirmation, lastConfirmation.duration(to: .now) < .seconds(1) { return }
        lastConfirmation = .now
        confirmed = position
        try connection.publish(
            Acknowledgement(position, by: options.follower).message(options.stream, key: options.key))
    }
}
