import AgentProtocol
import LinuxSystem
import Synchronization

/// Announces waiting and running relocations to subscribers. An event that reports the outcome ends each announcement.
final class RelocationAnnouncements: Sendable {
    private let feed: FeedControl
    /// The announced relocations, with the holders that each waits for.
    private let announced = Mutex<[StoreAddress: [FileHolder]]>([:])

    init(_ feed: FeedControl) { self.feed = feed }

    /// Announces a relocation, unless the same was announced before.
    func relocating(_ store: StoreAddress, waitingFor holders: [FileHolder]) {
        let isNew = announced.withLock { $0.updateValue(holders, forKey: store) != holders }
        if isNew { feed.announce(.relocating(waitingFor: holders.map { .init($0) }), of: store) }
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
