import CSQLite
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A store that no other connection can read or write while this exists. Its log is empty, and no transaction is to be
/// rolled back: the database file alone is the content.
final class AppStoreHold {
    private let connection: StoreConnection
    private let location: StoreLocation
    private let hadLog: Bool
    let identity: FileIdentity

    /// Has SQLite roll back a hot journal, or checkpoint the log, and locks the store exclusively.
    ///
    /// Throws `AppFileHeld` if another connection uses the store, and `StoreError` if it can't be opened so: it is
    /// damaged, say, or this user may not write to it.
    init(_ location: StoreLocation, _ identity: FileIdentity) throws {
        (self.identity, self.location) = (identity, location)
        hadLog = try location.directory.status(location.name.wal) != nil
        do {
            try SuperJournal.check(of: location)
            if try RollbackJournal.isHot(location.name.journal, in: location.directory) {
                // Not in exclusive mode: SQLite would then keep the journal, emptied.
                let reader = try StoreConnection(location, busyTimeout: .zero)
                try reader.execute("SELECT count(*) FROM sqlite_schema")
            }
            connection = try StoreConnection(location, busyTimeout: .zero, locking: .exclusive)
            try connection.execute("PRAGMA synchronous = FULL")
            // The first read takes the lock of a store in WAL mode, and recovers the log.
            try connection.execute("SELECT count(*) FROM sqlite_schema")
            if try connection.text("PRAGMA journal_mode") == "wal" {
                guard try connection.integer("PRAGMA wal_checkpoint(TRUNCATE)") == 0 else {
                    throw StoreError.busy(location.path)
                }
            } else {
                // Creates no journal before something is written.
                try connection.execute("BEGIN EXCLUSIVE")
            }
        } catch StoreError.busy {
            throw AppFileHeld(path: location.path, identity: identity)
        }
    }

    /// Counts the rows of a table that a recipe checks.
    func count(_ check: AppRecipe.Check) throws -> CheckedTable { try AppRecipe.rows(check, connection) }

    /// Removes the log that SQLite has made, so that a move that fails leaves nothing. The exclusive lock still keeps
    /// other connections from it.
    deinit {
        let (directory, log) = (location.directory, location.name.wal)
        guard !hadLog, let status = try? directory.status(log), status.size == 0 else { return }
        try? directory.removeFile(log)
    }
}

/// The locks of all stores of a directory.
final class AppStoreLocks {
    private var holds: [FilePath: AppStoreHold] = [:]
    /// The database files that this process has open through SQLite.
    private(set) var identities: Set<FileIdentity> = []
    /// The stores whose database file alone is the content.
    private(set) var quiescent: Set<FilePath> = []
    /// Sentences about stores that SQLite can't open. Their files are copied as they are.
    private(set) var notes: [String] = []

    /// Locks each store. Throws `AppFileHeld` if one is in use.
    init(_ stores: [FilePath], in root: Directory) throws {
        for path in stores {
            // SQLite can't have a store whose side files' names would be too long.
            guard let last = path.lastComponent, let name = StoreName.existing(last) else { continue }
            let directory = try root.descendant(path.removingLastComponent())
            guard let status = try directory.status(last) else {
                throw AppChanged(path: directory.path.appending(last))
            }
            // Another name of a locked store.
            if identities.contains(status.identity) { continue }
            do {
                holds[path] = try AppStoreHold(StoreLocation(directory: directory, name: name), status.identity)
                identities.insert(status.identity)
                quiescent.insert(path)
            } catch let error as StoreError {
                notes.append(Self.note(path, error))
            }
        }
    }

    /// Returns a sentence about a store that is copied without being locked.
    static func note(_ store: FilePath, _ error: StoreError) -> String {
        "SQLite can't open \(PrintablePath(store)), whose files are copied as they are: \(error)"
    }

    /// Closes the connections.
    func release() { holds = [:] }

    /// Counts the rows of the tables that a recipe checks, in the stores that are there.
    func count(_ recipe: AppRecipe, at place: FilePath) throws -> [CheckedTable] {
        try recipe.after.compactMap { check in
            try holds[check.store].map { hold in try AppRecipe.counting(check, place) { try hold.count(check) } }
        }
    }
}
