extension StoreObserver {
    /// What events prove is proved no more.
    func forgetTables(_ reason: Unattributable) {
        tracker.discard(reason)
        surveying.cancel()
    }

    /// All until now, when the index that is read is the one they end with; nil when that can't be told.
    func sideFileEvents(_ files: StoreFiles) -> SideFileEventCounts? {
        guard let more = unnotedEvents(), (try? files.isLogCurrent()) == true else { return nil }
        return events + more
    }

    func sessionChanged(_ files: StoreFiles, _ former: WALIndexFile?) throws {
        surveying.cancel()
        guard tracker.hasMap else { return }
        // Before the program that has made it removes it.
        _ = try files.openLog()
        tracker.sessionChanged(
            last: try former?.read(), hasIndex: files.log != nil, session: sideFileEvents(files),
            changeCounter: try files.header()?.changeCounter)
    }

    /// A survey to be run on another thread and then given to `adopt`; nil when none is wanted, or possible now.
    package func survey() -> PageMapScan? {
        guard wantsTables, !tracker.hasMap, surveying.isDue, let files else { return nil }
        let index = try? files.index()
        // What is committed and not told yet is told first.
        guard files.log == nil || index.map({ !known.isBefore($0) }) == true,
            let now = sideFileEvents(files), let subject = try? files.surveySubject(index)
        else { return nil }
        let survey = PageMapScan(subject, now)
        surveying.begin(survey)
        return survey
    }

    /// When to ask for a survey again although nothing may happen until then.
    package var surveyDue: ContinuousClock.Instant? { wantsTables && !tracker.hasMap ? surveying.due : nil }

    package var isSurveying: Bool { surveying.current != nil }

    /// Why it isn't found out which tables change; nil when it is, or nothing was tried.
    package var tablesFailure: (any Error)? { tracker.failure ?? surveying.failure }

    /// Takes what the survey has found; nothing when it was given up meanwhile.
    package func adopt(_ survey: PageMapScan) {
        guard surveying.current === survey, let result = survey.result else { return }
        switch result {
        case .failure(let error): surveying.end(error)
        case .success(let owners):
            let isKnown = begin(owners, survey)
            surveying.end(isKnown ? nil : Unattributable.disturbed)
        }
    }

    private func begin(_ owners: PageMap, _ survey: PageMapScan) -> Bool {
        guard let files else { return false }
        let now = sideFileEvents(files)
        guard let commit = survey.commit else {
            guard let now, files.log == nil, now.isSameSession(as: survey.events) else { return false }
            tracker.begin(owners, at: nil, session: now)
            return true
        }
        tracker.begin(owners, at: commit, session: now)
        // What was told meanwhile is not told again; the map may lag behind, but never run ahead.
        guard let index = try? files.index(), WALPosition(index) == known.commit, known.commit != WALPosition(commit)
        else { return true }
        let pending = tracker.takeChanges()
        tracker.advance(to: index, files) { sideFileEvents(files) }
        _ = tracker.takeChanges()
        tracker.add(pending)
        return tracker.hasMap
    }
}
