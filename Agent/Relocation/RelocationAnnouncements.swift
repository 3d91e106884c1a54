import AgentProtocol
import Dispatch
import LinuxSystem
import Synchronization

/// Announces waiting and running relocations to subscribers, and how far they are. An event that reports the outcome
/// ends each announcement.
final class RelocationAnnouncements: Sendable {
    private struct Announced {
        var holders: [FileHolder]
        var pacing = ProgressPacing()
    }

    private let feed: FeedControl
    /// The announced relocations, with the holders that each waits for.
    private let announced = Mutex<[StoreAddress: Announced]>([:])

    init(_ feed: FeedControl) { self.feed = feed }

    /// Announces a relocation, unless the same was announced before.
    func relocating(_ store: StoreAddress, waitingFor holders: [FileHolder]) {
        let isNew = announced.withLock { announced in
            if announced[store]?.holders == holders { return false }
            announced[store] = Announced(holders: holders)
            return true
        }
        if isNew { feed.announce(.relocating(waitingFor: holders.map { .init($0) }), of: store) }
    }

    /// Announces how far an announced relocation is, at most ten times a second. The last report is always sent, unless
    /// the relocation ends before it is due.
    func progress(_ progress: StoreProgress, of store: StoreAddress) {
        // Sent under the lock, so that no report follows the event that ends the announcement.
        let wait = announced.withLock { announced -> Duration? in
            switch announced[store]?.pacing.receive(progress) {
            case .send?: feed.announce(.progress(progress), of: store)
            case .wait(let duration)?: return duration
            case .none?, nil: break
            }
            return nil
        }
        guard let wait else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(wait.nanoseconds))) { [self] in
            announced.withLock { announced in
                guard let pending = announced[store]?.pacing.takePending() else { return }
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
