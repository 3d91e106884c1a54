import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SystemPackage

/// Writes to the followed stores' files that are not found in the way of all events.
extension FollowedStores {
    /// The short way for what happens most: a program that has written a log has mostly committed. All else comes after the
    /// commit was told, with `handle`.
    func tellAhead(_ mark: Int) {
        guard let store = marked[mark] else { return }
        let event = unhandled.isEmpty ? store.lookAhead() : nil
        if let event { hub.publish(event, of: store.address) }
        ahead = (store, event)
    }

    /// What was left for after `tellAhead`.
    func takeAhead(_ touched: inout Set<StoreAddress>) {
        guard let (store, event) = ahead.take() else { return }
        if let event { onEvent(event, store.address) }
        if store.note(.wal, .modified) { touched.insert(store.address) }
    }

    /// Lets writers that never rest go on for a while without an event for each write to a log, which cost them 7 of 100 parts of
    /// their time. What they have written is found by a look.
    func rest(_ time: Duration) throws {
        var resting: [FilePath: [FollowedStore]] = [:]
        for address in busy {
            guard let directory = stores[address]?.directory, resting[directory] == nil else { continue }
            resting[directory] = followed(in: directory)
        }
        let all = resting.values.joined()
        guard all.count <= Self.mostResting else { return pause(time) }
        try source.rest(hearing: resting.mapValues { $0.flatMap(\.filesBesideLog) }) { pause(time) }
        unhandled += all.map { .event(DirectoryEvent(directory: $0.directory, name: $0.name.wal, kinds: .modified)) }
    }

    /// Each of their files takes two system calls and a look.
    private static let mostResting = 8

    private func followed(in directory: FilePath) -> [FollowedStore] {
        let files = parts[directory, default: [:]].values.joined()
        return files.compactMap { store, part in part == .database ? store : nil }
    }

    /// Two stores may have one log's name: then all that comes is for both.
    func mark(_ store: FollowedStore) {
        let isShared = (parts[store.directory]?[store.name.wal]?.count ?? 0) > 1
        let free = marked.firstIndex { $0 == nil }
        if free == nil { marked.append(nil) }
        let mark = free ?? marked.count - 1
        marked[mark] = store
        store.writeMark = mark
        source.mark(store.name.wal, in: store.directory, as: isShared ? nil : mark)
    }

    func unmark(_ store: FollowedStore) {
        source.mark(store.name.wal, in: store.directory, as: nil)
        if let mark = store.writeMark { marked[mark] = nil }
    }

    /// A directory's watch doesn't hear what is written through another name of a file.
    func watchDatabase(of store: FollowedStore) {
        guard store.watchedDatabase != store.sharedDatabase || unheardDatabases[store.address] != nil else { return }
        do {
            try source.watch(store.name.database, in: store.directory, alone: store.sharedDatabase != nil)
            store.watchedDatabase = store.sharedDatabase
            heardAgain(store)
        } catch {
            // It has lost its name: that is told of.
            if (error as? SystemError)?.errno == .noSuchFileOrDirectory { return }
            lose(store, error)
        }
    }

    /// What is written through another name of the file goes unnoticed, and who is subscribed hears that. It is tried
    /// again with each look, and now and then.
    private func lose(_ store: FollowedStore, _ error: any Error) {
        let cause = (error as? SystemError)?.advice ?? "\(error)"
        let reason = "\(PrintablePath(store.path)) has other names, and can't be watched by itself: \(cause)"
        guard unheardDatabases.updateValue(reason, forKey: store.address) == nil else { return }
        log.error("\(reason)")
        if released[store.address] == nil { publish(.reset(.unreadable), of: store) }
        scheduleRetry()
    }

    private func heardAgain(_ store: FollowedStore) {
        guard unheardDatabases.removeValue(forKey: store.address) != nil else { return }
        log.notice("\(PrintablePath(store.path)) is watched now")
        // What was committed meanwhile was not told.
        look(store, atLeast: .change(.unknown))
    }
}
