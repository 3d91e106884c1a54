import AgentProtocol
import LinuxSystem
import Synchronization

/// Announces waiting and running relocations to subscribers, and how far they are. An event that reports the outcome
/// ends each announcement.
final class RelocationAnnouncements: Sendable {
    private struct Announced {
        var holders: [FileHolder]
        var pacing: ProgressPacing
        /// The time to send the report that waits.
        var sendAt: ContinuousClock.Instant?
    }

    private let feed: FeedControl
    /// The announced relocations, with the holders that each waits for.
    private let announced = Mutex<[StoreAddress: Announced]>([:])

    /// Called when a report begins to wait. The owner calls `sendDue` at `dueAt`: Dispatch's timers, once used, wake a
    /// process each second for as long as it runs.
    private let onWait: @Sendable () -> Void

    init(_ feed: FeedControl, onWait: @escaping @Sendable () -> Void) {
        self.feed = feed
        self.onWait = onWait
    }

    /// Announces a relocation, unless the same was announced before.
    func relocating(
        _ store: StoreAddress, waitingFor holders: [FileHolder], at now: ContinuousClock.Instant = .now
    ) {
        let isNew = announced.withLock { announced in
            if announced[store]?.holders == holders { return false }
            announced[store] = Announced(holders: holders, pacing: ProgressPacing(at: now))
            return true
        }
        if isNew { feed.announce(.relocating(waitingFor: holders.map { .init($0) }), of: store) }
    }

    /// Announces how far an announced relocation is, at most ten times a second. The last report is always sent, unless
    /// the relocation ends before it is due.
    func progress(_ progress: StoreProgress, of store: StoreAddress, at now: ContinuousClock.Instant = .now) {
        // Sent under the lock, so that no report follows the event that ends the announcement.
        let waits = announced.withLock { announced in
            switch announced[store]?.pacing.receive(progress, at: now) {
            case .send?: feed.announce(.progress(progress), of: store)
            case .wait(let duration)?:
                announced[store]?.sendAt = now.advanced(by: duration)
                return true
            case .none?, nil: break
            }
            return false
        }
        if waits { onWait() }
    }

    /// The time at which a report is due; nil if none waits.
    var dueAt: ContinuousClock.Instant? { announced.withLock { $0.values.compactMap(\.sendAt).min() } }

    /// Sends the reports that have waited long enough.
    func sendDue(at now: ContinuousClock.Instant = .now) {
        announced.withLock { announced in
            for (store, waiting) in announced where waiting.sendAt.map({ $0 <= now }) == true {
                announced[store]?.sendAt = nil
                guard let pending = announced[store]?.pacing.takePending(at: now) else { continue }
                feed.announce(.progress(pending), of: store)
            }
        }
    }

    /// Forgets an announcement. The caller sends the event that ends it.
    func ended(_ store: StoreAddress) { announced.withLock { $0[store] = nil } }

    /// Announces all relocations that wait. Those `announced` are about to be inspected again, or are running. Every
    /// other announcement is ended: its store was removed, or is no longer configured.
    func update(_ waiting: [StoreAddress: [FileHolder]], announced: Set<StoreAddress>) {
        for (store, holders) in waiting { relocating(store, waitingFor: holders) }
        for store in self.announced.withLock({ Array($0.keys) })
        where waiting[store] == nil && !announced.contains(store) {
            ended(store)
            let message = "the legacy store is no longer there, or no longer configured"
            feed.announce(.abandoned(outcome: "nothing_to_do", message: message), of: store)
        }
    }
}
