import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import Logging
import SQLiteFormat
import Synchronization
import SystemPackage

/// The stores that are configured or subscribed to, and what is known of each. The watch's thread's alone.
final class FollowedStores {
    let source: any EventSource
    /// Notices that were taken in early, and are still to be handled.
    var unhandled: [Notice] = []
    let hub: Publisher
    let surveyor: PageMapScanner
    /// Leaves work for the watch's thread.
    let perform: @Sendable (@escaping FeedThread.Work) -> Void
    private let scheduler: (any RelocationScheduling)?
    let states: FollowingStates
    let descriptors: DescriptorBudget
    /// Stores that are configured or subscribed to, and that there are no descriptors for.
    var starved: Set<StoreAddress> = []
    /// When it was logged last that a subscription was refused for want of descriptors.
    var shortageLoggedAt: ContinuousClock.Instant?
    /// Hears of what subscribers are told, after them.
    let onEvent: @Sendable (StoreEvent, StoreAddress) -> Void
    let log: Logger
    private var configuration = Configuration()
    private(set) var stores: [StoreAddress: FollowedStore] = [:]
    /// Which stores a file's name may mean something to.
    private(set) var parts: [FilePath: [FilePath.Component: [(store: FollowedStore, part: StorePart)]]] = [:]
    /// By the number that the source has for writes to their logs.
    var marked: [FollowedStore?] = []
    /// Of whose log's write alone is known that it was the first thing to come, and what was told for it.
    var ahead: (store: FollowedStore, told: StoreEvent?)?
    var watched: [FilePath: DirectoryEvent.Kinds] = [:]
    private(set) var legacyDirectories: Set<FilePath> = []
    /// When what can't be watched is tried again.
    var watchRetry: (at: ContinuousClock.Instant, wait: Duration)?
    /// The directories that can't be watched, and why.
    var unwatchable: [FilePath: String] = [:]
    /// The stores whose files have other names, and can't be watched by themselves; and why.
    var unheardDatabases: [StoreAddress: String] = [:]
    /// Those that the log names as such, until they are watched.
    var loggedUnwatchable: Set<FilePath> = []
    /// The stores that are to be looked at although no event may come.
    var expecting: Set<StoreAddress> = []
    /// Those that a limit keeps from being read, as far as it was logged.
    var limited: Set<StoreAddress> = []
    /// Let go of until `resume`, with what is to be told then.
    var released: [StoreAddress: [StoreEvent]] = [:]
    /// Of what looks found.
    private(set) var toldCount = 0
    /// Those that something happened to when notices were handled last.
    var busy: Set<StoreAddress> = []
    /// Subscriptions that wait for a survey, so that the first change after the answer can say which tables.
    var waiting: [StoreAddress: PendingAnswers] = [:]

    init(
        source: any EventSource, hub: Publisher, surveyor: PageMapScanner, scheduler: (any RelocationScheduling)?,
        states: FollowingStates, descriptors: DescriptorBudget, log: Logger,
        onEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void,
        perform: @escaping @Sendable (@escaping FeedThread.Work) -> Void
    ) {
        self.source = source
        self.descriptors = descriptors
        self.surveyor = surveyor
        self.onEvent = onEvent
        self.perform = perform
        self.hub = hub
        self.scheduler = scheduler
        self.states = states
        self.log = log
    }
}

// MARK: - Notices

extension FollowedStores {
    /// Nil: only a notice brings news.
    func timeUntilNextLook() -> Duration? {
        if !unhandled.isEmpty { return .zero }
        var times = expecting.compactMap { stores[$0]?.lookAt } + waiting.values.map(\.until)
        if let watchRetry { times.append(watchRetry.at) }
        guard let next = times.min() else { return nil }
        return max(.zero, ContinuousClock.now.duration(to: next))
    }

    /// Sorts all notices first and looks afterwards, once a store: a burst costs one look.
    func handle(_ more: [Notice]) {
        let notices = unhandled + more
        unhandled = []
        var touched: Set<StoreAddress> = []
        takeAhead(&touched)
        var overflowed = false
        for notice in notices {
            switch notice {
            case .event(let event): sort(event, &touched)
            case .directoryAppeared(let directory), .directoryVanished(let directory):
                for store in stores.values where store.directory == directory {
                    store.lostEvents()
                    touched.insert(store.address)
                }
                scheduler?.notice(notice)
            case .directoryChanged(let directory):
                for store in stores.values where store.directory == directory && store.note(.database, .attributes) {
                    touched.insert(store.address)
                }
            case .unwatchable(let directory, let error):
                lose(directory, error)
                scheduler?.notice(notice)
            case .overflow:
                overflowed = true
                scheduler?.notice(notice)
            case .woken: break
            }
        }
        if overflowed { log.warning("the kernel's queue of file events overflowed; all stores are looked at anew") }
        let now = ContinuousClock.now
        for address in overflowed ? Set(stores.keys) : touched.union(expecting) {
            guard let store = stores[address] else { continue }
            if overflowed {
                store.lostEvents()
                // The source watches it no longer.
                store.watchedDatabase = nil
                watchDatabase(of: store)
                look(store, atLeast: .reset(unheardReason(of: store) == nil ? .overflow : .unreadable))
            } else if touched.contains(address) || store.lookAt.map({ $0 <= now }) == true {
                look(store)
            }
        }
        for (address, waiting) in waiting where waiting.until <= now { answer(address) }
        if let watchRetry, watchRetry.at <= now { watchAgain(watchRetry.wait) }
        busy = touched
    }

    private func sort(_ event: DirectoryEvent, _ touched: inout Set<StoreAddress>) {
        for (store, part) in parts[event.directory]?[event.name] ?? [] where store.note(part, event.kinds) {
            touched.insert(store.address)
        }
        if legacyDirectories.contains(event.directory), !event.kinds.isDisjoint(with: Self.legacyKinds) {
            scheduler?.notice(.event(event))
        }
    }

    /// `event`: published when the look alone brings nothing worse.
    func look(_ store: FollowedStore, atLeast event: StoreEvent? = nil) {
        guard released[store.address] == nil else { return }
        let found = store.look()
        if case .reset? = found {
            publish(found, of: store)
            // It isn't followed, whatever is there now.
            if unheardReason(of: store) != nil { publish(.reset(.unreadable), of: store) }
        } else {
            publish(event ?? found, of: store)
        }
        watchDatabase(of: store)
        survey(store)
    }

    func publish(_ event: StoreEvent?, of store: FollowedStore) {
        // First: who hears the event may ask for the status at once.
        report(store)
        guard let event else { return }
        toldCount &+= 1
        hub.publish(event, of: store.address)
        onEvent(event, store.address)
    }

    /// Why commits to it may go unnoticed; nil when none does.
    func unheardReason(of store: FollowedStore) -> String? {
        unwatchable[store.directory] ?? unheardDatabases[store.address]
    }

    /// What is known of the store to those who ask.
    func report(_ store: FollowedStore) {
        noteLimit(of: store)
        if let reason = unheardReason(of: store), store.state != .released {
            states.set(.unwatched, of: store.address, because: reason)
        } else {
            states.set(store.state, of: store.address, because: store.detail)
        }
    }
}

// MARK: - Who is followed

extension FollowedStores {
    /// Follows what is configured from now on, and no longer what was.
    func configure(_ new: Configuration) {
        configuration = new
        for address in starved { states.set(nil, of: address) }
        starved = []
        legacyDirectories = Set(
            new.groups.flatMap(\.stores).flatMap(\.legacy).map { $0.removingLastComponent() })
        loggedUnwatchable.formIntersection(legacyDirectories.union(new.groups.map(\.directory)))
        for store in stores.values where new.group(store.address.group)?.directory != store.directory {
            hub.publish(.reset(.unconfigured), of: store.address)
            forget(store)
            _ = hub.close(store.address)
        }
        let configured = new.groups.flatMap { group in
            group.stores.compactMap {
                StoreAddress(group: group.identifier.rawValue, name: $0.name.database.bytes)
            }
        }
        for store in hub.subscribedStores().union(configured) { follow(store, wasSubscribed: true) }
        for address in Array(stores.keys) { forgetIfUnused(address) }
        refreshWatches()
    }

    /// There, and not let go of.
    func isFollowed(_ address: StoreAddress) -> Bool { stores[address] != nil && released[address] == nil }

    /// A store of a served group.
    func isFollowable(_ address: StoreAddress) -> Bool {
        let name = FilePath.Component(bytes: address.name).flatMap(StoreName.init)
        return name != nil && configuration.group(address.group) != nil
    }

    func isConfigured(_ address: StoreAddress) -> Bool {
        guard let name = FilePath.Component(bytes: address.name) else { return false }
        return configuration.group(address.group)?.store(named: name) != nil
    }

    /// `wasSubscribed`: subscribers may be there that believe to know the store.
    func follow(_ address: StoreAddress, wasSubscribed: Bool = false) {
        guard stores[address] == nil, isFollowable(address), let group = configuration.group(address.group),
            let name = FilePath.Component(bytes: address.name).flatMap(StoreName.init)
        else { return }
        guard descriptors.take(.store) else { return starve(address) }
        starved.remove(address)
        let store = FollowedStore(address, directory: group.directory, name: name)
        stores[address] = store
        store.readsAhead { [unowned self, unowned store] in readAhead(of: store) }
        for (file, part) in store.files {
            parts[group.directory, default: [:]][file, default: []].append((store, part))
        }
        hub.open(address)
        mark(store)
        refreshWatches()
        if released[address] == nil {
            attach(store)
            report(store)
        } else {
            states.set(.released, of: address)
        }
        if wasSubscribed, hub.subscribedStores().contains(address) {
            hub.publish(.reset(resetReason(of: store)), of: address)
        }
    }

    private func resetReason(of store: FollowedStore) -> StoreEvent.ResetReason {
        if unheardReason(of: store) != nil { return .unreadable }
        return switch store.state {
        case .absent: .vanished
        case .unreadable, .unwatched: .unreadable
        case .following, .released: .appeared
        }
    }

    /// The channel stays open for its subscribers, if any.
    private func forget(_ store: FollowedStore) {
        answer(store.address)
        store.letGo()
        unmark(store)
        unheardDatabases[store.address] = nil
        watchDatabase(of: store)
        stores[store.address] = nil
        descriptors.giveBack(.store)
        limited.remove(store.address)
        expecting.remove(store.address)
        for (file, _) in store.files {
            parts[store.directory]?[file]?.removeAll { $0.store === store }
            if parts[store.directory]?[file]?.isEmpty == true { parts[store.directory]?[file] = nil }
        }
        if parts[store.directory]?.isEmpty == true { parts[store.directory] = nil }
        states.set(nil, of: store.address)
    }

    func forgetIfUnused(_ address: StoreAddress) {
        if waiting[address] == nil, !hub.wantsDetail(of: address) { stores[address]?.wantsTables = false }
        guard waiting[address] == nil, !isConfigured(address), hub.close(address) else { return }
        if starved.remove(address) != nil { states.set(nil, of: address) }
        guard let store = stores[address] else { return }
        forget(store)
        refreshWatches()
    }
}
