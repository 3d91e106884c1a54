import GRDB
import Glibc
import LinuxSystem
import PersistentStore

/// Turns write-ahead logging on where it was on.
enum JournalMode {
    /// True when it is on now. False when another program has the store open, which may have taken the mode from the
    /// header already.
    ///
    /// It is a matter of two bytes of the header (https://sqlite.org/fileformat2.html, §1.3.3), written under a lease:
    /// an opener waits for microseconds, where SQLite, asked for it, would answer others SQLITE_BUSY meanwhile.
    static func writeAhead(at store: StoreLocation) -> Bool {
        for _ in 0..<20 {
            if isOn(store) { return true }
            do {
                if try setUnderLease(store) { return true }
            } catch {
                // A file system without leases.
                return setThroughSQLite(store)
            }
            // Whoever has just opened it may turn it on, or be gone again.
            pause(.milliseconds(1))
        }
        return isOn(store)
    }

    private static func isOn(_ store: StoreLocation) -> Bool {
        (try? StoreSighting(store))?.header?.journalMode == .writeAhead
    }

    private static func setUnderLease(_ store: StoreLocation) throws(SystemError) -> Bool {
        let descriptor = try store.directory.open(store.name.database, flags: O_RDWR)
        guard let lease = try FileLease(descriptor) else { return false }
        // A hot journal is the next opener's to roll back, header and all.
        guard try store.directory.status(store.name.journal) == nil else { return false }
        try descriptor.write([2, 2], at: 18, path: store.path)
        try descriptor.synchronize(path: store.path)
        _ = consume lease
        return true
    }

    private static func setThroughSQLite(_ store: StoreLocation) -> Bool {
        do {
            let connection = try StoreConnection.open(store, .readWrite, busyTimeout: .seconds(2))
            defer { try? connection.close() }
            let mode = try connection.writeWithoutTransaction { database in
                try String.fetchOne(database, sql: "PRAGMA journal_mode = WAL")
            }
            return mode == "wal"
        } catch {
            return false
        }
    }
}
