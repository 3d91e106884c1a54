import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SystemPackage

/// The watches on directories: those that are needed, and those that fail for now.
extension FollowedStores {
    private static let storeKinds: DirectoryEvent.Kinds = dormantKinds.union([.modified, .closedAfterWriting])
    /// The kinds for dormant stores: a writer pays for no other.
    private static let dormantKinds: DirectoryEvent.Kinds = [.created, .deleted, .movedIn, .movedOut, .attributes]
    static let nameKinds: DirectoryEvent.Kinds = [
        .created, .deleted, .movedIn, .movedOut, .closedAfterWriting, .closedAfterReading, .opened, .attributes,
    ]
    /// The kinds that tell in a group's directory that a legacy store may have its place there.
    static let destinationKinds: DirectoryEvent.Kinds = [.created, .deleted, .movedIn, .movedOut, .attributes]

    /// Watches the directories that are needed and no others.
    package func refreshWatches() {
        let wanted = Set(parts.keys).union(nameDirectories).union(plan.destinations)
        for directory in watched.keys where !wanted.contains(directory) {
            source.unwatch(directory)
            watched[directory] = nil
        }
        for directory in unwatchable.keys where !wanted.contains(directory) {
            unwatchable[directory] = nil
            states.setUnwatchable(nil, directory)
        }
        for directory in wanted { watch(directory) }
        scheduleRetry()
    }

    /// The kinds of events that are needed in the directory.
    private func kinds(in directory: FilePath) -> DirectoryEvent.Kinds {
        var kinds = nameDirectories.contains(directory) ? Self.nameKinds : []
        if plan.destinations.contains(directory) { kinds.formUnion(Self.destinationKinds) }
        if parts[directory] != nil {
            kinds.formUnion(awakeCounts[directory] == nil ? Self.dormantKinds : Self.storeKinds)
        }
        return kinds
    }

    /// Watches the directory for what is needed in it and no more.
    func watch(_ directory: FilePath) {
        let kinds = kinds(in: directory)
        guard watched[directory] != kinds else { return }
        do {
            if watched[directory] == nil {
                try source.watch(directory, for: kinds)
            } else {
                try source.setKinds(kinds, of: directory)
            }
            watched[directory] = kinds
            recordWatch(of: directory)
        } catch {
            // The source may have dropped its earlier watch.
            watched[directory] = nil
            recordWatchFailure(directory, error)
        }
    }

    /// True if something must be retried even if no event arrives.
    private var needsRetry: Bool { !unwatchable.isEmpty || !starved.isEmpty || !unwatchableDatabases.isEmpty }

    func scheduleRetry() {
        if !needsRetry {
            watchRetryAt = nil
            watchBackoff.reset()
        } else if watchRetryAt == nil {
            watchRetryAt = .now.advanced(by: watchBackoff.next())
        }
    }

    /// Records that the directory can't be watched. Commits in it go unnoticed, so its subscribers are sent a reset.
    func recordWatchFailure(_ directory: FilePath, _ error: any Error) {
        watched[directory] = nil
        let cause = (error as? SystemError)?.advice ?? "\(error)"
        let reason = "\(PrintablePath(directory)) can't be watched: \(cause)"
        let isNew = unwatchable.updateValue(reason, forKey: directory) == nil
        states.setUnwatchable(reason, directory)
        // A refused subscription leaves nothing behind; the next one is refused for the same reason.
        if loggedUnwatchable.insert(directory).inserted { log.write(.error, reason) }
        if isNew {
            for store in stores.values where store.directory == directory {
                store.lostEvents()
                if released[store.address] == nil { publish(.reset(.unreadable), of: store) }
            }
        }
        scheduleRetry()
    }

    /// Records that the directory is watched again. Commits made meanwhile were not published.
    private func recordWatch(of directory: FilePath) {
        if loggedUnwatchable.remove(directory) != nil {
            log.write(.notice, "\(PrintablePath(directory)) is watched now")
        }
        guard unwatchable.removeValue(forKey: directory) != nil else { return }
        states.setUnwatchable(nil, directory)
        for store in stores.values where store.directory == directory && released[store.address] == nil {
            poll(store, atLeast: .change(.unknown))
        }
    }

    /// Retries the failed watches: a limit may be raised, or a permission granted, without an event. The source reports
    /// each directory that it watches again.
    func retryWatches() {
        refreshWatches()
        for address in starved { resumeFollowing(address) }
        for store in unwatchableDatabases.keys.compactMap({ stores[$0] }) { watchDatabase(of: store) }
        if needsRetry { watchRetryAt = .now.advanced(by: watchBackoff.next()) }
    }

    /// Logs that a limit makes the store unreadable, once until it is readable again.
    func logLimit(of store: FollowedStore) {
        guard let limit = store.limit else {
            limited.remove(store.address)
            return
        }
        guard limited.insert(store.address).inserted else { return }
        log.write(.error, "\(PrintablePath(store.path)) can't be read: \(limit.message); \(limit.remedy)")
    }

    /// Checks all directories and polls all stores, whether or not an event arrived: file systems were mounted or
    /// unmounted, or somebody asked for it.
    package func recheckAll() {
        if !unwatchable.isEmpty { refreshWatches() }
        source.recheckPaths()
        for store in stores.values {
            // A file system may hide writers.
            hazards.request(store.address, isUrgent: true)
            if store.record(.database, .attributes) { poll(store) }
        }
    }
}
