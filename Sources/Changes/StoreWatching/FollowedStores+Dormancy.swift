import AgentProtocol
import ChangeFeed
import LinuxSystem
import SystemPackage

/// Dormant stores. A store that nobody listens to costs its writers nothing: no event reports a write to it, and none
/// of its files is open. When somebody comes, one look at the store tells whether it was written meanwhile.
extension FollowedStores {
    /// The time after which a store without a listener falls asleep. Until then a subscriber that comes back is told
    /// the changed tables.
    private static let drowsiness = Duration.seconds(5)

    /// True if somebody needs the store's events.
    func isHeard(_ address: StoreAddress) -> Bool {
        plan.observedStores.contains(address) || pendingAnswers[address] != nil
            || receiver.hasSubscribers(of: address)
    }

    /// Has a store that nobody listens to any more fall asleep after a while.
    func sleepSoonIfUnheard(_ address: StoreAddress) {
        guard let store = stores[address], !store.isDormant, drowsy[address] == nil, !isHeard(address) else { return }
        drowsy[address] = .now.advanced(by: Self.drowsiness)
    }

    /// Closes the store's files, unless somebody listens again.
    private func fallAsleep(_ address: StoreAddress) {
        // `resume` follows a released store again.
        guard let store = stores[address], !store.isDormant, released[address] == nil, !isHeard(address) else { return }
        let present = store.presentPosition
        let before = store.publishedCount
        let hasCaughtUp = catchUp(with: store)
        // If nothing was found after it, everything before it was published.
        let isSettled = hasCaughtUp && store.publishedCount == before && !store.isCommitUnderWay
        store.fallAsleep(at: isSettled ? present : nil)
        endBranches(of: address)
        pollScheduled.remove(address)
        unwatchableDatabases[address] = nil
        watchDatabase(of: store)
        recordEndOfWaking(store)
        watch(store.directory)
        reportState(of: store)
    }

    /// Follows a dormant store again, and publishes the event that stands for what happened meanwhile. Returns false if
    /// no descriptors are left for it.
    @discardableResult
    func wake(_ store: FollowedStore, mayExceedBudget: Bool = false) -> Bool {
        drowsy[store.address] = nil
        guard store.isDormant else { return true }
        guard reserve(for: store, mayExceed: mayExceedBudget) else {
            starve(store.address)
            return false
        }
        starved.remove(store.address)
        awakeCounts[store.directory, default: 0] += 1
        // First, so that no write falls in between.
        watch(store.directory)
        let event = store.wake()
        watchDatabase(of: store)
        publish(event, of: store)
        scanTables(of: store)
        if released[store.address] == nil { reportState(of: store) }
        sleepSoonIfUnheard(store.address)
        return true
    }

    /// Has the stores that are due fall asleep.
    func fallAsleepWhereDue(_ now: ContinuousClock.Instant) {
        guard !drowsy.isEmpty else { return }
        let due = drowsy.filter { $0.value <= now }.keys
        for address in due { drowsy[address] = nil }
        for address in due { fallAsleep(address) }
    }

    /// Publishes the commits whose events are still in the kernel's queue. Returns false if the events don't end, or
    /// were lost.
    private func catchUp(with store: FollowedStore) -> Bool {
        let events = readQueuedEvents(of: store)
        handle([])
        poll(store)
        return events != nil
    }

    /// Updates what is known of a dormant store's state after an event. `event`: what must be published in any case.
    func inspectDormant(_ store: FollowedStore, _ event: StoreEvent?) {
        store.inspectDormant()
        publish(event, of: store)
    }

    /// Gives back what the store had while it was awake.
    func recordEndOfWaking(_ store: FollowedStore) {
        unreserve(store)
        let count = (awakeCounts[store.directory] ?? 1) - 1
        awakeCounts[store.directory] = count == 0 ? nil : count
    }
}
