import SQLiteFormat

extension StoreObserver {
    /// Discards the page map and cancels the scan, because the events no longer prove anything.
    func discardPageMap() {
        detector.expectNothing()
        tracker.discard()
        rollbackTables = nil
        scanSchedule.cancel()
    }

    /// Returns all counts so far if the open index is the one they end with, else nil. `unrecorded`: those not recorded
    /// yet, nil if events were lost.
    private func counts(_ files: StoreFiles, adding unrecorded: SideFileEventCounts?) -> SideFileEventCounts? {
        guard let unrecorded, (try? files.isIndexCurrent()) == true else { return nil }
        return eventCounts + unrecorded
    }

    /// Names the tables that waited for the events, as far as they prove them.
    func settleTables(with events: SideFileEventCounts?) {
        guard let files else { return tracker.discard() }
        tracker.settle(counts(files, adding: events), in: files)
    }

    func sessionChanged(_ files: StoreFiles, _ former: WALIndexFile?) throws {
        scanSchedule.cancel()
        guard tracker.hasMap else { return }
        // Must happen before the program that created the WAL removes it.
        _ = try files.openWAL()
        tracker.sessionChanged(
            last: try former?.read(), hasIndex: files.walIndex != nil,
            changeCounter: try files.header()?.changeCounter)
    }

    /// True if `beginScan(with:)` should be called.
    package var wantsScan: Bool { wantsTables && !hasMap && scanSchedule.isDue && files != nil }

    /// True if the tables of the next commit can be named.
    package var hasMap: Bool { tracker.hasMap || rollbackTables != nil }

    /// Returns a scan to run on another thread and to adopt afterwards; nil if none can be made now. A session that
    /// begins after the events were read disturbs it.
    package func beginScan(_ queuedEvents: EventReader) -> PageMapScan? {
        defer { releaseUnusedStore() }
        guard wantsScan, let files else { return nil }
        watchJournals(files)
        let events = queuedEvents()
        let index = try? files.readIndex()
        // A commit that is not published yet is published first.
        guard files.walIndex == nil || index.map({ !baseline.isBefore($0) && !baseline.isOverruled($0) }) == true,
            let now = counts(files, adding: events),
            let subject = try? files.scanSubject(at: index, holdsJournals: journals != nil),
            subject.changeCounter == nil || subject.changeCounter == baseline.changeCounter
        else { return nil }
        let scan = PageMapScan(subject, now)
        scanSchedule.begin(scan)
        return scan
    }

    /// Holds the journals of a store in rollback mode, from before it is read.
    private func watchJournals(_ files: StoreFiles) {
        guard files.walIndex == nil, (try? files.header()?.journalMode) == .rollback else { return journals = nil }
        if journals == nil { journals = try? JournalWatch(directory, name) }
        journals?.begin()
    }

    /// The time to poll, and to request a scan again, even if no event arrives until then. Only later commits can name
    /// all their tables.
    package var scanDue: ContinuousClock.Instant? {
        guard wantsTables else { return nil }
        // One that has passed waits for a writer, and for the events of its end.
        return hasMap ? rollbackTables?.catchUpDue.flatMap { $0 > .now ? $0 : nil } : scanSchedule.due
    }

    /// The time from which a commit in rollback mode can name all its tables, if a poll precedes it. Nil if it can't.
    package var comparisonDue: ContinuousClock.Instant? { rollbackTables.map { $0.catchUpDue ?? $0.notBefore } }

    /// True while a scan begun by `beginScan()` is unfinished.
    package var isScanning: Bool { scanSchedule.current != nil }

    /// Adopts the map of a finished scan. Does nothing if the scan was cancelled.
    package func adopt(_ scan: PageMapScan, _ queuedEvents: EventReader) {
        defer { releaseUnusedStore() }
        guard scanSchedule.current === scan, let result = scan.result else { return }
        switch result {
        case .failure(let error): scanSchedule.end(error)
        case .success(let found):
            // Must come before the events are read.
            let index = try? files?.readIndex()
            let isKnown = begin(scan, found, at: index, with: queuedEvents())
            scanSchedule.end(isKnown ? nil : Unattributable.disturbed)
        }
    }

    /// Begins to track tables with the map that the scan found. `index` was read before the events.
    private func begin(
        _ scan: PageMapScan, _ found: PageMapScan.Finding, at index: WriteAheadIndex?, with events: SideFileEventCounts?
    ) -> Bool {
        guard let files else { return false }
        if let stamp = found.stamp {
            // A commit that isn't published yet may be in what was read.
            guard let counter = scan.changeCounter, counter == baseline.changeCounter,
                (try? files.isIndexCurrent()) == true, files.walIndex == nil,
                (try? files.isUnwritten(since: counter)) == true,
                stamp == (try? files.stamp())
            else { return false }
            rollbackTables = RollbackTables(found.pageMap, found.digests, journals, at: counter)
            return true
        }
        let now = counts(files, adding: events)
        guard let commit = scan.commit else {
            guard let now, files.walIndex == nil, now.isSameSession(as: scan.events) else { return false }
            tracker.begin(found.pageMap, at: nil, session: now)
            return true
        }
        tracker.begin(found.pageMap, at: commit, session: now)
        // Commits published meanwhile must not be published again. The map may lag behind the baseline but never be
        // ahead of it.
        guard let index, WALPosition(index) == baseline.commit, baseline.commit != WALPosition(commit)
        else { return true }
        let pending = tracker.takeChanges()
        tracker.advance(to: index, in: files)
        tracker.settle(now, in: files)
        _ = tracker.takeChanges()
        tracker.add(pending)
        return tracker.hasMap
    }
}
