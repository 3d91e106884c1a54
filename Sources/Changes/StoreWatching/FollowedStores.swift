import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import StoreHazards
import Synchronization
import SystemPackage

/// The configured and subscribed stores, and their state. One thread uses it, that of its `FeedLoop`.
package final class FollowedStores {
    let source: any EventSource
    // One thread uses all of it. What is read between a commit and its line is not checked for overlapping accesses.
    /// Notices that were read early and are still to be handled.
    @exclusivity(unchecked) var unhandled: [Notice] = []
    let receiver: any StoreEventReceiver
    let loop: FeedLoop
    let states: FollowingStates
    var throttle = PollingThrottle()
    @exclusivity(unchecked) var readerYield = ReaderYield()
    package let descriptors: DescriptorBudget
    /// Configured or subscribed stores for which the process has no descriptors left.
    var starved: Set<StoreAddress> = []
    /// The time of the last log line about a subscription refused for lack of descriptors.
    var shortageLoggedAt: ContinuousClock.Instant?
    let log: FeedLog
    private(set) var plan = FollowingPlan()
    package private(set) var stores: [StoreAddress: FollowedStore] = [:]
    /// The stores that each file name belongs to, by directory.
    private(set) var parts: [FilePath: [FilePath.Component: [(store: FollowedStore, part: StorePart)]]] = [:]
    /// The stores by fast-path index, the number that the source reports for a write to their log.
    var fastPathStores: [FollowedStore?] = []
    /// The store whose log was written last.
    var lastWrittenStore: FollowedStore?
    /// The same, if it was also the one before: most likely, the next event is of its next commit.
    @exclusivity(unchecked) var expectedStore: FollowedStore?
    /// The fast-path indexes of stores that are no longer followed.
    var freeFastPathIndexes: [Int] = []
    package internal(set) var watched: [FilePath: DirectoryEvent.Kinds] = [:]
    /// The time to retry the watches that failed.
    var watchRetryAt: ContinuousClock.Instant?
    var watchBackoff = Backoff(first: .seconds(1), longest: .seconds(300))
    /// The directories that can't be watched, and why.
    package internal(set) var unwatchable: [FilePath: String] = [:]
    /// The stores whose database has other hard links and can't be watched by itself, and why.
    package internal(set) var unwatchableDatabases: [StoreAddress: String] = [:]
    /// The unwatchable directories that were logged, until they are watched again.
    var loggedUnwatchable: Set<FilePath> = []
    /// The stores with a poll scheduled, whether or not an event arrives.
    var pollScheduled: Set<StoreAddress> = []
    /// The stores that a resource limit makes unreadable, as already logged.
    var limited: Set<StoreAddress> = []
    /// The stores that are released until `resume`, with the events to publish then.
    var released: [StoreAddress: [StoreEvent]] = [:]
    /// The number of events that polls have published.
    private(set) var publishedCount = 0
    /// The stores that the last batch of notices was about.
    var busy: Set<StoreAddress> = []
    /// The stores that fall asleep, and when, unless somebody subscribes to them before.
    var drowsy: [StoreAddress: ContinuousClock.Instant] = [:]
    /// The number of stores that are not dormant, by directory.
    var awakeCounts: [FilePath: Int] = [:]
    /// The stores in danger.
    var hazards = HazardWatch()
    /// What processes commit to lost files.
    var branches = FollowedBranches()
    /// The logs and indexes that the stores have had.
    let sideFiles = KnownSideFiles()
    /// The versions of SQLite in the programs that have stores open.
    let versions = SQLiteVersions()
    /// Subscriptions whose answer waits for a page map, so that the first change after it can name its tables.
    var pendingAnswers: [StoreAddress: PendingAnswers] = [:]

    init(
        source: any EventSource, receiver: any StoreEventReceiver, loop: FeedLoop, states: FollowingStates,
        descriptors: DescriptorBudget, log: FeedLog
    ) {
        self.source = source
        self.receiver = receiver
        self.loop = loop
        self.descriptors = descriptors
        self.states = states
        self.log = log
    }
}

// MARK: - Notices

extension FollowedStores {
    /// The time until the next scheduled poll or retry; nil if there is none.
    func timeUntilNextPoll() -> Duration? {
        if !unhandled.isEmpty { return .zero }
        var times = pollScheduled.compactMap { stores[$0]?.pollAt } + pendingAnswers.values.map(\.until)
        if let watchRetryAt { times.append(watchRetryAt) }
        times += drowsy.values
        times += [hazards.due, branches.due].compactMap(\.self)
        guard let next = times.min() else { return nil }
        return max(.zero, ContinuousClock.now.duration(to: next))
    }

    /// Sorts all notices first and polls afterwards, once per store, so that a burst costs one poll.
    func handle(_ newNotices: [Notice]) {
        let notices = unhandled + newNotices
        unhandled = []
        var touched: Set<StoreAddress> = []
        var overflowed = false
        for notice in notices {
            switch notice {
            case .event(let event): sort(event, &touched)
            case .directoryAppeared(let directory), .directoryVanished(let directory):
                for store in stores.values where store.directory == directory {
                    // Between two appearances the directory vanishes. The first one follows the watch.
                    if !store.isDormant || notice == .directoryVanished(directory) { store.lostEvents() }
                    touched.insert(store.address)
                }
                receiver.receive(notice)
            case .directoryChanged(let directory):
                for store in stores.values where store.directory == directory && store.record(.database, .attributes) {
                    touched.insert(store.address)
                }
                receiver.receive(notice)
            case .unwatchable(let directory, let error):
                recordWatchFailure(directory, error)
                receiver.receive(notice)
            case .overflow:
                overflowed = true
                receiver.receive(notice)
            case .woken: break
            }
        }
        for address in touched { receiver.receiveFileEvent(of: address) }
        // The source no longer watches their files.
        if overflowed { endBranches() }
        if overflowed { log.write(.warning, "the inotify event queue overflowed; polling all stores again") }
        let now = ContinuousClock.now
        for address in overflowed ? Set(stores.keys) : touched.union(pollScheduled) {
            guard let store = stores[address] else { continue }
            if overflowed {
                store.lostEvents()
                // The source no longer watches it.
                store.watchedDatabase = nil
                watchDatabase(of: store)
                poll(store, atLeast: .reset(unwatchedReason(of: store) == nil ? .overflow : .unreadable))
            } else if touched.contains(address) || store.pollAt.map({ $0 <= now }) == true {
                poll(store)
            }
        }
        for (address, pending) in pendingAnswers where pending.until <= now { sendPendingAnswers(of: address) }
        if let watchRetryAt, watchRetryAt <= now { retryWatches() }
        fallAsleepWhereDue(now)
        lookForHazards(now)
        pollBranches(now)
        busy = touched
    }

    /// The start of the name that a relocation reserves beside a store before it moves it.
    private static let reservation = Array(".groupstore-".utf8)

    private func sort(_ event: DirectoryEvent, _ touched: inout Set<StoreAddress>) {
        if !branches.all.isEmpty, recordBranchEvent(event) { return }
        if plan.releasesUnusedStores, !event.kinds.isDisjoint(with: .arrived),
            event.name.bytes.starts(with: Self.reservation)
        {
            for store in stores.values where store.directory == event.directory {
                store.pauseForRelocation()
                pollScheduled.insert(store.address)
            }
        }
        for (store, part) in parts[event.directory]?[event.name] ?? [] where store.record(part, event.kinds) {
            touched.insert(store.address)
            noteHazards(of: store, event.kinds)
        }
        let isLegacy = plan.nameDirectories.contains(event.directory)
        if isLegacy && !event.kinds.isDisjoint(with: Self.nameKinds)
            || plan.destinations.contains(event.directory) && !event.kinds.isDisjoint(with: Self.destinationKinds)
        {
            receiver.receive(.event(event))
        }
    }

    /// Polls the store. Publishes `event` unless the poll finds a reset.
    func poll(_ store: FollowedStore, atLeast event: StoreEvent? = nil) {
        guard released[store.address] == nil else { return }
        guard !store.isDormant else { return inspectDormant(store, event) }
        store.postpone(event)
        guard !store.isPaused else {
            pollScheduled.insert(store.address)
            return
        }
        let event = store.takePostponed()
        if !store.isReserved, !reserve(for: store, mayExceed: !isHeard(store.address)) { return lose(store) }
        let found = store.poll { readQueuedEvents(of: store) }
        if case .reset? = found {
            publish(found, of: store)
            // It isn't followed, whatever is there now.
            if unwatchedReason(of: store) != nil { publish(.reset(.unreadable), of: store) }
        } else {
            publish(event ?? found, of: store)
        }
        if store.state == .absent { unreserve(store) }
        watchDatabase(of: store)
        scanTables(of: store)
    }

    func publish(_ event: StoreEvent?, of store: FollowedStore) {
        // First: a subscriber that gets the event may ask for the status at once.
        reportState(of: store)
        guard let event else { return }
        // A commit shows that a program has the store open.
        if case .change = event { hazards.request(store.address, isUrgent: false) }
        publishedCount &+= 1
        store.publishedCount &+= 1
        receiver.publish(event, of: store.address)
    }

    /// Returns why commits to the store may go unnoticed; nil if they don't.
    func unwatchedReason(of store: FollowedStore) -> String? {
        unwatchable[store.directory] ?? unwatchableDatabases[store.address]
    }

    /// Returns why commits to the store may go unnoticed, or why it isn't followed at all; nil if they don't.
    func unwatchedReason(of address: StoreAddress) -> String? {
        guard let store = stores[address] else { return states.detail(address) }
        return unwatchedReason(of: store)
            ?? store.limit.map { "\(PrintablePath(store.path)) can't be read: \($0.message)" }
    }

    /// Updates the state that `status` shows for the store.
    func reportState(of store: FollowedStore) {
        logLimit(of: store)
        if let reason = unwatchedReason(of: store), store.state != .released {
            states.set(.unwatched, of: store.address, because: reason)
        } else {
            let isIdle = store.isDormant && store.state == .following
            states.set(isIdle ? .idle : store.state, of: store.address, because: store.detail)
        }
    }
}

// MARK: - Followed stores

extension FollowedStores {
    /// Follows the stores of the new plan, and stops following those that are no longer in it.
    package func configure(_ new: FollowingPlan) {
        plan = new
        for address in starved { states.set(nil, of: address) }
        starved = []
        loggedUnwatchable.formIntersection(new.nameDirectories.union(new.destinations).union(new.directories.values))
        for store in stores.values where new.directories[store.address.group] != store.directory {
            receiver.publish(.reset(.unconfigured), of: store.address)
            forget(store)
            _ = receiver.close(store.address)
        }
        for address in receiver.subscribedStores().union(new.stores) {
            if isHeard(address) { resumeFollowing(address) } else { _ = add(address, isDormant: true) }
        }
        for address in Array(stores.keys) { _ = forgetUnused(address) }
        refreshWatches()
    }

    /// The directories in which names are reported as they come and go.
    var nameDirectories: Set<FilePath> { plan.nameDirectories }

    /// True if the store is followed and not released.
    func isFollowed(_ address: StoreAddress) -> Bool { stores[address] != nil && released[address] == nil }

    /// True if the store's directory is known and its name is valid.
    package func isFollowable(_ address: StoreAddress) -> Bool {
        let name = FilePath.Component(bytes: address.name).flatMap(StoreName.init)
        return name != nil && plan.directories[address.group] != nil
    }

    func isConfigured(_ address: StoreAddress) -> Bool { plan.stores.contains(address) }

    /// Follows the store for a subscriber. Returns false if that can't be: the agent doesn't serve it, or has no
    /// descriptors left.
    @discardableResult
    package func follow(_ address: StoreAddress) -> Bool {
        hazards.announce(address)
        if let store = stores[address] { return wake(store) }
        return add(address, isDormant: false)
    }

    /// Follows a store that has subscribers already, and sends them a reset: they rely on an earlier state.
    func resumeFollowing(_ address: StoreAddress) {
        guard stores[address]?.isDormant != false, follow(address), receiver.hasSubscribers(of: address),
            let store = stores[address]
        else { return }
        receiver.publish(.reset(resetReason(of: store)), of: address)
    }

    /// Starts to follow a store, dormant if nobody listens to it. Returns false if it isn't followed.
    private func add(_ address: StoreAddress, isDormant mayBeDormant: Bool) -> Bool {
        // `resume` follows a released store.
        let isDormant = mayBeDormant && released[address] == nil
        guard stores[address] == nil, let directory = plan.directories[address.group],
            let name = FilePath.Component(bytes: address.name).flatMap(StoreName.init)
        else { return stores[address] != nil }
        let store = FollowedStore(
            address, directory: directory, name: name, releasesUnused: plan.releasesUnusedStores)
        guard isDormant || reserve(for: store) else {
            starve(address)
            return false
        }
        starved.remove(address)
        stores[address] = store
        hazards.request(address, isUrgent: true)
        if !isDormant { awakeCounts[directory, default: 0] += 1 }
        for (file, part) in store.files {
            parts[directory, default: [:]][file, default: []].append((store, part))
        }
        receiver.open(address)
        addFastPath(for: store)
        watch(directory)
        if isDormant { store.attachDormant() } else if released[address] == nil { attach(store) }
        if released[address] == nil { reportState(of: store) } else { states.set(.released, of: address) }
        return true
    }

    private func resetReason(of store: FollowedStore) -> StoreEvent.ResetReason {
        if unwatchedReason(of: store) != nil { return .unreadable }
        return switch store.state {
        case .absent: .vanished
        case .unreadable, .unwatched: .unreadable
        case .following, .idle, .released: .appeared
        }
    }

    /// Stops following the store. Its event log stays open for its subscribers, if any.
    func forget(_ store: FollowedStore) {
        sendPendingAnswers(of: store.address)
        if !store.isDormant { recordEndOfWaking(store) }
        store.release()
        removeFastPath(of: store)
        unwatchableDatabases[store.address] = nil
        watchDatabase(of: store)
        stores[store.address] = nil
        drowsy[store.address] = nil
        endBranches(of: store.address)
        hazards.forget(store.address)
        sideFiles.forget(store.directory.appending(store.name.database))
        states.setHazards([], of: store.address)
        limited.remove(store.address)
        pollScheduled.remove(store.address)
        for (file, _) in store.files {
            parts[store.directory]?[file]?.removeAll { $0.store === store }
            if parts[store.directory]?[file]?.isEmpty == true { parts[store.directory]?[file] = nil }
        }
        if parts[store.directory]?.isEmpty == true { parts[store.directory] = nil }
        states.set(nil, of: store.address)
    }

    /// Stops following the store if it isn't configured and has no subscriber.
    package func forgetIfUnused(_ address: StoreAddress) {
        if forgetUnused(address) { refreshWatches() }
    }

    /// Does the same, but leaves the watches as they are. Returns true if the store was followed and no longer is.
    private func forgetUnused(_ address: StoreAddress) -> Bool {
        if pendingAnswers[address] == nil, !receiver.wantsDetail(of: address) { stores[address]?.wantsTables = false }
        sleepSoonIfUnheard(address)
        guard pendingAnswers[address] == nil, !isConfigured(address), receiver.close(address) else { return false }
        if starved.remove(address) != nil { states.set(nil, of: address) }
        guard let store = stores[address] else { return false }
        forget(store)
        return true
    }
}
