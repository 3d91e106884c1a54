import SQLiteFormat

/// What was told last.
struct CommitBaseline: Equatable {
    var commit = WALPosition.none
    /// The index's.
    var commitCount: UInt32 = 0
    var changeCounter: UInt32?

    /// Whether something was committed since. The checksum moves with each commit and stays when the log begins anew;
    /// but where SQLite before 3.46 has written a transaction in part and then undone a savepoint, it may be any.
    func isBefore(_ index: WriteAheadIndex) -> Bool {
        if index.lastFrame > 0 { return WALPosition(index) != commit }
        return index.checksum != .none && index.checksum != commit.checksum || index.commitCount > commitCount
    }
}
