import CSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A file's modification time, kept while a lease is held and the journal mode alone changes. A receipt knows by the
/// time that nobody has written to the store: an interrupted undo must not look like a write.
struct ModificationTime {
    private let time: timespec

    /// Returns nil if it can't be read. The descriptor must stay open.
    init?(_ raw: CInt) {
        var found = stat()
        guard fstat(raw, &found) == 0 else { return nil }
        time = found.st_mtim
    }

    /// Sets the file's time. Ignores errors: the file then seems to be written to, which is refused and loses nothing.
    func restore(_ raw: CInt) {
        // The access time stays: UTIME_OMIT, a macro that Swift doesn't import (utimensat(2)).
        let times = [timespec(tv_sec: 0, tv_nsec: (1 << 30) - 2), time]
        _ = times.withUnsafeBufferPointer { buffer in buffer.baseAddress.map { futimens(raw, $0) } }
    }
}

/// Turns write-ahead logging on again.
enum JournalMode {
    /// Returns true if write-ahead logging is on now, and false if another program's use of the store prevents it.
    /// Throws if the disk fails; the next run tries again.
    ///
    /// The mode is two bytes of the header (https://sqlite.org/fileformat2.html, §1.3.3), written under a lease. An
    /// opener then waits for microseconds. SQLite itself would make others fail with SQLITE_BUSY in the meantime.
    ///
    /// - Parameter patience: The longest wait for programs that use the store in turn.
    static func enableWriteAhead(at store: StoreLocation, patience: Duration = .seconds(2)) throws -> Bool {
        let deadline = Deadline(after: patience)
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        while true {
            let seen = try StoreSnapshot(store)
            // A second name may belong to another user, whose file must not be written to.
            guard seen.status?.kind == .regular, seen.status?.links == 1, seen.unusualPart == nil else { return false }
            // A hot journal may roll this very change back. Leave that to SQLite.
            if !seen.journalIsHot, seen.header?.journalMode == .writeAhead { return true }
            do throws(SystemError) {
                if !seen.journalIsHot, try setUnderLease(store) { return true }
            } catch {
                // The file system has no leases.
                guard [.invalidArgument, .notSupported, .noLocks].contains(error.errno) else { throw error }
            }
            // A program keeps it open. If it is idle, SQLite can change the mode. If not, SQLite gives up at once.
            switch try setThroughSQLite(store) {
            case true?: return true
            case false?: return false
            case nil: break
            }
            guard !deadline.hasPassed else { return false }
            // A program that has just opened the store may turn it on, or close it again.
            pause(backoff.next())
        }
    }

    private static func setUnderLease(_ store: StoreLocation) throws(SystemError) -> Bool {
        let descriptor = try store.directory.openOwn(store.name.database, flags: O_RDWR)
        guard let lease = try FileLease(descriptor) else { return false }
        let header = try descriptor.read(count: 100, at: 0, path: store.path)
        guard DatabaseHeader(header) != nil else { return false }
        guard try store.directory.status(store.name.journal) == nil else { return false }
        let time = ModificationTime(descriptor.raw)
        try descriptor.write([2, 2], at: 18, path: store.path)
        time?.restore(descriptor.raw)
        try descriptor.synchronize(path: store.path)
        _ = consume lease
        return true
    }

    /// Returns nil if a program is using the store at this moment.
    private static func setThroughSQLite(_ store: StoreLocation) throws -> Bool? {
        // SQLite reports a failing disk here in many ways, or not at all. Trust the file instead.
        var failure: StoreWriteError?
        for _ in 0..<3 {
            if try isWriteAhead(store) { return true }
            do {
                try setThroughPragma(store)
            } catch let error as StoreWriteError {
                if [SQLITE_BUSY, SQLITE_LOCKED].contains(error.primaryCode) { return nil }
                failure = error
            }
        }
        if try isWriteAhead(store) { return true }
        if let failure, isDiskFailure(failure) { throw failure }
        // A damaged header can cause this too. The store is in use as it is, and no later run would change that.
        return false
    }

    private static func isDiskFailure(_ error: StoreWriteError) -> Bool {
        [SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN, SQLITE_NOMEM].contains(error.primaryCode)
    }

    /// Returns true if the header says so and no journal is hot. Such a journal is the interrupted change itself, which
    /// SQLite would roll back.
    private static func isWriteAhead(_ store: StoreLocation) throws -> Bool {
        let seen = try StoreSnapshot(store)
        return seen.header?.journalMode == .writeAhead && !seen.journalIsHot
    }

    private static func setThroughPragma(_ store: StoreLocation) throws {
        try StoreWriteError.translating {
            try StoreConnection(store, busyTimeout: .milliseconds(100)).execute("PRAGMA journal_mode = WAL")
        }
    }
}
