import LinuxSystem
import SQLiteFormat

/// Determines the tables that each commit changed. It keeps a page map of the last published commit and advances it to
/// the next one by the WAL's frames.
///
/// If the frames at hand are not provably all that was committed since, it discards the map, and a scan makes another
/// one.
struct TableTracker {
    /// A class: to look at it copies nothing, and to change it neither.
    final class TrackedMap {
        // The observer's thread uses it alone. It is read between a commit and its line.
        @exclusivity(unchecked) var pageMap: PageMap
        /// The commit that the map describes. Nil if no program had the store open then.
        fileprivate var commit: WriteAheadIndex?
        /// The WAL that contains the commit, once frames were read from it.
        fileprivate var log: WALFile?
        /// The counts that identify the commit's session, or the time between two sessions. Nil if they are unknown.
        fileprivate var session: SideFileEventCounts?
        /// The relation between the commit's index and the one that exists now.
        fileprivate var continuity = IndexContinuity.same

        fileprivate init(
            _ pageMap: PageMap, commit: WriteAheadIndex?, session: SideFileEventCounts?, continuity: IndexContinuity
        ) {
            self.pageMap = pageMap
            self.commit = commit
            self.session = session
            self.continuity = continuity
        }

        /// True if the map includes every commit up to the index's removal. `last` is the index's final state.
        fileprivate func hasAll(until last: WriteAheadIndex?) -> Bool {
            switch continuity {
            case .absent: true
            case .following: last.map { $0.commitCount == 0 && $0.lastFrame == 0 } ?? false
            case .same, .unknown:
                // Both values stay when the WAL is restarted.
                last.map { $0.checksum == commit?.checksum && $0.commitCount == commit?.commitCount } ?? false
            }
        }
    }

    fileprivate enum IndexContinuity {
        case same
        /// No index exists.
        case absent
        /// The present index was created next, and none of its commits were applied.
        case following
        /// There may have been commits before the present index was created.
        case unknown
    }

    /// The side-file events, as far as they are known.
    private enum KnownEvents {
        /// Some may be queued that came before what was read.
        case unread
        /// The counts up to a time after the reading; nil if they are unknown.
        case read(SideFileEventCounts?)
    }

    /// The events must be read before the tables can be named.
    private struct EventsNeeded: Error {}

    /// The steps that wait for the events, in their order.
    private struct Deferred {
        /// The beginning of the present index's session.
        var session: SessionStart?
        /// The commit to advance to.
        var commit: WriteAheadIndex?
    }

    private struct SessionStart {
        /// The change counter in the database's header after the present index was opened.
        let changeCounter: UInt32?
    }

    private(set) var map: TrackedMap?
    private var deferred = Deferred()
    private(set) var changes: TableChanges?

    var hasMap: Bool { map != nil }

    /// True if only the events that are queued by now can prove that no session came in between. Without the proof the
    /// tables are unknown.
    var needsEvents: Bool { deferred.session != nil || deferred.commit != nil }

    /// Adds a change whose tables are unknown.
    mutating func addUnknown() { add(.unknown) }

    /// Adds changes that the next publication reports.
    mutating func add(_ more: TableChanges?) {
        guard let more else { return }
        changes = changes ?? .nothing
        changes?.add(more)
    }

    /// Returns the changes since the last call, or nil if there were none.
    mutating func takeChanges() -> TableChanges? {
        defer { changes = nil }
        return changes
    }

    mutating func discard() {
        map = nil
        if deferred.commit != nil { addUnknown() }
        deferred = Deferred()
    }

    /// Returns the trees that were charged together last, and the tables that own them, if the map describes this
    /// commit in the open WAL.
    func lastCharge(at commit: WALPosition, in files: StoreFiles) -> (trees: [Int], names: Set<ExactName>)? {
        guard let map, map.continuity == .same, map.log != nil, map.log === files.wal,
            map.commit.map(WALPosition.init) == commit
        else { return nil }
        return map.pageMap.lastCharge
    }

    /// Returns the page map if it describes this commit, which an index reports, and has at most so many pages.
    func pageMap(at commit: WALPosition, limit: UInt32) -> PageMap? {
        guard let map, map.continuity == .same, !needsEvents, map.commit.map(WALPosition.init) == commit,
            map.pageMap.pageCount <= limit
        else { return nil }
        return map.pageMap
    }

    /// Starts with the map of a scan. `commit` is nil if the scan found the store without a WAL.
    mutating func begin(_ pageMap: PageMap, at commit: WriteAheadIndex?, session: SideFileEventCounts?) {
        map = TrackedMap(pageMap, commit: commit, session: session, continuity: commit == nil ? .absent : .same)
    }

    // MARK: Commits

    /// Applies the commits up to `index`. If nothing cheaper proves that none is missing, that waits for `settle`.
    mutating func advance(to index: WriteAheadIndex, in files: StoreFiles) {
        let isApplied = deferred.session == nil && apply(index, in: files, .unread)
        // What was deferred before is included.
        deferred.commit = isApplied ? nil : index
    }

    /// Completes what waits for the events. `events`: the counts up to a time after the last `advance` and
    /// `sessionChanged`; nil if they are unknown.
    mutating func settle(_ events: SideFileEventCounts?, in files: StoreFiles) {
        let steps = deferred
        deferred = Deferred()
        if let start = steps.session { begin(start, identifiedBy: events) }
        if let index = steps.commit { _ = apply(index, in: files, .read(events)) }
    }

    /// Returns false, and changes nothing, if the events are needed and were not read.
    private mutating func apply(_ index: WriteAheadIndex, in files: StoreFiles, _ events: KnownEvents) -> Bool {
        // It is kept only if everything succeeds.
        guard let current = map.take() else {
            addUnknown()
            return true
        }
        if let commit = current.commit, WALPosition(commit) == WALPosition(index) {
            // The map already describes that commit, but not the way to it.
            map = current
            addUnknown()
            return true
        }
        do {
            // The program that created the index has also written it.
            if current.continuity == .following {
                guard case .read(let counts) = events else { throw EventsNeeded() }
                current.session = counts
            }
            let transactions = try Self.transactions(from: current, to: index, in: files, events: events)
            var names: Set<ExactName> = []
            for transaction in transactions {
                let more = try current.pageMap.apply(transaction)
                if names.isEmpty { names = more } else { names.formUnion(more) }
            }
            current.commit = index
            current.continuity = .same
            map = current
            add(TableChanges(names, isComplete: true))
        } catch is EventsNeeded {
            map = current
            return false
        } catch {
            addUnknown()
        }
        return true
    }

    /// Returns the transactions between the map's commit and that of the index.
    private static func transactions(
        from map: TrackedMap, to index: WriteAheadIndex, in files: StoreFiles, events: KnownEvents
    ) throws -> [WALTransaction] {
        guard let open = files.walIndex else { throw Unattributable.gap }
        // The WAL was restarted after the commit. It keeps the former header until the next commit.
        if index.lastFrame == 0 {
            guard map.commit != nil, let log = try map.log ?? files.openWAL() else { throw Unattributable.gap }
            return try transactionsInFormerLog(before: [], log: log, map: map, index: index, events: events)
        }
        let isSameLog = map.commit.map { $0.lastFrame > 0 && $0.salt == index.salt } ?? false
        let isKnownLog = isSameLog && map.log != nil && map.log === files.wal
        guard let log = try isKnownLog ? map.log : wal(of: index, in: files) else { throw Unattributable.gap }
        map.log = log
        if isSameLog, let commit = map.commit {
            return try WALFrames.transactions(log, after: commit.lastFrame, to: index, index: open)
        }
        let transactions = try WALFrames.transactions(log, after: 0, to: index, index: open)
        return try transactionsInFormerLog(before: transactions, log: log, map: map, index: index, events: events)
            + transactions
    }

    /// Returns the WAL that belongs to the index. If the open one is another session's, it opens the one that has the
    /// name.
    private static func wal(of index: WriteAheadIndex, in files: StoreFiles) throws -> WALFile {
        if let log = try files.openWAL(), try log.belongs(to: index) { return log }
        guard let log = try files.openWAL(reopening: true), try log.belongs(to: index) else { throw Unattributable.gap }
        return log
    }

    /// Returns the transactions of the former WAL that precede the complete content `found` of the present one. Throws
    /// if they can't be determined.
    private static func transactionsInFormerLog(
        before found: [WALTransaction], log: WALFile, map: TrackedMap, index: WriteAheadIndex, events: KnownEvents
    ) throws -> [WALTransaction] {
        switch map.continuity {
        case .absent, .unknown: throw Unattributable.gap
        case .following:
            guard Int(index.commitCount) == found.count else { throw Unattributable.gap }
            return []
        case .same:
            guard let commit = map.commit else { throw Unattributable.gap }
            // Each commit increments this count, until a program that finds the index damaged, or nobody else
            // connected, recreates the index. That program truncates it.
            let missing = Int(index.commitCount &- commit.commitCount) - found.count
            guard missing >= 0 else { throw Unattributable.gap }
            // The WAL was restarted and had no frame yet.
            if missing == 0, commit.lastFrame == 0, commit.salt == index.salt { return [] }
            if missing == 0, try log.hasEnded(at: WALPosition(commit), before: index) { return [] }
            guard let session = map.session else { throw Unattributable.gap }
            guard case .read(let counts) = events else { throw EventsNeeded() }
            guard counts == session else { throw Unattributable.gap }
            if missing == 0 { return [] }
            guard commit.lastFrame > 0, WALFile.isNextSalt(index.salt, after: commit.salt) else {
                throw Unattributable.gap
            }
            return try WALFrames.transactionsInFormerLog(log, after: commit, count: missing)
        }
    }

    // MARK: Sessions

    /// Records that the index has lost its name and that another index or none has taken its place. `last` is the
    /// former index's final state. `changeCounter` is the one in the database's header now. What the present index's
    /// session is waits for `settle`.
    mutating func sessionChanged(last: WriteAheadIndex?, hasIndex: Bool, changeCounter: UInt32?) {
        guard let current = map else { return }
        guard current.hasAll(until: last), current.session != nil else { return discard() }
        if hasIndex {
            deferred.session = SessionStart(changeCounter: changeCounter)
        } else {
            map?.continuity = .absent
        }
    }

    private mutating func begin(_ start: SessionStart, identifiedBy session: SideFileEventCounts?) {
        guard let current = map, let former = current.session else { return }
        // A program that wrote the store in rollback mode meanwhile has incremented the counter.
        let isNext = session?.follows(former) == true && start.changeCounter == current.pageMap.changeCounter
        map?.continuity = isNext ? .following : .unknown
        map?.session = session
    }
}
