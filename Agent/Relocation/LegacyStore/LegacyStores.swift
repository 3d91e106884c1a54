import AgentProtocol
import DirectoryWatching
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// All legacy stores of the configuration; passes notices on to them.
struct LegacyStores {
    private(set) var configuration: Configuration
    private(set) var all: [LegacyStore]

    init(_ configuration: Configuration) {
        self.configuration = configuration
        all = Self.stores(of: configuration)
    }

    private static func stores(of configuration: Configuration) -> [LegacyStore] {
        configuration.groups.flatMap { group in
            group.stores.flatMap { (store: Configuration.Store) -> [LegacyStore] in
                let own = store.migration == nil ? [] : [group.directory.appending(store.name.database)]
                return (store.legacy + own).compactMap { path in
                    StoreAddress(group: group.identifier.rawValue, name: store.name.database.bytes).flatMap {
                        LegacyStore(path, of: $0, in: group.directory, store)
                    }
                }
            }
        }
    }

    /// Applies a new configuration. A store that is configured as before keeps its state.
    mutating func adopt(_ configuration: Configuration) {
        let known = all
        self.configuration = configuration
        all = Self.stores(of: configuration).map { new in
            known.first {
                $0.file.path == new.file.path && $0.file.group == new.file.group
                    && $0.configuration == new.configuration
            } ?? new
        }
        for store in all where !known.contains(where: { $0 === store }) { store.inspect() }
        // The files that the configuration names, a model for instance, may have changed.
        for store in all { store.forgetOutcome() }
    }

    func inspectAll() { for store in all { store.inspect() } }

    func retryAll() { for store in all { store.retry() } }

    func record(_ notice: Notice) {
        switch notice {
        case .event(let event): record(event)
        case .directoryAppeared(let directory), .directoryVanished(let directory), .unwatchable(let directory, _):
            for store in all where store.file.directory == directory { store.inspect() }
            for store in all where store.file.group == directory { store.retry() }
        case .directoryChanged(let directory):
            for store in all where store.file.directory == directory || store.file.group == directory { store.retry() }
        case .overflow: inspectAll()
        case .woken: break
        }
    }

    private func record(_ event: DirectoryEvent) {
        for store in all where store.file.directory == event.directory {
            guard let part = store.file.name.part(named: event.name) else { continue }
            // Reading a side file means nothing, and the check for a hot journal reads it.
            let kinds = part == .database ? event.kinds : event.kinds.subtracting([.opened, .closedAfterReading])
            if !kinds.isEmpty { store.record(part, kinds) }
        }
        for store in all where store.file.group == event.directory && store.dependsOnGroupFile(named: event.name) {
            if !event.kinds.isDisjoint(with: Self.obstacleKinds) { store.retry() }
            if event.name == store.configuration.name.database, event.kinds.contains(.closedAfterWriting) {
                store.groupStoreWasClosed()
            }
        }
    }

    /// The events by which a file stops being in the way.
    private static let obstacleKinds = DirectoryEvent.Kinds.arrived.union(.departed).union(.attributes)

    /// The groups' directories whose events no store needs: they are no legacy directories, and no store is refused for
    /// what is there.
    var unheardDirectories: Set<FilePath> {
        let needed = all.flatMap { store in
            store.lastFailure == nil ? [store.file.directory] : [store.file.directory, store.file.group]
        }
        return Set(all.map(\.file.group)).subtracting(needed)
    }

    /// The stores that wait, and the processes that have them open.
    var waiting: [StoreAddress: [FileHolder]] {
        var found: [StoreAddress: [FileHolder]] = [:]
        for store in all where store.state == .waiting { found[store.address, default: []] += store.holders }
        return found
    }

    /// The stores that may not be whole yet.
    var arriving: Set<StoreAddress> { Set(all.filter { $0.state == .arriving }.map(\.address)) }

    /// The earliest instant at which a store may have become whole.
    var dueAt: ContinuousClock.Instant? { all.compactMap(\.dueAt).min() }
}

extension Configuration {
    /// The served groups whose directories are there.
    var groupsByDirectory: [FileIdentity: GroupIdentifier] {
        let found = groups.compactMap { group in
            (try? Directory(group.directory)).map { ($0.identity, group.identifier) }
        }
        return Dictionary(found) { first, _ in first }
    }

    /// Returns the wire address of a store in a served group's directory; nil for all others.
    func address(of path: FilePath) -> StoreAddress? {
        guard let name = path.lastComponent, let identity = try? Directory(path.removingLastComponent()).identity else {
            return nil
        }
        let group = groups.first { (try? Directory($0.directory))?.identity == identity }
        return group.flatMap { StoreAddress(group: $0.identifier.rawValue, name: name.bytes) }
    }

    /// Returns the wire address of the store that a request makes; nil if its group isn't served.
    func address(of request: RelocationRequest) -> StoreAddress? {
        guard let identity = try? Directory(request.group).identity, let source = request.source.lastComponent else {
            return nil
        }
        let group = groups.first { (try? Directory($0.directory))?.identity == identity }
        return group.flatMap {
            StoreAddress(group: $0.identifier.rawValue, name: (request.name ?? source).bytes)
        }
    }
}
