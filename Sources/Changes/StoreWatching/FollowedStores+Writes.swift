import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SystemPackage

/// The fast path for writes to logs, and the watches on single files.
extension FollowedStores {
    /// Publishes a commit right after a write to a log, the most frequent event: a program that has written a log has
    /// mostly committed. All other work comes after the commit was published, with `handle`.
    func publishFastPath(_ index: Int) {
        guard let store = fastPathStores[index] else { return }
        expectedStore = store === lastWrittenStore ? store : nil
        lastWrittenStore = store
        if unhandled.isEmpty {
            switch store.findRepeatedChange(isAnnounced: true) {
            case .repeated: return publishRepeatedChange(of: store)
            case .nothing: return unhandled.append(writeEvent(of: store))
            case .other: break
            }
        }
        // An earlier event is handled first.
        if unhandled.isEmpty, let event = store.pollWALIndex({ readQueuedEvents(of: store) }) {
            receiver.publish(event, of: store.address)
            readerYield.yield()
        }
        // The full poll follows. This event came before those that were just read.
        unhandled.insert(writeEvent(of: store), at: 0)
    }

    /// Publishes a commit of the store that was written last, if it is like the one before. Called when an event has
    /// come, before it is read: mostly, it is the event of that commit. Returns true if there was a commit.
    func publishExpectedCommit() -> Bool {
        guard unhandled.isEmpty, let store = expectedStore,
            case .repeated = store.findRepeatedChange(isAnnounced: false)
        else { return false }
        publishRepeatedChange(of: store)
        return true
    }

    /// Publishes a commit that is like the one before. The full poll follows, with `handle`.
    private func publishRepeatedChange(of store: FollowedStore) {
        receiver.publish(repeated: store.repeatedChange ?? .change(.unknown), of: store)
        readerYield.yield()
        store.confirmRepeatedChange()
        unhandled.insert(writeEvent(of: store), at: 0)
    }

    private func writeEvent(of store: FollowedStore) -> Notice {
        .event(DirectoryEvent(directory: store.directory, name: store.name.wal, kinds: .modified))
    }

    /// Suspends the inotify modify events of busy directories for a while. An event per write to a log costs a busy
    /// writer 7 % of its time. A poll afterwards finds what was written.
    func suspendModifyEvents(for time: Duration) throws {
        var suspended: [FilePath: [FollowedStore]] = [:]
        for address in busy {
            guard let directory = stores[address]?.directory, suspended[directory] == nil else { continue }
            suspended[directory] = stores(in: directory)
        }
        let all = suspended.values.joined()
        guard all.count <= Self.maximumSuspendedStores else { return pause(time) }
        try source.withModifyEventsSuspended(except: suspended.mapValues { $0.flatMap(\.filesBesideLog) }) {
            pause(time)
        }
        unhandled += all.map(writeEvent)
    }

    /// Each of their files costs two system calls and a poll.
    private static let maximumSuspendedStores = 8

    private func stores(in directory: FilePath) -> [FollowedStore] {
        let files = parts[directory, default: [:]].values.joined()
        return files.compactMap { store, part in part == .database ? store : nil }
    }

    /// Reports writes to the store's log by a fast-path index. If two stores share one log name, events take the
    /// ordinary way for both.
    func addFastPath(for store: FollowedStore) {
        let isShared = (parts[store.directory]?[store.name.wal]?.count ?? 0) > 1
        let index = freeFastPathIndexes.popLast() ?? fastPathStores.count
        if index == fastPathStores.count { fastPathStores.append(store) } else { fastPathStores[index] = store }
        store.fastPathIndex = index
        source.setFastPath(store.name.wal, in: store.directory, index: isShared ? nil : index)
    }

    func removeFastPath(of store: FollowedStore) {
        source.setFastPath(store.name.wal, in: store.directory, index: nil)
        if expectedStore === store { expectedStore = nil }
        if lastWrittenStore === store { lastWrittenStore = nil }
        guard let index = store.fastPathIndex.take() else { return }
        fastPathStores[index] = nil
        freeFastPathIndexes.append(index)
    }

    /// Watches the database by itself if it has several hard links: a directory's watch reports no write through
    /// another link.
    func watchDatabase(of store: FollowedStore) {
        guard store.watchedDatabase != store.sharedDatabase || unwatchableDatabases[store.address] != nil else {
            return
        }
        do {
            try source.watchFile(store.name.database, in: store.directory, enabled: store.sharedDatabase != nil)
            store.watchedDatabase = store.sharedDatabase
            recordDatabaseWatch(of: store)
        } catch {
            // It has lost its name, which an event reports.
            if (error as? SystemError)?.errno == .noSuchFileOrDirectory { return }
            recordDatabaseWatchFailure(store, error)
        }
    }

    /// Records that writes through other links of the file go unnoticed, and sends subscribers a reset. Each poll and a
    /// timer retry the watch.
    private func recordDatabaseWatchFailure(_ store: FollowedStore, _ error: any Error) {
        let cause = (error as? SystemError)?.advice ?? "\(error)"
        let reason =
            "can't watch hard links of \(PrintablePath(store.path)); writes through them will be missed: \(cause)"
        guard unwatchableDatabases.updateValue(reason, forKey: store.address) == nil else { return }
        log.write(.error, reason)
        if released[store.address] == nil { publish(.reset(.unreadable), of: store) }
        scheduleRetry()
    }

    private func recordDatabaseWatch(of store: FollowedStore) {
        guard unwatchableDatabases.removeValue(forKey: store.address) != nil else { return }
        log.write(.notice, "\(PrintablePath(store.path)) is watched now")
        // Commits made meanwhile were not published.
        poll(store, atLeast: .change(.unknown))
    }
}
