import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import Logging
import PersistentStore
import Synchronization
import SystemPackage

/// The stores that are configured or subscribed to, and what is known of each. The watch's thread's alone.
final class FollowedStores {
    let source: any EventSource
    /// Notices that were taken in early, and are still to be handled.
    var unhandled: [Notice] = []
    let hub: Hub
    let surveyor: Surveyor
    /// Leaves work for the watch's thread.
    let perform: @Sendable (@escaping Watch.Work) -> Void
    private let scheduler: (any RelocationScheduling)?
    let states: FollowingStates
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
    private var legacyDirectories: Set<FilePath> = []
    /// When what can't be watched is tried again.
    private var watchRetry: (at: ContinuousClock.Instant, wait: Duration)?
    /// The stores that are to be looked at although no event may come.
    var expecting: Set<StoreAddress> = []
    /// Let go of until `resume`, with what is to be told then.
    var released: [StoreAddress: [StoreEvent]] = [:]
    /// Of what looks found.
    private(set) var toldCount = 0
    /// Those that something happened to when notices were handled last.
    var busy: Set<StoreAddress> = []
    /// Subscriptions that wait for a survey, so that the first change after the answer can say which tables.
    var waiting: [StoreAddress: WaitingAnswers] = [:]

    private static let storeKinds: DirectoryEvent.Kinds = [
        .modified, .closedAfterWriting, .created, .deleted, .movedIn, .movedOut, .attributes,
    ]
    private static let legacyKinds: DirectoryEvent.Kinds = [
        .created, .deleted, .movedIn, .movedOut, .closedAfterWriting, .closedAfterReading, .opened,
    ]

    init(
        source: any EventSource, hub: Hub, surveyor: Surveyor, scheduler: (any RelocationScheduling)?,
        states: FollowingStates, log: Logger, onEvent: @escaping @Sendable (StoreEvent, StoreAddress) -> Void,
        perform: @escaping @Sendable (@escaping Watch.Work) -> Void
    ) {
        self.source = source
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
                look(store, atLeast: .reset(.overflow))
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
        } else {
            publish(event ?? found, of: store)
        }
        watchDatabase(of: store)
        survey(store)
    }

    func publish(_ event: StoreEvent?, of store: FollowedStore) {
        if let event {
            toldCount &+= 1
            hub.publish(event, of: store.address)
            onEvent(event, store.address)
        }
        states.set(store.state, of: store.address)
    }
}

// MARK: - Who is followed

extension FollowedStores {
    /// Follows what is configured from now on, and no longer what was.
    func configure(_ new: Configuration) {
        configuration = new
        legacyDirectories = Set(
            new.groups.flatMap(\.stores).flatMap(\.legacy).map { $0.removingLastComponent() })
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
        for failure in refreshWatches() { log.error("\(failure)") }
    }

    /// There, and not let go of.
    func isFollowed(_ address: StoreAddress) -> Bool { stores[address] != nil && released[address] == nil }

    private func isConfigured(_ address: StoreAddress) -> Bool {
        guard let name = FilePath.Component(bytes: address.name) else { return false }
        return configuration.group(address.group)?.store(named: name) != nil
    }

    /// `wasSubscribed`: subscribers may be there that believe to know the store.
    func follow(_ address: StoreAddress, wasSubscribed: Bool = false) {
        guard stores[address] == nil, let group = configuration.group(address.group),
            let name = FilePath.Component(bytes: address.name).flatMap(StoreName.init)
        else { return }
        let store = FollowedStore(address, directory: group.directory, name: name)
        stores[address] = store
        store.readsAhead { [unowned self, unowned store] in readAhead(of: store) }
        for (file, part) in store.files {
            parts[group.directory, default: [:]][file, default: []].append((store, part))
        }
        hub.open(address)
        mark(store)
        _ = refreshWatches()
        let isReleased = released[address] != nil
        if !isReleased { attach(store) }
        states.set(isReleased ? .released : store.state, of: address)
        if wasSubscribed, hub.subscribedStores().contains(address) {
            hub.publish(.reset(store.state == .absent ? .vanished : .appeared), of: address)
        }
    }

    /// The channel stays open for its subscribers, if any.
    private func forget(_ store: FollowedStore) {
        answer(store.address)
        store.letGo()
        unmark(store)
        watchDatabase(of: store)
        stores[store.address] = nil
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
        guard waiting[address] == nil, !isConfigured(address), hub.close(address), let store = stores[address] else {
            return
        }
        forget(store)
        _ = refreshWatches()
    }

    /// Watches the directories that are needed and no others; returns why one can't be watched.
    func refreshWatches() -> [String] {
        var wanted: [FilePath: DirectoryEvent.Kinds] = [:]
        for directory in parts.keys { wanted[directory, default: []].formUnion(Self.storeKinds) }
        for directory in legacyDirectories { wanted[directory, default: []].formUnion(Self.legacyKinds) }
        for directory in watched.keys where wanted[directory] == nil {
            source.unwatch(directory)
            watched[directory] = nil
        }
        var failures: [String] = []
        for (directory, kinds) in wanted where watched[directory]?.isSuperset(of: kinds) != true {
            do {
                try source.watch(directory, for: kinds)
                watched[directory, default: []].formUnion(kinds)
            } catch {
                failures.append("\(PrintablePath(directory)) can't be watched: \(error)")
            }
        }
        if failures.isEmpty {
            watchRetry = nil
        } else if watchRetry == nil {
            watchRetry = (.now.advanced(by: .seconds(1)), .seconds(1))
        }
        return failures
    }

    /// A limit may be raised, or a right given, without an event. The source tells of each directory that it watches anew.
    private func watchAgain(_ wait: Duration) {
        let before = Set(watched.keys)
        let failures = refreshWatches()
        for directory in watched.keys where !before.contains(directory) {
            log.notice("\(PrintablePath(directory)) is watched now")
        }
        guard !failures.isEmpty else { return }
        let longer = min(wait * 2, .seconds(300))
        watchRetry = (.now.advanced(by: longer), longer)
    }

    /// None is followed any more as far as is known.
    func loseWatches() {
        watched = [:]
        watchRetry = (.now, .milliseconds(500))
    }
}
