extension StoreObserver {
    /// Discards the page map and cancels the scan, because the events no longer prove anything.
    func discardPageMap() {
        tracker.discard()
        scanSchedule.cancel()
    }

    /// Returns all counts so far if the open index is the one they end with, else nil.
    func sideFileEvents(_ files: StoreFiles) -> SideFileEventCounts? {
        guard let more = unrecordedEvents(), (try? files.isIndexCurrent()) == true else { return nil }
        return eventCounts + more
    }

    func sessionChanged(_ files: StoreFiles, _ former: WALIndexFile?) throws {
        scanSchedule.cancel()
        guard tracker.hasMap else { return }
        // Must happen before the program that created the WAL removes it.
        _ = try files.openWAL()
        tracker.sessionChanged(
            last: try former?.read(), hasIndex: files.walIndex != nil, session: sideFileEvents(files),
            changeCounter: try files.header()?.changeCounter)
    }

    /// Returns a scan to run on another thread and to pass to `adopt(_:)` afterwards. Returns nil if none is wanted or
    /// possible now.
    package func beginScan() -> PageMapScan? {
        guard wantsTables, !tracker.hasMap, scanSchedule.isDue, let files else { return nil }
        let index = try? files.readIndex()
        // A commit that is not published yet is published first.
        guard files.walIndex == nil || index.map({ !baseline.isBefore($0) }) == true,
            let now = sideFileEvents(files), let subject = try? files.scanSubject(at: index)
        else { return nil }
        let scan = PageMapScan(subject, now)
        scanSchedule.begin(scan)
        return scan
    }

    /// The time to request a scan again even if no event arrives until then.
    package var scanDue: ContinuousClock.Instant? { wantsTables && !tracker.hasMap ? scanSchedule.due : nil }

    /// True while a scan begun by `beginScan()` is unfinished.
    package var isScanning: Bool { scanSchedule.current != nil }

    /// Adopts the map of a finished scan. Does nothing if the scan was cancelled.
    package func adopt(_ scan: PageMapScan) {
        guard scanSchedule.current === scan, let result = scan.result else { return }
        switch result {
        case .failure(let error): scanSchedule.end(error)
        case .success(let pageMap):
            let isKnown = begin(pageMap, scan)
            scanSchedule.end(isKnown ? nil : Unattributable.disturbed)
        }
    }

    private func begin(_ pageMap: PageMap, _ scan: PageMapScan) -> Bool {
        guard let files else { return false }
        let now = sideFileEvents(files)
        guard let commit = scan.commit else {
            guard let now, files.walIndex == nil, now.isSameSession(as: scan.events) else { return false }
            tracker.begin(pageMap, at: nil, session: now)
            return true
        }
        tracker.begin(pageMap, at: commit, session: now)
        // Commits published meanwhile must not be published again. The map may lag behind the baseline but never be
        // ahead of it.
        guard let index = try? files.readIndex(), WALPosition(index) == baseline.commit,
            baseline.commit != WALPosition(commit)
        else { return true }
        let pending = tracker.takeChanges()
        tracker.advance(to: index, in: files) { sideFileEvents(files) }
        _ = tracker.takeChanges()
        tracker.add(pending)
        return tracker.hasMap
    }
}
