import AgentProtocol
import LinuxSystem
import Synchronization

/// What subscribers were told of the relocations that wait or are under way: each announcement is ended by one that says
/// what came of it.
final class RelocationAnnouncements: Sendable {
    private let feed: FeedControl
    /// The stores whose relocation is announced, and who is waited for.
    private let told = Mutex<[StoreAddress: [FileHolder]]>([:])

    init(_ feed: FeedControl) { self.feed = feed }

    /// Nothing is sent twice.
    func relocating(_ store: StoreAddress, waitingFor holders: [FileHolder]) {
        let isNews = told.withLock { $0.updateValue(holders, forKey: store) != holders }
        if isNews { feed.announce(.relocating(waitingFor: holders.map { .init($0) }), of: store) }
    }

    /// The event that ends an announcement goes another way.
    func ended(_ store: StoreAddress) { told.withLock { $0[store] = nil } }

    /// `waiting` are all that wait now; those `announced` are looked at once more, or are under way. Whatever else was announced has ended
    /// without having been begun: its store was taken away, or is no longer configured.
    func update(_ waiting: [StoreAddress: [FileHolder]], announced: Set<StoreAddress>) {
        for (store, holders) in waiting { relocating(store, waitingFor: holders) }
        for store in told.withLock({ Array($0.keys) }) where waiting[store] == nil && !announced.contains(store) {
            ended(store)
            let why = "the legacy store is no longer there, or no longer configured"
            feed.announce(.abandoned(outcome: "nothing_to_do", message: why), of: store)
        }
    }
}
