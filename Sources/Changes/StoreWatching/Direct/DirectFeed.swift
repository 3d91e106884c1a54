import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Follows stores for this process alone, without an agent. Used by the thread that runs its loop.
package final class DirectFeed {
    /// A store that a caller watches.
    private struct Watched {
        /// The path that the caller named.
        let path: FilePath
        /// True if changes are to name their tables.
        let wantsTables: Bool
        var place: StorePlace
        var address: StoreAddress
    }

    /// The handler of events: the store's number, the event, and the token after it.
    package typealias Handler = (Int, StoreEvent, DirectToken) -> Void

    private let stores: FollowedStores
    private let receiver = DirectReceiver()
    private let handler: Handler
    /// The watched stores by number.
    private var watched: [Int: Watched] = [:]
    private var numbers: [StoreAddress: [Int]] = [:]
    // One thread uses all of it. What is read between a commit and its line is not checked for overlapping accesses.
    /// The store that was written last, and the numbers that it has.
    @exclusivity(unchecked) private var lastWritten: (store: FollowedStore, numbers: [Int])?
    /// The directories' groups, which have no other meaning here.
    private var groups: [FilePath: String] = [:]
    private var nextNumber = 0

    /// - Parameter handler: Called for each event, as soon as it is known.
    package init(loop: FeedLoop, log: FeedLog, handler: @escaping Handler) {
        stores = loop.makeStores(
            for: receiver, states: FollowingStates(),
            descriptors: DescriptorBudget(remedy: "raise ulimit -Hn before it is started"), log: log)
        self.handler = handler
        receiver.publish = { [unowned self] event, address in
            for number in numbers[address] ?? [] { handler(number, event, token(of: number)) }
        }
        receiver.publishRepeated = { [unowned(unsafe) self] event, store in
            if store !== lastWritten?.store { lastWritten = (store, numbers[store.address] ?? []) }
            for number in lastWritten?.numbers ?? [] { handler(number, event, DirectToken(store.position)) }
        }
    }

    /// Starts to follow the stores at these absolute paths, which need not exist, and returns their numbers.
    ///
    /// - Parameters:
    ///   - wantsTables: True if changes are to name their tables.
    ///   - ready: Called once each change from then on is handled, with its tables if they can be known.
    /// - Throws: `DirectFeedError`.
    package func add(
        _ paths: [FilePath], wantsTables: Bool = true, ready: @escaping ([Int]) -> Void
    ) throws -> [Int] {
        let new = try paths.map { path in
            guard let place = StorePlace(path), FileStatus(following: place.path)?.kind != .directory,
                let address = address(of: place)
            else { throw DirectFeedError.notAStore(path) }
            return Watched(path: path, wantsTables: wantsTables, place: place, address: address)
        }
        let added = Array(nextNumber..<nextNumber + new.count)
        nextNumber += new.count
        for (number, store) in zip(added, new) { watched[number] = store }
        reconfigure()
        for store in new {
            guard let reason = stores.unwatchedReason(of: store.address) else { continue }
            remove(added)
            throw DirectFeedError.unwatchable(reason, directory: store.place.directory)
        }
        awaitTables(of: wantsTables ? Set(new.map(\.address)) : []) { ready(added) }
        return added
    }

    /// Stops following stores.
    package func remove(_ numbers: [Int]) {
        for number in numbers { watched[number] = nil }
        reconfigure()
    }

    /// Handles the next events. Returns false once the loop is stopped. Throws if the source fails.
    package func step(_ loop: FeedLoop, timeout: Duration? = nil) throws -> Bool {
        defer { if receiver.mayLeadElsewhere { resolvePlaces() } }
        return try loop.step(stores, timeout: timeout)
    }

    /// The position up to which all events of the store were handled.
    package func token(of number: Int) -> DirectToken {
        DirectToken(watched[number].flatMap { stores.stores[$0.address]?.position })
    }

    /// The place of the store's database.
    package func path(of number: Int) -> FilePath? { watched[number]?.place.path }

    /// Closes every descriptor of the stores.
    package func close() { remove(Array(watched.keys)) }

    private func address(of place: StorePlace) -> StoreAddress? {
        let group = groups[place.directory] ?? "\(groups.count)"
        groups[place.directory] = group
        return StoreAddress(group: group, name: place.name.bytes)
    }

    private func awaitTables(of addresses: Set<StoreAddress>, _ ready: @escaping () -> Void) {
        var waiting = 1
        let isDone = {
            waiting -= 1
            if waiting == 0 { ready() }
        }
        for address in addresses {
            waiting += 1
            stores.whenTablesAreKnown(of: address, isDone)
        }
        isDone()
    }

    private func reconfigure() {
        lastWritten = nil
        numbers = [:]
        var plan = FollowingPlan()
        plan.releasesUnusedStores = true
        for (number, store) in watched {
            numbers[store.address, default: []].append(number)
            plan.directories[store.address.group] = store.place.directory
            plan.stores.insert(store.address)
            plan.nameDirectories.formUnion(store.place.linkDirectories)
        }
        // What is reported of new ones is known to whoever asked for them.
        receiver.silenced = plan.stores.subtracting(receiver.stores)
        receiver.stores = plan.stores
        receiver.detailed = Set(watched.values.filter(\.wantsTables).map(\.address))
        stores.configure(plan)
        receiver.silenced = []
        receiver.linkDirectories = plan.nameDirectories
    }

    /// Follows stores whose path leads to another place now, such as one that a relocation left a symbolic link to.
    private func resolvePlaces() {
        receiver.mayLeadElsewhere = false
        var moved: [(number: Int, from: FilePath)] = []
        for (number, store) in watched {
            guard let place = StorePlace(store.path), place != store.place, let address = address(of: place) else {
                continue
            }
            if place.path != store.place.path { moved.append((number, store.place.path)) }
            watched[number]?.place = place
            watched[number]?.address = address
        }
        guard !moved.isEmpty else { return reconfigure() }
        reconfigure()
        for (number, from) in moved {
            guard let store = watched[number] else { continue }
            if store.wantsTables { stores.whenTablesAreKnown(of: store.address) {} }
            let isThere = FileStatus(following: store.place.path) != nil
            handler(
                number, isThere ? .relocated(from: from.bytes, to: store.place.path.bytes) : .reset(.vanished),
                token(of: number))
        }
    }
}

/// The reasons why a store can't be watched.
package enum DirectFeedError: ActionableError, Equatable {
    /// The path can't be a database's, or is a directory.
    case notAStore(FilePath)
    /// A limit or a missing permission prevents it.
    case unwatchable(String, directory: FilePath)

    package var errorCode: String {
        switch self {
        case .notAStore: "not_a_file"
        case .unwatchable: "not_watchable"
        }
    }

    package var message: String {
        switch self {
        case .notAStore(let path): "\(PrintablePath(path)) can't be a store's database file"
        case .unwatchable(let reason, directory: _): reason
        }
    }

    package var remedy: String {
        switch self {
        case .notAStore: "name the database file"
        case .unwatchable(_, directory: let directory):
            "see which limit or permission: groupstore doctor \(directory.shellWord)"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .notAStore(let path), .unwatchable(_, directory: let path): path
        }
    }
}

/// Receives the events of the followed stores.
private final class DirectReceiver: StoreEventReceiver {
    // Only the thread of the loop uses them. Two of them are read between a commit and its line, without a check for
    // overlapping accesses.
    nonisolated(unsafe) var publish: (StoreEvent, StoreAddress) -> Void = { _, _ in }
    @exclusivity(unchecked) nonisolated(unsafe) var publishRepeated: (StoreEvent, FollowedStore) -> Void = { _, _ in }
    nonisolated(unsafe) var stores: Set<StoreAddress> = []
    nonisolated(unsafe) var linkDirectories: Set<FilePath> = []
    /// The stores whose changes are to name their tables.
    nonisolated(unsafe) var detailed: Set<StoreAddress> = []
    /// The stores that are being added.
    @exclusivity(unchecked) nonisolated(unsafe) var silenced: Set<StoreAddress> = []
    /// True if a path may lead to another place now.
    nonisolated(unsafe) var mayLeadElsewhere = false

    func open(_ store: StoreAddress) {}

    func close(_ store: StoreAddress) -> Bool { !stores.contains(store) }

    func publish(_ event: StoreEvent, of store: StoreAddress) {
        guard !silenced.contains(store) else { return }
        if case .reset = event { mayLeadElsewhere = true }
        publish(event, store)
    }

    func publish(repeated change: StoreEvent, of store: FollowedStore) {
        if silenced.isEmpty { publishRepeated(change, store) }
    }

    func subscribedStores() -> Set<StoreAddress> { stores }

    func hasSubscribers(of store: StoreAddress) -> Bool { stores.contains(store) }

    func wantsDetail(of store: StoreAddress) -> Bool { detailed.contains(store) }

    func receive(_ notice: Notice) {
        switch notice {
        case .event(let event): if linkDirectories.contains(event.directory) { mayLeadElsewhere = true }
        case .directoryAppeared, .directoryVanished, .overflow: mayLeadElsewhere = true
        case .directoryChanged, .unwatchable, .woken: break
        }
    }
}
