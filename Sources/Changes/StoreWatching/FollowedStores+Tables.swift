import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat

/// The answers to subscriptions that wait for a page map.
struct PendingAnswers {
    let until: ContinuousClock.Instant
    var answers: [() -> Void] = []

    /// Returns how long the answer may wait. Scanning some hundred megabytes takes half a second; the first changes of
    /// a larger store can't name their tables. A small store takes milliseconds, longer only while other programs use
    /// the processor.
    static func timeout(storeSize: Int64) -> Duration {
        storeSize <= smallStoreSize ? .seconds(2) : .milliseconds(500)
    }

    private static let smallStoreSize: Int64 = 16 << 20
}

/// The page maps of subscribed stores, from which changes get their table names.
extension FollowedStores {
    /// Has another thread scan the store if there is something to scan, and schedules a poll if that must wait.
    func scanTables(of store: FollowedStore) {
        if let scan = store.beginScan({ readQueuedEvents(of: store) }) {
            let isUnderWay = loop.scanner.perform { [loop, address = store.address] in
                scan.run()
                loop.perform { $0.adopt(scan, of: address) }
            }
            if !isUnderWay { store.wantsTables = false }
        } else {
            store.scheduleScan()
        }
        if store.pollAt == nil { pollScheduled.remove(store.address) } else { pollScheduled.insert(store.address) }
    }

    private func adopt(_ scan: PageMapScan, of address: StoreAddress) {
        if let store = stores[address] {
            store.adopt(scan) { readQueuedEvents(of: store) }
            scanTables(of: store)
            if store.isScanning { return }
        }
        sendPendingAnswers(of: address)
    }

    /// Follows the store for a subscriber that wants to know which tables change. Calls `answer` now, or once the page
    /// map is made.
    package func whenTablesAreKnown(of address: StoreAddress, _ answer: @escaping () -> Void) {
        guard waitsForScan(address) else { return answer() }
        pendingAnswers[address]?.answers.append(answer)
    }

    /// Returns true if an answer must wait in `pendingAnswers`.
    private func waitsForScan(_ address: StoreAddress) -> Bool {
        if pendingAnswers[address] != nil { return true }
        guard follow(address), let store = stores[address], !store.wantsTables else { return false }
        store.wantsTables = true
        guard isFollowed(address) else { return false }
        // A program that has just opened the store has created the files to read. A notice that a directory appeared
        // is handled too: as long as it waits, no scan can begin.
        _ = readQueuedEvents(of: store)
        if !unhandled.isEmpty { handle([]) }
        scanTables(of: store)
        guard store.isScanning else { return false }
        let timeout = PendingAnswers.timeout(storeSize: FileStatus(following: store.path)?.size ?? 0)
        pendingAnswers[address] = PendingAnswers(until: .now.advanced(by: timeout))
        return true
    }

    /// Calls `body` once the subscriptions that wait for the store's page map are answered.
    package func afterPendingAnswers(of address: StoreAddress, _ body: @escaping () -> Void) {
        guard pendingAnswers[address] != nil else { return body() }
        pendingAnswers[address]?.answers.append(body)
    }

    /// Answers the subscriptions that wait for the store's page map.
    package func sendPendingAnswers(of address: StoreAddress) {
        for answer in pendingAnswers.removeValue(forKey: address)?.answers ?? [] { answer() }
    }

    /// Takes the store's present content as the baseline, as `FollowedStore.attach` does, and scans its tables again.
    func attach(_ store: FollowedStore) {
        store.attach()
        watchDatabase(of: store)
        scanTables(of: store)
    }

    /// Reads the events that the kernel has queued, to be handled in turn. Returns those about the store's side files;
    /// nil if events were lost, or if they don't end.
    func readQueuedEvents(of store: FollowedStore) -> SideFileEventCounts? {
        for _ in 0..<Self.maximumReads {
            guard let notices = try? source.next(timeout: .zero) else { return nil }
            if notices.isEmpty { return sideFileEvents(of: store) }
            unhandled += notices
        }
        return nil
    }

    private static let maximumReads = 64

    private func sideFileEvents(of store: FollowedStore) -> SideFileEventCounts? {
        var found = SideFileEventCounts()
        for notice in unhandled {
            switch notice {
            case .event(let event):
                for (followed, part) in parts[event.directory]?[event.name] ?? [] where followed === store {
                    found.record(part, event.kinds)
                }
            case .overflow, .directoryAppeared, .directoryVanished, .unwatchable: return nil
            case .directoryChanged, .woken: break
            }
        }
        return found
    }
}

extension SideFileEventCounts {
    fileprivate mutating func record(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        record(part, created: !kinds.isDisjoint(with: .arrived), modified: kinds.contains(.modified))
    }
}
