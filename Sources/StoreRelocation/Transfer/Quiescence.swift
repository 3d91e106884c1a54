import GRDB
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Brings what is in a store's write-ahead log or hot journal into its database.
enum Quiescence {
    /// The log can't be emptied: another program uses it.
    struct CheckpointBusy: Error {}

    /// Opens the store through SQLite, which rolls back a hot journal and recovers a log, and checkpoints all of it while no
    /// other connection can have the store open (`LogCheckpoint`).
    ///
    /// The log itself stays, empty; whoever holds the lease removes it by looking at what is there then, since a
    /// file of that name may arrive at any moment. A journal is linked aside first: SQLite unlinks it by name.
    static func perform(_ store: StoreLocation, _ id: TransferIdentifier) throws {
        try SuperJournal.check(of: store)
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
            if try RollbackJournal.isHot(store.name.journal, in: store.directory) {
                // Reading is what makes SQLite roll it back. Not alone: SQLite would keep the journal then, emptied.
                let connection = try StoreConnection(store, busyTimeout: .zero)
                try connection.execute("PRAGMA synchronous = FULL")
                try connection.execute("SELECT count(*) FROM sqlite_schema")
            }
            try LogCheckpoint.perform(store)
        } catch let error as DatabaseError
            where error.resultCode == .SQLITE_BUSY || error.resultCode == .SQLITE_LOCKED
        {
            throw CheckpointBusy()
        }
    }
}
