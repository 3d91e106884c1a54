/// A hot journal whose program is gone. Readers roll its transaction back, which writes the database. If the journal is
/// removed, emptied or altered instead, they find what the transaction wrote.
struct AbandonedJournal {
    let journal: StoreFiles.Stamp
    /// The database's stamp beside it.
    let database: StoreFiles.Stamp

    /// Returns nil if there is nothing to roll back, or if the transaction may be under way.
    ///
    /// - Parameter stamp: The database's stamp, taken before.
    init?(_ files: StoreFiles, at stamp: StoreFiles.Stamp) throws {
        let journal = try files.journalStamp()
        guard try files.hasJournalRecords(), !files.isTransactionUnderWay() else { return nil }
        (self.journal, database) = (journal, stamp)
    }
}
