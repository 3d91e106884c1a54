import AgentProtocol
import GroupContainers
import LinuxSystem
import NATSStreams
import PersistentHistory
import StoreReplication

/// Follows a stream over one connection.
final class FollowerSession {
    private let context: RelayContext
    private let link: StreamLink
    /// The follower's name.
    private let name: String
    private let held: HeldReplica
    private var progress: FollowerProgress
    private var damage = StreamDamage()
    /// The last tenth of a snapshot that was reported.
    private var reportedTenths: Int64 = -1
    /// The delays between snapshots, until one has led to the stream's end.
    private var snapshotDelay = Backoff(first: .milliseconds(100), longest: .seconds(10))
    /// The delays after failures at the home or on this machine.
    private var retryDelay = Backoff(first: .milliseconds(100), longest: .seconds(3), isRandomized: true)

    private var status: StatusWriter { context.status }
    private var stop: RelayStop { context.stop }

    /// The time that a home has to repair a stream with an unusable last message, by publishing again.
    private static let repairTime = Duration.seconds(2)

    init(_ follower: StoreFollower, over connection: NATSConnection) {
        (context, name, held) = (follower.context, follower.name, follower.held)
        link = StreamLink(connection: connection, stream: context.stream, key: context.key)
        progress = FollowerProgress(link, follower: name)
    }

    /// Follows until the end is requested or something fails. Calls `begun` once the stream can be read.
    func run(begun: () -> Void) throws {
        status.record.server = "\(link.connection.server)"
        _ = try link.state()
        context.reportConnection(link.connection)
        begun()
        while !stop.isRequested {
            do {
                try follow()
            } catch let error as any ActionableError {
                guard !stop.isRequested, !link.connection.isClosed,
                    SessionFailure(error, hasConnected: true) == .retry
                else { throw error }
                held.abandonBatch()
                context.reportWaiting(for: error)
                stop.wait(retryDelay.next())
                if case ReplicationError.gone = error { try stop.retryingBusy { try held.openAgain() } }
            }
        }
        if let replica = held.replica { try progress.confirm(replica.position, force: true) }
    }

    /// Takes the first snapshot if there is no replica, and applies the stream's batches. Takes a snapshot if they
    /// don't fit.
    private func follow() throws {
        if held.replica == nil { try takeSnapshot(.first) }
        while !stop.isRequested, let replica = held.replica {
            let search = try StreamSearch(link)
            let (start, upto) = try search.start(after: replica.position)
            progress.learn(upto)
            let rest = try held.unfinished.flatMap { try search.rest(after: $0, ofBatchAt: start) }
            if rest == nil { held.abandonBatch() }
            let reader = try StreamReader(
                link.connection, stream: link.stream.streamName, news: link.stream.news, from: rest ?? start)
            reportFollowing(replica, from: rest ?? start)
            damage = StreamDamage()
            if upto == nil { damage.suspect() }
            if rest != nil { damage.continueBatch() }
            if let reason = try read(reader, into: replica) { try takeSnapshot(reason) }
        }
    }

    private func reportFollowing(_ replica: Replica, from sequence: UInt64) {
        let stream = link.stream.streamName
        status.record.state = "following"
        note(replica.position)
        context.reporter.reportState(
            RelayEvent(
                "following",
                [
                    "stream": .string(stream), "after": .string("\(replica.position)"),
                    "sequence": .integer(Int64(clamping: sequence)),
                ], "following \(stream) after \(replica.position)"))
    }

    /// Applies batches. Returns the reason for a snapshot, or nil if the end was requested.
    private func read(_ reader: StreamReader, into replica: Replica) throws -> SnapshotRequest.Reason? {
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
            if let reason = try take(message, into: replica) { return reason }
            if message.pending == 0, damage.isNone {
                snapshotDelay.reset()
                retryDelay.reset()
                try caughtUp(replica)
            }
            status.write()
        }
        return nil
    }

    /// Applies a message's part of a batch. Returns the reason for a snapshot, if one is needed.
    private func take(_ message: StreamMessage, into replica: Replica) throws -> SnapshotRequest.Reason? {
        guard let batch = try link.batch(message.message) else {
            reject(message.sequence, "not an authentic batch part")
            return nil
        }
        progress.learn(batch.part.upto.number)
        let outcome: Replica.Outcome
        do {
            outcome = try replica.apply(batch.part)
        } catch let error as ReplicationError {
            guard case .malformedBatch(let what, _) = error else { throw error }
            held.abandonBatch()
            reject(message.sequence, what)
            return nil
        }
        held.unfinished = outcome == .partial ? batch : nil
        switch outcome {
        case .partial: damage.continueBatch()
        case .applied(let position):
            damage.clear()
            retryDelay.reset()
            context.reporter.clearErrors()
            status.record.batches += 1
            note(position)
            context.reporter.report(
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

    private func reject(_ sequence: UInt64, _ reason: String) {
        damage.suspect()
        status.record.rejected += 1
        let text = "message \(sequence) of \(link.stream.streamName) is left out: \(PrintableText(reason))"
        context.reporter.report(
            NATSError(
                .rejected, text,
                remedy: "see that only the relay may publish there, and that both sides have the same --key"))
    }

    private func caughtUp(_ replica: Replica) throws {
        note(replica.position)
        status.record.state = "caught_up"
        guard progress.isNew(replica.position) else { return }
        try progress.confirm(replica.position, force: true)
        context.reporter.report(
            RelayEvent("caught_up", ["upto": .string("\(replica.position)")], "caught up with \(replica.position)"))
    }

    private func note(_ position: HistoryToken) {
        status.record.position = "\(position)"
        status.setLag(progress.lag(at: position))
    }

    // MARK: Snapshots

    /// Gives the replica the content of a snapshot, or creates it. Does nothing if the end is requested meanwhile.
    private func takeSnapshot(_ reason: SnapshotRequest.Reason) throws {
        held.abandonBatch()
        if reason != .first { stop.wait(snapshotDelay.next()) }
        let location = context.location
        let container = GroupContainer(directory: location.directory)
        let download = try SnapshotDownload(link, in: container, for: location.name.database)
        let request = SnapshotRequest(follower: name, have: held.replica?.position, reason: reason)
        guard
            let snapshot = try download.run(
                request, stop, making: { showSnapshot() },
                progress: { done, size in
                    showSnapshot()
                    reportProgress(done, of: size)
                },
                last: { try StreamSearch(link).last() })
        else {
            // The home has nothing more, whatever was left out.
            if let replica = held.replica, !stop.isRequested, replica.position == request.have {
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
        context.reporter.clearErrors()
        retryDelay.reset()
        guard let position = held.replica?.position else { return }
        progress.learn(position.number)
        note(position)
        try progress.confirm(position, force: true)
        context.reporter.report(
            RelayEvent(
                "reset", ["reason": .string(reason.rawValue), "upto": .string("\(position)")],
                "took a snapshot (\(reason.rawValue)) up to \(position)"))
    }

    /// Shows the state `snapshot`. Not called before the home answers: until then, the status keeps the reason why the
    /// follower waits.
    private func showSnapshot() {
        let isNew = status.record.state != "snapshot"
        status.record.state = "snapshot"
        status.write(force: isNew)
    }

    /// Reports each tenth.
    private func reportProgress(_ done: Int64, of size: Int64) {
        let tenths = done * 10 / max(1, size)
        guard tenths != reportedTenths else { return }
        reportedTenths = tenths
        context.reporter.report(
            RelayEvent(
                "snapshot", ["bytes": .integer(done), "size": .integer(size)],
                "received \(ByteCount(done)) of \(ByteCount(size)) of a snapshot"))
    }
}
