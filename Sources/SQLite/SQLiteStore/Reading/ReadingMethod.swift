import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A way to read a store through SQLite without a trace: every file, and every name in the directory, stays byte for
/// byte as it was, and the directory may be read-only.
///
/// Plain SQLite would leave traces: a read-only connection creates a missing `-shm` and an empty `-wal`, and a hot
/// journal can't be rolled back without writing. The method depends on the side files and on whether another program
/// has the store open. `ReadingVFS` does the rest.
enum ReadingMethod: Equatable {
    /// A store with a rollback journal. `mode=ro` takes SQLite's own locks and creates nothing.
    case locked
    /// A WAL that other programs have open. The connection is a reader like theirs, but `readonly_shm=1` maps the
    /// `-shm` without write access. As root, SQLite changes the owner of a `-shm` that it opens to the database's. The
    /// owner is the same already, unless a program other than SQLite created the file.
    case lockedWAL
    /// Like `lockedWAL`, with write access to the `-shm`. Needed if no read mark exists that a reader without it could
    /// use.
    case markedWAL
    /// A WAL that nobody has open, with or without a `-shm`. Without locks and in exclusive locking mode, SQLite builds
    /// the index of the WAL in private memory.
    case unlockedWAL
    /// A header that selects a WAL, and no WAL file or another database's. `immutable=1` ignores side files.
    case immutable
    /// A hot journal. SQLite rolls it back in a private copy of the database, journal and WAL.
    case copy

    /// True if other programs' writes are locked out or invisible while the connection reads.
    var takesLocks: Bool {
        switch self {
        case .locked, .lockedWAL, .markedWAL: true
        case .unlockedWAL, .immutable, .copy: false
        }
    }

    /// The parameters of SQLite's URI (https://sqlite.org/uri.html) after the path.
    var parameters: String {
        switch self {
        case .locked, .markedWAL: "mode=ro&vfs=\(ReadingVFS.locking.rawValue)"
        case .lockedWAL: "mode=ro&readonly_shm=1&vfs=\(ReadingVFS.locking.rawValue)"
        case .unlockedWAL: "mode=ro&vfs=\(ReadingVFS.lockless.rawValue)"
        case .immutable: "mode=ro&immutable=1&vfs=\(ReadingVFS.locking.rawValue)"
        case .copy: "mode=rw&vfs=\(HeldDirectoryVFS.name)"
        }
    }
}

/// The state of a store's files before SQLite opens them. It keeps no descriptor, because a process must not have one
/// beside a SQLite connection (https://sqlite.org/howtocorrupt.html, §2.2).
struct ReadingPreparation {
    let method: ReadingMethod
    /// The header, or nil if the file has no valid one until a hot journal is rolled back.
    let header: DatabaseHeader?
    let footprint: FileFingerprint
    /// The log of another database, which is not read.
    let foreignLog: ForeignLog?

    /// Waits until the deadline for a lock that SQLite would not see. Throws `StoreError` if there is nothing to read
    /// and `SystemError` if the files can't be reached.
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
                method = .lockedWAL
                foreignLog = nil
            } else {
                // A program in exclusive locking mode keeps no -shm, and nobody else can read the store.
                while DatabaseLocks.areHeld(on: descriptor) {
                    guard !deadline.hasPassed else { throw StoreError.busy(location.path) }
                    pause(.milliseconds(5))
                }
                foreignLog = try hot ? nil : location.foreignLog()
                method = hot ? .copy : foreignLog == nil ? .unlockedWAL : .immutable
            }
        } else {
            foreignLog = nil
            method = header?.journalMode == .writeAhead && !hot ? .immutable : .locked
        }
    }

    /// The offset of SQLite's nine lock bytes in a `-shm` (https://sqlite.org/walformat.html, §2.3). Each connection
    /// holds the last one as long as it has the file open.
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

    /// While a relocation holds a lease on the file, a non-blocking open fails with EAGAIN.
    private static func open(_ name: FilePath.Component, of location: StoreLocation) throws -> Descriptor {
        do throws(SystemError) {
            return try location.directory.open(name, flags: O_RDONLY)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { throw StoreError.busy(location.path) }
            throw error
        }
    }
}

/// The status of a store's files, not their content. It shows that a store has not changed in between.
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

    /// True if the names are those of the same files, whatever is in them.
    func hasFiles(of other: FileFingerprint) -> Bool {
        database?.identity == other.database?.identity && wal?.identity == other.wal?.identity
            && sharedMemory?.identity == other.sharedMemory?.identity && journal?.identity == other.journal?.identity
    }
}
