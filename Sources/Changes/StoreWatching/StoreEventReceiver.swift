import AgentProtocol
import DirectoryWatching

/// Receives what happens to followed stores. All calls come from the thread that follows them, in order.
package protocol StoreEventReceiver: AnyObject, Sendable {
    /// The store is followed from now on. It may be so already.
    func open(_ store: StoreAddress)
    /// Ends the delivery of the store's events, unless it has subscribers. Returns true if it has none.
    func close(_ store: StoreAddress) -> Bool
    /// Receives an event of the store. Ignores one of a store that isn't open.
    func publish(_ event: StoreEvent, of store: StoreAddress)
    /// Receives a change that is equal to the store's last one but for its position. It comes right after the commit.
    func publish(repeated change: StoreEvent, of store: FollowedStore)
    /// Notes that a file of the store was created, written or removed, before the store is polled. Writes to a log that
    /// is known come as commits alone.
    func receiveFileEvent(of store: StoreAddress)
    /// The stores with subscribers.
    func subscribedStores() -> Set<StoreAddress>
    /// True if the store has a subscriber.
    func hasSubscribers(of store: StoreAddress) -> Bool
    /// True if a subscriber needs to know which tables change.
    func wantsDetail(of store: StoreAddress) -> Bool
    /// Receives an event in a directory of `FollowingPlan.nameDirectories`, the coming or going of a directory, or a
    /// loss of events.
    func receive(_ notice: Notice)
}

extension StoreEventReceiver {
    package func publish(repeated change: StoreEvent, of store: FollowedStore) { publish(change, of: store.address) }

    package func receiveFileEvent(of store: StoreAddress) {}

    package func receive(_ notice: Notice) {}
}
