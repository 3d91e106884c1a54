import AgentProtocol
import DirectoryWatching
import StoreWatching

/// Passes what happens to followed stores on to the agent's parts.
package final class FeedReceiver: StoreEventReceiver {
    private let publisher: Publisher
    private let scheduler: (any RelocationScheduling)?
    /// Called with each event before subscribers are sent it.
    private let beforeEvent: @Sendable (StoreEvent, StoreAddress) -> Void
    /// Called with each event after subscribers were sent it.
    private let onEvent: @Sendable (StoreEvent, StoreAddress) -> Void
    /// Called with the store of each file event.
    private let onFileEvent: @Sendable (StoreAddress) -> Void

    package init(
        publisher: Publisher, scheduler: (any RelocationScheduling)?,
        beforeEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void = { _, _ in },
        onEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void = { _, _ in },
        onFileEvent: @escaping @Sendable (StoreAddress) -> Void = { _ in }
    ) {
        self.publisher = publisher
        self.scheduler = scheduler
        self.beforeEvent = beforeEvent
        self.onEvent = onEvent
        self.onFileEvent = onFileEvent
    }

    package func open(_ store: StoreAddress) { publisher.open(store) }

    package func close(_ store: StoreAddress) -> Bool { publisher.close(store) }

    package func publish(_ event: StoreEvent, of store: StoreAddress) {
        beforeEvent(event, store)
        publisher.publish(event, of: store)
        onEvent(event, store)
    }

    package func receiveFileEvent(of store: StoreAddress) { onFileEvent(store) }

    package func subscribedStores() -> Set<StoreAddress> { publisher.subscribedStores() }

    package func hasSubscribers(of store: StoreAddress) -> Bool { publisher.hasSubscribers(of: store) }

    package func wantsDetail(of store: StoreAddress) -> Bool { publisher.wantsDetail(of: store) }

    package func receive(_ notice: Notice) { scheduler?.receive(notice) }
}

extension FollowingPlan {
    /// The groups of a configuration, their stores, the directories of the stores' legacy places, and those in which
    /// apps' directories are.
    package init(_ configuration: Configuration) {
        self.init()
        for group in configuration.groups {
            directories[group.identifier.rawValue] = group.directory
            for store in group.stores {
                if let address = StoreAddress(group: group.identifier.rawValue, name: store.name.database.bytes) {
                    stores.insert(address)
                    // Triggers must follow the schema, old changes are purged after new ones, and copies follow pages.
                    if store.history != nil || store.rows { observedStores.insert(address) }
                }
                nameDirectories.formUnion(store.legacy.map { $0.removingLastComponent() })
                if !store.legacy.isEmpty { destinations.insert(group.directory) }
            }
            if !group.apps.isEmpty { destinations.insert(group.directory) }
            destinations.formUnion(group.apps.map { $0.source.removingLastComponent() })
        }
    }
}
