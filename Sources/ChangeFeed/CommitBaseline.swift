import SQLiteFormat

/// The state of a store as of the last published commit.
struct CommitBaseline: Equatable {
    var commit = WALPosition.none
    /// The WAL index's commit count.
    var commitCount: UInt32 = 0
    var changeCounter: UInt32?

    /// True if the index holds a commit that is later than this baseline. The checksum changes with each commit and
    /// stays when the WAL is restarted. But after SQLite before 3.46 has spilled a transaction and rolled back to a
    /// savepoint, the checksum can have any value.
    func isBefore(_ index: WriteAheadIndex) -> Bool {
        if index.lastFrame > 0 { return WALPosition(index) != commit }
        return index.checksum != .none && index.checksum != commit.checksum || index.commitCount > commitCount
    }
}
