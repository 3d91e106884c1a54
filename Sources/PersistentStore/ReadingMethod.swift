import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// How a store is read through SQLite without a trace of it: each file, and each name in the directory, stays byte
/// for byte as it was, and the directory may be read-only.
///
/// SQLite itself would leave some: a read-only connection makes a `-shm` and an empty `-wal` where they are missing,
/// and a hot journal can't be rolled back without writing. Which way is taken depends on the side files.
enum ReadingMethod: Equatable {
    /// A rollback-journal store: `mode=ro` takes SQLite's own locks and creates nothing.
    case locked
    /// A write-ahead log with its `-shm`: `readonly_shm=1` maps the `-shm` without write access. While other
    /// programs have the store open, that is a reader like theirs; else SQLite makes an index of the log in its own
    /// memory (`walBeginShmUnreliable` in SQLite's wal.c).
    case lockedLog
    /// The same with write access to the `-shm`, where a live one has no place for a reader that can't note itself.
    case markedLog
    /// A write-ahead log without `-shm`, which nobody has open: the VFS `unix-none` and exclusive locking mode keep
    /// the log's index in memory and take no lock. The database is open for reading only, so that the checkpoint
    /// which a closing connection tries has no effect; `SQLITE_FCNTL_PERSIST_WAL` keeps the log.
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
        case .locked, .markedLog: "mode=ro"
        case .lockedLog: "mode=ro&readonly_shm=1"
        case .unlockedLog: "mode=ro&vfs=unix-none"
        case .immutable: "mode=ro&immutable=1"
        case .copy: "mode=rw"
        }
    }
}

/// What is seen of a store before SQLite opens it. Its descriptors are closed again: a process must not have one
/// beside a SQLite connection (https://sqlite.org/howtocorrupt.html, §2.2).
struct ReadingPreparation {
    let method: ReadingMethod
    /// Nil when a hot journal stands between the file and a valid header.
    let header: DatabaseHeader?
    let footprint: StoreFootprint

    /// Waits until the deadline for a lock that SQLite would not see. Throws `StoreError` when there is nothing to
    /// read, `SystemError` when it can't be reached.
    init(_ location: StoreLocation, deadline: Deadline) throws {
        footprint = try StoreFootprint(location)
        guard let status = footprint.database else { throw StoreError.missing(location.path) }
        guard status.kind == .regular else { throw StoreError.notAFile(location.path) }
        let hot = try RollbackJournal.isHot(location.name.journal, in: location.directory)
        let descriptor = try Self.open(location)
        let bytes = try descriptor.read(count: FileFormat.sampleLength, at: 0, path: location.path)
        header = DatabaseHeader(bytes)
        if header == nil, !hot || status.size == 0 {
            throw StoreError.foreign(FileFormat(firstBytes: bytes, size: status.size), location.path)
        }
        if footprint.wal != nil, footprint.sharedMemory != nil {
            method = .lockedLog
        } else if footprint.wal != nil {
            // A program in exclusive locking mode keeps no -shm; nobody can read beside it.
            while gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), Self.lockBytes, 512) != 0 {
                guard !deadline.hasPassed else { throw StoreError.busy(location.path) }
                pause(.milliseconds(5))
            }
            method = hot ? .copy : .unlockedLog
        } else {
            method = header?.journalMode == .writeAhead && !hot ? .immutable : .locked
        }
    }

    /// Where SQLite locks a database: PENDING_BYTE (https://sqlite.org/src/file/src/os.h).
    private static let lockBytes: off_t = 0x4000_0000

    /// A relocation's lease on the file makes an open that doesn't wait fail with EAGAIN.
    private static func open(_ location: StoreLocation) throws -> Descriptor {
        do throws(SystemError) {
            return try location.directory.open(location.name.database, flags: O_RDONLY)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { throw StoreError.busy(location.path) }
            throw error
        }
    }
}

/// By what a store is known not to have changed in between: the files' status, not their content.
struct StoreFootprint: Equatable {
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

package enum RollbackJournal {
    /// Whether a transaction may have to be rolled back from it. SQLite zeroes or truncates a journal's header, or
    /// removes the journal, when a transaction ends (https://sqlite.org/pragma.html#pragma_journal_mode).
    package static func isHot(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        guard let found = try directory.status(name), found.size > 0 else { return false }
        guard found.kind == .regular else { return true }
        do throws(SystemError) {
            let descriptor = try directory.open(name, flags: O_RDONLY)
            let start = try descriptor.read(count: 1, at: 0, path: directory.path.appending(name))
            return start.first.map { $0 != 0 } ?? false
        } catch {
            // Its transaction ended between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }
}
