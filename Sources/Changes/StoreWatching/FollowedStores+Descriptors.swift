import AgentProtocol
import LinuxSystem
import SystemPackage

/// The descriptors that followed stores have.
extension FollowedStores {
    /// Reserves the descriptors of a store, unless it has them, or there is no store: a client may subscribe to any
    /// number of names, and what comes to one of them is counted then. Returns false if none are left.
    func reserve(for store: FollowedStore, mayExceed: Bool = false) -> Bool {
        if store.isReserved || store.isMissing { return true }
        store.isReserved = descriptors.reserve(.store, mayExceed: mayExceed)
        return store.isReserved
    }

    /// Gives back what the store had open, if anything.
    func unreserve(_ store: FollowedStore) {
        if store.isReserved { descriptors.release(.store) }
        store.isReserved = false
    }

    /// Stops following a store that has come to its name, because no descriptors are left for it.
    func lose(_ store: FollowedStore) {
        forget(store)
        starve(store.address)
    }

    /// Records that there are no descriptors for the store. A configured or subscribed store is retried.
    func starve(_ address: StoreAddress) {
        let name = FilePath.Component(bytes: address.name)
        let path = plan.directories[address.group].flatMap { directory in name.map { directory.appending($0) } }
        let message =
            "\(path.map { PrintablePath($0) } ?? PrintablePath(bytes: address.bytes)) is not followed: \(descriptors.shortage)"
        let isSubscribed = receiver.hasSubscribers(of: address)
        guard isHeard(address) else {
            // The requester gets the error each time, the log once a minute.
            guard shortageLoggedAt.map({ $0.duration(to: .now) > .seconds(60) }) ?? true else { return }
            shortageLoggedAt = .now
            return log.write(.error, message)
        }
        guard starved.insert(address).inserted else { return }
        log.write(.error, message)
        states.set(.unwatched, of: address, because: descriptors.shortage)
        if isSubscribed {
            receiver.open(address)
            receiver.publish(.reset(.unreadable), of: address)
        }
        scheduleRetry()
    }
}
