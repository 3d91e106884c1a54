import LinuxSystem
import SQLiteFormat

/// Tells which tables each commit changed: keeps the map of a store's pages at the commit that was told last, and takes
/// it from there to the next one by the log's frames.
///
/// Where it can't be proved that the frames at hand are all that were committed since, the map is given up, and a
/// survey makes another one.
struct TableTracker {
    private struct Map {
        var owners: PageMap
        /// The commit it stands for. Nil: no program had the store open then.
        var commit: WriteAheadIndex?
        /// The log that the commit is in, once frames were read from it.
        var log: WALFile?
        /// By which the session of that commit, or the time between two, is known; nil when that could not be told.
        var session: SideFileEventCounts?
        /// The index that it was read from is gone, and what is there now follows on it.
        var link = Link.same

        /// Whether it stands for all that was committed until the index was gone. `last`: what that said in the end.
        func hasAll(until last: WriteAheadIndex?) -> Bool {
            switch link {
            case .absent: true
            case .following: last.map { $0.commitCount == 0 && $0.lastFrame == 0 } ?? false
            case .same, .unknown:
                // Both stay when the log begins anew.
                last.map { $0.checksum == commit?.checksum && $0.commitCount == commit?.commitCount } ?? false
            }
        }
    }

    private enum Link {
        case same
        /// No index is there.
        case absent
        /// The one that is there was made next, and nothing of it was taken in.
        case following
        /// It isn't known what was committed before the one that is there was made.
        case unknown
    }

    private var map: Map?
    private(set) var changes: TableChanges?
    private var lastFailure: (any Error)?

    var hasMap: Bool { map != nil }

    /// Why there is no map.
    var failure: (any Error)? { hasMap ? nil : lastFailure }

    /// A change whose tables are not known.
    mutating func addUnknown() { add(.unknown) }

    /// What is to be told with the next change.
    mutating func add(_ more: TableChanges?) {
        guard let more else { return }
        changes = changes ?? .nothing
        changes?.add(more)
    }

    /// What was changed since the last call; nil when nothing was.
    mutating func takeChanges() -> TableChanges? {
        defer { changes = nil }
        return changes
    }

    mutating func discard(_ reason: any Error = Unattributable.gap) {
        if map != nil { lastFailure = reason }
        map = nil
    }

    /// `commit`: nil when the survey found the store without a log.
    mutating func begin(_ owners: PageMap, at commit: WriteAheadIndex?, session: SideFileEventCounts?) {
        map = Map(owners: owners, commit: commit, session: session, link: commit == nil ? .absent : .same)
        lastFailure = nil
    }

    // MARK: Commits

    /// Takes in what was committed up to `index`. `events`: those until now; asked for only when nothing better proves
    /// that no commit is missing.
    mutating func advance(to index: WriteAheadIndex, _ files: StoreFiles, events: () -> SideFileEventCounts?) {
        // Without its map in two places at once, it is changed in place.
        guard var current = map.take() else { return addUnknown() }
        if let commit = current.commit, WALPosition(commit) == WALPosition(index) {
            // It stands for that commit already, but not for how it came to it.
            map = current
            return addUnknown()
        }
        do {
            let transactions = try Self.transactions(&current, index, files, events)
            var names: Set<String> = []
            for transaction in transactions {
                let more = try current.owners.apply(transaction)
                if names.isEmpty { names = more } else { names.formUnion(more) }
            }
            // What made the index has written it, too.
            if current.link == .following { current.session = events() }
            current.commit = index
            current.link = .same
            map = current
            add(TableChanges(names, isComplete: true))
        } catch {
            lastFailure = error
            addUnknown()
        }
    }

    /// What was committed between the map's commit and the index's.
    private static func transactions(
        _ map: inout Map, _ index: WriteAheadIndex, _ files: StoreFiles, _ events: () -> SideFileEventCounts?
    ) throws -> [WALTransaction] {
        guard let open = files.log else { throw Unattributable.gap }
        // Committed, and the log begun anew: it has the former one's header until the next commit.
        if index.lastFrame == 0 {
            guard map.commit != nil, let log = try map.log ?? files.openLog() else { throw Unattributable.gap }
            return try former([], log, map, index, events)
        }
        let isSameLog = map.commit.map { $0.lastFrame > 0 && $0.salt == index.salt } ?? false
        let isKnownLog = isSameLog && map.log != nil && map.log === files.logFile
        guard let log = try isKnownLog ? map.log : log(of: index, files) else { throw Unattributable.gap }
        map.log = log
        if isSameLog, let commit = map.commit {
            return try WALFrames.transactions(log, after: commit.lastFrame, to: index, open)
        }
        let transactions = try WALFrames.transactions(log, after: 0, to: index, open)
        return try former(transactions, log, map, index, events) + transactions
    }

    /// The log that belongs to the index: where the one that is open is another session's, that which has its name.
    private static func log(of index: WriteAheadIndex, _ files: StoreFiles) throws -> WALFile {
        if let log = try files.openLog(), try log.belongs(to: index) { return log }
        guard let log = try files.openLog(anew: true), try log.belongs(to: index) else { throw Unattributable.gap }
        return log
    }

    /// What was committed in the former log, before the one that `found` is all of began; throws when that can't be told.
    private static func former(
        _ found: [WALTransaction], _ log: WALFile, _ map: Map, _ index: WriteAheadIndex,
        _ events: () -> SideFileEventCounts?
    ) throws -> [WALTransaction] {
        switch map.link {
        case .absent, .unknown: throw Unattributable.gap
        case .following:
            guard Int(index.commitCount) == found.count else { throw Unattributable.gap }
            return []
        case .same:
            guard let commit = map.commit else { throw Unattributable.gap }
            // Every commit moves this by one, until a program that finds the index damaged, or nobody else there, makes
            // it anew; that one truncates it.
            let missing = Int(index.commitCount &- commit.commitCount) - found.count
            guard missing >= 0 else { throw Unattributable.gap }
            // It had begun anew, without a frame yet.
            if missing == 0, commit.lastFrame == 0, commit.salt == index.salt { return [] }
            if missing == 0, try log.ended(at: WALPosition(commit), before: index) { return [] }
            guard let session = map.session, events() == session else { throw Unattributable.gap }
            if missing == 0 { return [] }
            guard commit.lastFrame > 0, WALFile.isNext(index.salt, after: commit.salt) else { throw Unattributable.gap }
            return try WALFrames.remaining(log, after: commit, count: missing)
        }
    }

    // MARK: Sessions

    /// The index has lost its name, and another one, or none, has taken its place. `last`: what it said in the end.
    /// `session`: which one it is now; nil when that can't be told. `changeCounter`: in the database's header now.
    mutating func sessionChanged(
        last: WriteAheadIndex?, hasIndex: Bool, session: SideFileEventCounts?, changeCounter: UInt32?
    ) {
        guard var current = map.take() else { return }
        lastFailure = Unattributable.gap
        guard current.hasAll(until: last), let former = current.session else { return }
        if hasIndex {
            // A program that wrote the store in rollback mode meanwhile has moved the counter.
            let isNext = session?.follows(former) == true && changeCounter == current.owners.changeCounter
            current.link = isNext ? .following : .unknown
            current.session = session
        } else {
            current.link = .absent
        }
        map = current
    }
}
