import CLinux
import SQLiteFormat

/// The looks at a WAL for its next commit.
extension StoreObserver {
    package enum ProbeFinding {
        /// There is no commit yet.
        case nothing
        /// There is a commit. Publish `expectedTables`, and call `confirmRepeatedCommit()` afterwards, and then
        /// `poll()`.
        case repeated
        /// There is a commit to other tables, or the probe isn't prepared. Look with `pollWALIndex()`.
        case other
    }

    /// The tables of another commit like the last one; nil if `findRepeatedCommit` can't find it.
    package var expectedTables: TableChanges? { detector.expectedTables }

    /// Looks for a commit that changed the same tables as the one before.
    ///
    /// - Parameter isAnnounced: True if a write to the WAL was reported. Then it looks for some microseconds, because
    ///   the event precedes the commit.
    package func findRepeatedCommit(isAnnounced: Bool) -> ProbeFinding {
        guard touchedParts.isEmpty else { return .other }
        var until: ContinuousClock.Instant?
        while true {
            switch detector.probeNext(tracker.map) {
            case .repeated(let position, let commitCount):
                baseline.record(position, commitCount: commitCount)
                return .repeated
            case .other: return .other
            case .nothing: break
            }
            guard isAnnounced else { return .nothing }
            let now = ContinuousClock.now
            if let until, now >= until {
                // The poll that follows needn't look for as long.
                _ = detector.recordRead(showsCommit: false)
                return .nothing
            }
            until = until ?? now.advanced(by: Self.spin)
            gs_cpu_relax()
        }
    }

    /// Advances the page map to the commit that was just published, and proves its tables by the written pages. The
    /// poll that follows reports the commit again if they are others.
    package func confirmRepeatedCommit() {
        idle = .inUse
        indexHasCommitted = true
        var isProven = false
        if let files, let index = try? files.readIndex(), WALPosition(index) == baseline.commit {
            tracker.advance(to: index, in: files)
            let found = tracker.needsEvents ? nil : tracker.takeChanges()
            isProven = found != nil && found == expectedTables
            if !isProven { tracker.add(found) }
        }
        detector.recordProbed(isProven: isProven)
    }

    /// Prepares for another commit like the last one.
    func prepareProbe() {
        guard let files, !isUnreadable, backoff.isFresh, !tracker.needsEvents, tracker.changes == nil else {
            return detector.expectNothing()
        }
        let charge = tracker.lastCharge(at: baseline.commit, in: files)
        // Without a map, the tables of the next commit are unknown. A scan may be about to change that.
        guard wantsTables == (charge != nil) else { return detector.expectNothing() }
        detector.expect(after: baseline.commit, charge, in: files)
    }

    // MARK: The wal-index

    /// Reads the events that the kernel has queued by now, which are recorded later. Returns those of the store's side
    /// files, or nil if events were lost. They prove that a change is complete after a program has reopened the store.
    package typealias EventReader = () -> SideFileEventCounts?

    /// Spins for some microseconds for the first visible commit after a write to the WAL alone. Publish the tables that
    /// it returns, then call `poll()` in any case. Nil if no commit is visible yet, or a full poll is needed.
    package func pollWALIndex(_ queuedEvents: EventReader) -> TableChanges? {
        guard touchedParts.isEmpty, !isUnreadable, backoff.isFresh, let files, files.walIndex != nil,
            let showsCommit = try? awaitCommit(files)
        else { return nil }
        idle = .inUse
        guard detector.recordRead(showsCommit: showsCommit) else { return nil }
        if tracker.needsEvents { settleTables(with: queuedEvents()) }
        return tracker.takeChanges() ?? .unknown
    }

    func awaitCommit(_ files: StoreFiles) throws -> Bool {
        if try hasCommitted(files) { return true }
        let until = ContinuousClock.now.advanced(by: Self.spin)
        while ContinuousClock.now < until {
            gs_cpu_relax()
            if try hasCommitted(files) { return true }
        }
        return false
    }

    static let spin = Duration.microseconds(120)

    func hasCommitted(_ files: StoreFiles) throws -> Bool {
        guard let index = try files.readIndex(), baseline.isBefore(index) else { return false }
        baseline.record(WALPosition(index), commitCount: index.commitCount)
        indexHasCommitted = true
        tracker.advance(to: index, in: files)
        return true
    }
}
