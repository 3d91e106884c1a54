import SQLiteFormat

/// The state of a store as of the last published commit.
struct CommitBaseline: Equatable {
    private(set) var commit = WALPosition.none
    /// The WAL index's commit count.
    private(set) var commitCount: UInt32 = 0
    var changeCounter: UInt32?
    /// The index that the WAL proved wrong. It reports nothing until somebody writes it.
    private(set) var overruledIndex: WriteAheadIndex?

    /// Records a commit that the index reports.
    mutating func record(_ commit: WALPosition, commitCount: UInt32) {
        (self.commit, self.commitCount) = (commit, commitCount)
        overruledIndex = nil
    }

    /// Records the last commit of a WAL whose `index` reports another one, or that has no index.
    mutating func record(_ commit: WALPosition, overruling index: WriteAheadIndex?) {
        self.commit = commit
        overrule(index)
    }

    /// Records that the WAL doesn't have what `index` reports.
    mutating func overrule(_ index: WriteAheadIndex?) {
        overruledIndex = index
        // Whoever recovers the index counts from 0.
        commitCount = index?.commitCount ?? 0
    }

    /// Records that the WAL has no commit any more, and that none was lost.
    mutating func recordEmptied(_ index: WriteAheadIndex?) {
        if let index, index.reports(.none) {
            record(WALPosition(index), commitCount: index.commitCount)
        } else {
            record(.none, overruling: index)
        }
    }

    /// True if the WAL proved this index wrong.
    func isOverruled(_ index: WriteAheadIndex) -> Bool { overruledIndex?.hasSameHeader(as: index) == true }

    /// True if the index holds a commit that is later than this baseline. The checksum changes with each commit and
    /// stays when the WAL is restarted. But after SQLite before 3.46 has spilled a transaction and rolled back to a
    /// savepoint, the checksum can have any value.
    func isBefore(_ index: WriteAheadIndex) -> Bool {
        if overruledIndex != nil, isOverruled(index) { return false }
        if index.lastFrame > 0 {
            // Whoever opens a WAL that was reset and not written since recovers its last commit.
            let isRecovered = commit.frame == 0 && commit.checksum == index.checksum && commit.checksum != .none
            return WALPosition(index) != commit && !isRecovered
        }
        return index.checksum != .none && index.checksum != commit.checksum || index.commitCount > commitCount
    }
}
