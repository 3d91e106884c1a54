import CLinux

/// The shortest path from a commit to its publication, for commits like the one before.
extension StoreObserver {
    package enum ProbeFinding {
        /// There is no commit yet.
        case nothing
        /// There is a commit. Publish `repeatedTables`, and call `confirmRepeatedCommit()` afterwards, and then
        /// `poll()`.
        case repeated
        /// There is a commit to other tables, or the probe isn't prepared. Look with `pollWALIndex()`.
        case other
    }

    /// True if a commit like the last one can be found by `findRepeatedCommit`.
    package var awaitsRepeatedCommit: Bool { probe != nil }

    /// Looks for a commit that changed the same tables as the one before.
    ///
    /// - Parameter isAnnounced: True if a write to the WAL was reported. Then it looks for some microseconds, because
    ///   the event precedes the commit.
    package func findRepeatedCommit(isAnnounced: Bool) -> ProbeFinding {
        guard probe != nil, touchedParts.isEmpty else { return .other }
        var until: ContinuousClock.Instant?
        while true {
            switch probe?.next(tracker.map) {
            case .repeated(let position, let commitCount):
                baseline.record(position, commitCount: commitCount)
                return .repeated
            case .other, nil: return .other
            case .nothing: break
            }
            guard isAnnounced else { return .nothing }
            let now = ContinuousClock.now
            if let until, now >= until {
                // The poll that follows needn't look for as long.
                _ = fastPath.indexWasRead(showsCommit: false)
                return .nothing
            }
            until = until ?? now.advanced(by: Self.spin)
            gs_cpu_relax()
        }
    }

    /// Advances the page map to the commit that was just published, and proves its tables by the written pages. The
    /// poll that follows reports the commit again if they are others.
    package func confirmRepeatedCommit() {
        leaveIdle()
        indexHasCommitted = true
        var isProven = false
        if let files, let index = try? files.readIndex(), WALPosition(index) == baseline.commit {
            tracker.advance(to: index, in: files)
            let found = tracker.needsEvents ? nil : tracker.takeChanges()
            isProven = found != nil && found == repeatedTables
            if !isProven { tracker.add(found) }
        }
        fastPath.commitWasPublished(isProven: isProven)
    }

    /// Prepares for another commit like the last one.
    func prepareProbe() {
        guard let files, !isUnreadable, backoff.isFresh, !tracker.needsEvents, tracker.changes == nil else {
            probe = nil
            return
        }
        let charge = tracker.lastCharge(at: baseline.commit, in: files)
        // Without a map, the tables of the next commit are unknown. A scan may be about to change that.
        guard wantsTables == (charge != nil) else {
            probe = nil
            return
        }
        if probe?.isValid(files, after: baseline.commit, trees: charge?.trees) == true { return }
        probe = CommitProbe(files, after: baseline.commit, trees: charge?.trees)
        repeatedTables = charge.map { TableChanges($0.names, isComplete: true) } ?? .unknown
    }
}
