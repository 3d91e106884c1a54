import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// How a store is read through SQLite without a trace of it: each file, and each name in the directory, stays byte
/// for byte as it was, and the directory may be read-only.
///
/// SQLite itself would leave some: a read-only connection makes a `-shm` and an empty `-wal` where they are missing,
/// and a hot journal can't be rolled back without writing. Which way is taken depends on the side files and on
/// whether another program has the store open. `ReadingVFS` does the rest.
enum ReadingMethod: Equatable {
    /// A rollback-journal store: `mode=ro` takes SQLite's own locks and creates nothing.
    case locked
    /// A write-ahead log that other programs have open: a reader like theirs, but `readonly_shm=1` maps the `-shm`
    /// without write access. (As root, SQLite gives a `-shm` that it opens to the database's owner; it is that already
    /// unless a program that isn't SQLite made it.)
    case lockedLog
    /// The same with write access to the `-shm`, where no reader's mark stands that one without could use.
    case markedLog
    /// A write-ahead log that nobody has open, with or without a `-shm`: without locks and in exclusive locking mode
    /// SQLite makes an index of the log in its own memory.
    case unlockedLog
    /// A header that says write-ahead logging, and no log: `immutable=1` looks for no side file.
    case immutable
    /// A hot journal: SQLite rolls it back in a private copy of database, journal and log.
    case copy

    /// Other programs' writes are kept out, or aren't seen, while the connection reads.
    var takesLocks: Bool {
        switch self {
        case .locked, .lockedLog, .markedLog: true
        case .unlockedLog, .immutable, .copy: false
        }
    }

    /// What SQLite's URI (https://sqlite.org/uri.html) says behind the path.
    var parameters: String {
        switch self {
        case .locked, .markedLog: "mode=ro&vfs=\(ReadingVFS.locking.rawValue)"
        case .lockedLog: "mode=ro&readonly_shm=1&vfs=\(ReadingVFS.locking.rawValue)"
        case .unlockedLog: "mode=ro&vfs=\(ReadingVFS.lockless.rawValue)"
        case .immutable: "mode=ro&immutable=1&vfs=\(ReadingVFS.locking.rawValue)"
        case .copy: "mode=rw&vfs=\(HeldDirectoryVFS.name)"
        }
    }
}

/// What is seen of a store before SQLite opens it. Its descriptors are closed again: a process must not have one
/// beside a SQLite connection (https://sqlite.org/howtocorrupt.html, §2.2).
struct ReadingPreparation {
    let method: ReadingMethod
    /// Nil when a hot journal stands between the file and a valid header.
    let header: DatabaseHeader?
    let footprint: FileFingerprint

    /// Waits until the deadline for a lock that SQLite would not see. Throws `StoreError` when there is nothing to
    /// read, `SystemError` when it can't be reached.
    init(_ location: StoreLocation, deadline: Deadline) throws {
        footprint = try FileFingerprint(location)
        guard let status = footprint.database else { throw StoreError.missing(location.path) }
        guard status.kind == .regular else { throw StoreError.notAFile(location.path) }
        try location.check(status.identity)
        let hot = try RollbackJournal.isHot(location.name.journal, in: location.directory)
        let descriptor = try Self.open(location.name.database, of: location)
        let bytes = try descriptor.read(count: FileFormat.sampleLength, at: 0, path: location.path)
        header = DatabaseHeader(bytes)
        if header == nil, !hot || status.size == 0 {
            throw StoreError.foreign(FileFormat(firstBytes: bytes, size: status.size), location.path)
        }
        if footprint.wal != nil {
            if footprint.sharedMemory != nil, try Self.isInUse(location) {
                method = .lockedLog
            } else {
                // A program in exclusive locking mode keeps no -shm; nobody can read beside it.
                while DatabaseLocks.areHeld(of: descriptor) {
                    guard !deadline.hasPassed else { throw StoreError.busy(location.path) }
                    pause(.milliseconds(5))
                }
                method = hot ? .copy : .unlockedLog
            }
        } else {
            method = header?.journalMode == .writeAhead && !hot ? .immutable : .locked
        }
    }

    /// Where it locks a `-shm`: nine bytes (https://sqlite.org/walformat.html, §2.3), the last of which each
    /// connection holds as long as it has the file open.
    private static let sharedMemoryLocks: off_t = 120

    private static func isInUse(_ location: StoreLocation) throws -> Bool {
        do {
            let descriptor = try open(location.name.sharedMemory, of: location)
            return gs_ofd_conflict(descriptor.raw, Int16(F_WRLCK), sharedMemoryLocks, 9) != 0
        } catch let error as SystemError where error.errno == .noSuchFileOrDirectory {
            // The last program that had it open closed it between the two calls.
            return false
        }
    }

    /// A relocation's lease on the file makes an open that doesn't wait fail with EAGAIN.
    private static func open(_ name: FilePath.Component, of location: StoreLocation) throws -> Descriptor {
        do throws(SystemError) {
            return try location.directory.open(name, flags: O_RDONLY)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { throw StoreError.busy(location.path) }
            throw error
        }
    }
}

/// By what a store is known not to have changed in between: the files' status, not their content.
struct FileFingerprint: Equatable {
    let database: FileStatus?
    let wal: FileStatus?
    let sharedMemory: FileStatus?
    let journal: FileStatus?

    init(_ location: StoreLocation) throws(SystemError) {
        database = try location.directory.status(location.name.database)
        wal = try location.directory.status(location.name.wal)
        sharedMemory = try location.directory.status(location.name.sharedMemory)
        journal = try location.directory.status(location.name.journal)
    }
}
