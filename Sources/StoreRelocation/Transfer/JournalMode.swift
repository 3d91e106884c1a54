import GRDB
import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Turns write-ahead logging on where it was on.
enum JournalMode {
    /// True when it is on now. False when another program's use of the store keeps it off. Throws when the disk fails: the next run tries again.
    ///
    /// It is a matter of two bytes of the header (https://sqlite.org/fileformat2.html, §1.3.3), written under a lease:
    /// an opener waits for microseconds, where SQLite, asked for it, would answer others SQLITE_BUSY meanwhile.
    static func writeAhead(at store: StoreLocation) throws -> Bool {
        for _ in 0..<20 {
            let seen = try StoreSnapshot(store)
            // A second name may be somebody else's: what they have there is not written to.
            guard seen.status?.kind == .regular, seen.status?.links == 1, seen.unusualPart == nil else { return false }
            // A hot journal beside it may take this very change back: that is SQLite's to sort out.
            if seen.journalIsHot { return try setThroughSQLite(store) }
            if seen.header?.journalMode == .writeAhead { return true }
            do {
                if try setUnderLease(store) { return true }
            } catch {
                // A file system without leases.
                guard [.invalidArgument, .notSupported, .noLocks].contains(error.errno) else { throw error }
                return try setThroughSQLite(store)
            }
            // Whoever has just opened it may turn it on, or be gone again.
            pause(.milliseconds(1))
        }
        // Somebody keeps it open; idle, they let SQLite change the mode under them.
        return try setThroughSQLite(store)
    }

    private static func setUnderLease(_ store: StoreLocation) throws(SystemError) -> Bool {
        let descriptor = try store.directory.openOwn(store.name.database, flags: O_RDWR)
        guard let lease = try FileLease(descriptor) else { return false }
        let header = try descriptor.read(count: 100, at: 0, path: store.path)
        guard DatabaseHeader(header) != nil else { return false }
        guard try store.directory.status(store.name.journal) == nil else { return false }
        try descriptor.write([2, 2], at: 18, path: store.path)
        try descriptor.synchronize(path: store.path)
        _ = consume lease
        return true
    }

    private static func setThroughSQLite(_ store: StoreLocation) throws -> Bool {
        // SQLite tells of a disk that fails here in many ways, or not at all: what the file says then is believed.
        var failure: DatabaseError?
        for _ in 0..<3 {
            if try isWriteAhead(store) { return true }
            do {
                try turnOn(store)
            } catch let error as DatabaseError {
                if [.SQLITE_BUSY, .SQLITE_LOCKED].contains(error.resultCode) { return false }
                failure = error
            }
        }
        if try isWriteAhead(store) { return true }
        if let failure, isOfTheDisk(failure) { throw failure }
        // A damaged header can do so too: the store is in use as it is, and no next run would change that.
        return false
    }

    private static func isOfTheDisk(_ error: DatabaseError) -> Bool {
        [.SQLITE_IOERR, .SQLITE_FULL, .SQLITE_CANTOPEN, .SQLITE_NOMEM].contains(error.resultCode)
    }

    /// A hot journal beside a header that says so is that very change, interrupted: SQLite would take it back.
    private static func isWriteAhead(_ store: StoreLocation) throws -> Bool {
        let seen = try StoreSnapshot(store)
        return seen.header?.journalMode == .writeAhead && !seen.journalIsHot
    }

    private static func turnOn(_ store: StoreLocation) throws {
        try StoreConnection(store, busyTimeout: .seconds(2)).execute("PRAGMA journal_mode = WAL")
    }
}
