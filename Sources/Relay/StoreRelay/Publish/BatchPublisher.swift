import LinuxSystem
import PersistentHistory
import StoreReplication

/// Publishes a store's changes over one connection, batch by batch, and knows when to look for the next one. It returns
/// after each batch so that its session can answer followers: with a busy writer, there may always be another batch.
/// Confined to one thread.
final class BatchPublisher {
    /// A period in which each look at the store has found changes.
    private struct BusyTime {
        var pace: PublishingPace
        var nextLook = ContinuousClock.now
        /// The position before it, and whether that was reported.
        let before: HistoryToken
        let wasCaughtUp: Bool
    }

    private let publisher: StorePublisher
    private let context: RelayContext
    private let snapshots: SnapshotServer
    private let held: HeldBatch
    private let source: ReplicationSource
    private let watch: StoreWatch
    private var outlet: BatchOutlet
    /// The token up to which everything is published.
    private var position: HistoryToken
    /// Nil once nothing was left.
    private var busyTime: BusyTime?

    private var status: StatusWriter { context.status }

    init(
        _ publisher: StorePublisher, _ source: ReplicationSource, after position: HistoryToken, outlet: BatchOutlet,
        watch: StoreWatch
    ) {
        self.publisher = publisher
        (context, snapshots, held) = (publisher.context, publisher.snapshots, publisher.held)
        self.source = source
        self.position = position
        self.outlet = outlet
        self.watch = watch
    }

    /// The time until `publishNext` is due; nil if nothing was left, so that the session waits for the store's next
    /// change.
    var untilNextLook: Duration? { busyTime.map { max(.zero, ContinuousClock.now.duration(to: $0.nextLook)) } }

    /// Publishes the next batch, if there is one.
    ///
    /// Throws `RelayError.superseded` if the store was restored from a backup, the errors of `ReplicationSource.read`,
    /// and `NATSError`.
    func publishNext() throws {
        var current =
            busyTime
            ?? BusyTime(
                pace: PublishingPace(watch), before: position, wasCaughtUp: status.record.state == "caught_up")
        busyTime = nil
        do {
            // A follower may be told that it has everything only after a look that found nothing more.
            snapshots.setPublished(nil)
            guard let batch = try next() else {
                current.pace.end()
                try source.purge()
                return finish(current)
            }
            try send(batch)
        } catch {
            current.pace.end()
            guard case StoreHistory.Discontinuity.epoch = error else { throw error }
            // Another session begins with the mirror or the history that was made anew.
            if source.hasAssigned(tokensOf: position.history) || publisher.hasBegunAnew(source) { throw error }
            throw RelayError.superseded(stream: context.stream.streamName, position, source.path)
        }
        current.nextLook = .now + current.pace.nextRest()
        busyTime = current
    }

    /// Returns the next batch; nil if there is none.
    private func next() throws -> UnsentBatch? {
        if let batch = held.batch, batch.from == position { return batch }
        guard let batch = try context.stop.retryingBusy({ try source.read(after: position) }) else { return nil }
        held.take(batch)
        return batch
    }

    /// Sends the parts of the held batch that the stream lacks, and waits until the broker has them.
    private func send(_ batch: UnsentBatch) throws {
        try held.forEachPart(maxSize: outlet.maxPartSize) { part in
            source.closeIfIdle()
            try outlet.send(part)
            status.setLag(batch.upto.number - batch.from.number)
            status.write()
        }
        try outlet.finish()
        source.note(sent: batch)
        held.clear()
        position = batch.upto
        status.record.batches += 1
        (status.record.messages, status.record.bytes) = (outlet.messages, outlet.bytes)
        notePosition()
    }

    private func notePosition() {
        status.record.position = "\(position)"
        status.setLag(0)
    }

    private func finish(_ time: BusyTime) {
        snapshots.setPublished(position)
        notePosition()
        status.record.state = "caught_up"
        status.write()
        guard position != time.before || !time.wasCaughtUp else { return }
        context.reporter.report(
            RelayEvent("caught_up", ["upto": .string("\(position)")], "published up to \(position)"))
    }
}
