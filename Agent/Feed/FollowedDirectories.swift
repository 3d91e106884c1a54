import AgentProtocol
import DirectoryWatching
import LinuxSystem
import Logging
import SystemPackage

/// The watches on directories: those that are needed, and those that can't be had for now.
extension FollowedStores {
    private static let storeKinds: DirectoryEvent.Kinds = [
        .modified, .closedAfterWriting, .created, .deleted, .movedIn, .movedOut, .attributes,
    ]
    static let legacyKinds: DirectoryEvent.Kinds = [
        .created, .deleted, .movedIn, .movedOut, .closedAfterWriting, .closedAfterReading, .opened,
    ]

    /// Watches the directories that are needed and no others.
    func refreshWatches() {
        var wanted: [FilePath: DirectoryEvent.Kinds] = [:]
        for directory in parts.keys { wanted[directory, default: []].formUnion(Self.storeKinds) }
        for directory in legacyDirectories { wanted[directory, default: []].formUnion(Self.legacyKinds) }
        for directory in watched.keys where wanted[directory] == nil {
            source.unwatch(directory)
            watched[directory] = nil
        }
        for directory in unwatchable.keys where wanted[directory] == nil {
            unwatchable[directory] = nil
            states.setUnwatchable(nil, directory)
        }
        for (directory, kinds) in wanted where watched[directory]?.isSuperset(of: kinds) != true {
            do {
                try source.watch(directory, for: kinds)
                watched[directory, default: []].formUnion(kinds)
                found(directory)
            } catch {
                // The source may have given up what it watched of it until now.
                watched[directory] = nil
                lose(directory, error)
            }
        }
        scheduleRetry()
    }

    /// Whether something is to be tried again although no event may come.
    private var lacksSomething: Bool { !unwatchable.isEmpty || !starved.isEmpty || !unheardDatabases.isEmpty }

    func scheduleRetry() {
        if !lacksSomething {
            watchRetry = nil
        } else if watchRetry == nil {
            watchRetry = (.now.advanced(by: .seconds(1)), .seconds(1))
        }
    }

    /// The directory can't be watched: what is committed in it goes unnoticed, and who is subscribed hears that.
    func lose(_ directory: FilePath, _ error: any Error) {
        watched[directory] = nil
        let cause = (error as? SystemError)?.advice ?? "\(error)"
        let reason = "\(PrintablePath(directory)) can't be watched: \(cause)"
        let isNew = unwatchable.updateValue(reason, forKey: directory) == nil
        states.setUnwatchable(reason, directory)
        // A subscription that is refused for it leaves nothing behind; the next one is refused for the same.
        if loggedUnwatchable.insert(directory).inserted { log.error("\(reason)") }
        if isNew {
            for store in stores.values where store.directory == directory {
                store.lostEvents()
                if released[store.address] == nil { publish(.reset(.unreadable), of: store) }
            }
        }
        scheduleRetry()
    }

    /// It is watched again; what was committed meanwhile was not told.
    private func found(_ directory: FilePath) {
        if loggedUnwatchable.remove(directory) != nil { log.notice("\(PrintablePath(directory)) is watched now") }
        guard unwatchable.removeValue(forKey: directory) != nil else { return }
        states.setUnwatchable(nil, directory)
        for store in stores.values where store.directory == directory && released[store.address] == nil {
            look(store, atLeast: .change(.unknown))
        }
    }

    /// A limit may be raised, or a right given, without an event. The source tells of each directory that it watches anew.
    func watchAgain(_ wait: Duration) {
        refreshWatches()
        for address in starved { follow(address, wasSubscribed: true) }
        for store in unheardDatabases.keys.compactMap({ stores[$0] }) { watchDatabase(of: store) }
        guard lacksSomething else { return }
        let longer = min(wait * 2, .seconds(300))
        watchRetry = (.now.advanced(by: longer), longer)
    }

    /// There are no descriptors for the store. One that is configured or subscribed to is tried again.
    func starve(_ address: StoreAddress) {
        let message = "\(PrintablePath(bytes: address.bytes)) is not followed: \(descriptors.shortage)"
        let isSubscribed = hub.subscribedStores().contains(address)
        guard isConfigured(address) || isSubscribed else {
            // Whoever asks hears it each time, the log once a minute.
            guard shortageLoggedAt.map({ $0.duration(to: .now) > .seconds(60) }) ?? true else { return }
            shortageLoggedAt = .now
            return log.error("\(message)")
        }
        guard starved.insert(address).inserted else { return }
        log.error("\(message)")
        states.set(.unwatched, of: address, because: descriptors.shortage)
        if isSubscribed {
            hub.open(address)
            hub.publish(.reset(.unreadable), of: address)
        }
        scheduleRetry()
    }

    /// Logs that a limit keeps the store from being read, once until it can be.
    func noteLimit(of store: FollowedStore) {
        guard let limit = store.limit else {
            limited.remove(store.address)
            return
        }
        guard limited.insert(store.address).inserted else { return }
        log.error("\(PrintablePath(store.path)) can't be read: \(limit.message); \(limit.remedy)")
    }

    /// Looks at all places and stores, whether or not an event has told of something: file systems came or went, or
    /// somebody asks for it.
    func examineAll() {
        if !unwatchable.isEmpty { refreshWatches() }
        source.lookAtPlaces()
        for store in stores.values where store.note(.database, .attributes) { look(store) }
    }
}
