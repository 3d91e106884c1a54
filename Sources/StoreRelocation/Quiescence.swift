import GRDB
import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// Brings what is in a store's write-ahead log or hot journal into its database.
enum Quiescence {
    /// The log can't be emptied: another program uses it.
    struct CheckpointBusy: Error {}

    /// Opens the store through SQLite, which rolls back a hot journal and recovers a log, and checkpoints all of it.
    ///
    /// The log itself stays, empty; whoever holds the lease removes it by looking at what is there then, since a
    /// file of that name may arrive at any moment. A journal is linked aside first: SQLite unlinks it by name.
    static func perform(_ store: StoreLocation, _ id: TransferIdentifier) throws {
        try RollbackJournal.checkSuperJournal(of: store)
        let directory = store.directory
        let journalAside = SideFile.rollbackAside(id)
        try directory.removeFile(journalAside)
        if try directory.status(store.name.journal) != nil {
            try directory.link(store.name.journal, as: journalAside, in: directory)
        }
        try checkpoint(store)
        try directory.removeFile(journalAside)
    }

    private static func checkpoint(_ store: StoreLocation) throws {
        do {
            let connection = try StoreConnection(store, busyTimeout: .zero)
            try connection.execute("PRAGMA synchronous = FULL")
            // Reading is what makes SQLite recover the log or roll back the journal.
            try connection.execute("SELECT count(*) FROM sqlite_schema")
            // The first column says whether somebody was in the way.
            guard try connection.execute("PRAGMA wal_checkpoint(TRUNCATE)") == "0" else { throw CheckpointBusy() }
        } catch let error as DatabaseError
            where error.resultCode == .SQLITE_BUSY || error.resultCode == .SQLITE_LOCKED
        {
            throw CheckpointBusy()
        }
    }
}
