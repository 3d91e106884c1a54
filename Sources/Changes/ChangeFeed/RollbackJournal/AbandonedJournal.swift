/// A hot journal whose program is gone, and the database beside it.
///
/// Readers roll the transaction back, which writes the database and ends the journal. Whoever changes only one of the
/// two changes what readers find.
struct AbandonedJournal {
    private let journal: StoreFiles.Stamp
    private let database: StoreFiles.Stamp
    /// False if there is nothing to roll back.
    private let hasRecords: Bool

    /// Returns nil if the journal isn't hot.
    ///
    /// - Parameter stamp: The database's stamp, taken before.
    init?(_ files: StoreFiles, at stamp: StoreFiles.Stamp) throws {
        (journal, database) = (try files.journalStamp(), stamp)
        guard try files.isJournalHot() else { return nil }
        hasRecords = try files.hasJournalRecords()
    }

    /// True if readers find other content than before.
    ///
    /// - Parameters:
    ///   - now: The journal as it is now; nil if it isn't hot any more.
    ///   - stamp: The database's present stamp.
    func isOverruled(by now: AbandonedJournal?, at stamp: StoreFiles.Stamp) -> Bool {
        now?.journal == journal ? !database.isIdentical(to: stamp) : hasRecords && database == stamp
    }
}
