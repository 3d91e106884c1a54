import CSQLite
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Moves the content of a store's write-ahead log or hot journal into its database.
enum Quiescence {
    /// Opens the store through SQLite, which rolls back a hot journal and recovers a log, and checkpoints the whole log
    /// while no other connection can have the store open (`WALCheckpoint`).
    ///
    /// The log itself stays, empty. The holder of the lease removes it after another look, since a file of that name
    /// may arrive at any moment. A journal is hard-linked aside first: SQLite unlinks it by name.
    ///
    /// Throws `StoreTransfer.RetryReason.held` if another program uses the log.
    static func perform(_ store: StoreLocation, for transfer: Transfer) throws {
        try SuperJournal.check(of: store)
        let directory = store.directory
        let journalAside = SideFile.rollbackAside(transfer.id)
        try directory.removeFile(journalAside)
        if try directory.status(store.name.journal) != nil {
            try directory.link(store.name.journal, as: journalAside, in: directory)
        }
        try checkpoint(store, transfer.database)
        try directory.removeFile(journalAside)
    }

    private static func checkpoint(_ store: StoreLocation, _ database: FileIdentity) throws {
        do {
            let isHot = try RollbackJournal.isHot(store.name.journal, in: store.directory)
            try StoreWriteError.translating {
                if isHot { try rollBack(store) }
                try WALCheckpoint.perform(store)
            }
        } catch let error as StoreWriteError where [SQLITE_BUSY, SQLITE_LOCKED].contains(error.primaryCode) {
            throw StoreTransfer.RetryReason.held(database)
        }
    }

    /// Makes SQLite roll the journal back by a read. Not in exclusive mode: SQLite would then keep the journal,
    /// emptied.
    private static func rollBack(_ store: StoreLocation) throws {
        let connection = try StoreConnection(store, busyTimeout: .zero)
        try connection.execute("PRAGMA synchronous = FULL")
        try connection.execute("SELECT count(*) FROM sqlite_schema")
    }
}
