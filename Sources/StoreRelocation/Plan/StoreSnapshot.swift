import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// What is seen at a store's place, without opening anything through SQLite.
struct StoreSnapshot {
    enum Database {
        /// No such name.
        case absent
        /// Zero bytes.
        case empty
        case sqlite(DatabaseHeader)
        /// A file that SQLite can't read: Core Data's XML or binary format, encrypted, or something else.
        case foreign(FileFormat)
        /// A directory, a FIFO, a device: nothing we move.
        case unusual
    }

    let location: StoreLocation
    let database: Database
    /// Of the database's file; nil when absent.
    let status: FileStatus?
    let wal: FileStatus?
    let sharedMemory: FileStatus?
    let journal: FileStatus?
    /// A rollback journal with a transaction in it: absent, empty or zeroed ones are cold.
    let journalIsHot: Bool
    let support: FileStatus?

    init(_ location: StoreLocation) throws(SystemError) {
        self.location = location
        let directory = location.directory
        let name = location.name
        status = try directory.status(name.database)
        wal = try directory.status(name.wal)
        sharedMemory = try directory.status(name.sharedMemory)
        journal = try directory.status(name.journal)
        support = try directory.status(name.support)
        journalIsHot = try RollbackJournal.isHot(name.journal, in: directory)
        database = try Self.read(location, status)
    }

    private static func read(
        _ location: StoreLocation, _ status: FileStatus?
    ) throws(SystemError) -> Database {
        guard let status else { return .absent }
        guard status.kind == .regular else { return .unusual }
        guard status.size > 0 else { return .empty }
        guard let bytes = try location.directory.read(location.name.database, count: FileFormat.sampleLength) else {
            return .absent
        }
        if let header = DatabaseHeader(bytes) { return .sqlite(header) }
        return .foreign(FileFormat(firstBytes: bytes, size: status.size))
    }

    /// The name of a side file that is no file, or one with a second name that SQLite would write to as well, or of a
    /// support folder that is no directory; nil when each is what belongs there. A journal may have a second name of
    /// ours.
    var unusualPart: String? {
        let name = location.name
        let files = [(name.wal, wal), (name.sharedMemory, sharedMemory), (name.journal, journal)]
        for (part, status) in files {
            guard let status else { continue }
            if status.kind != .regular || (status.links > 1 && part != name.journal) {
                return PrintablePath(part).description
            }
        }
        guard let support, support.kind != .directory else { return nil }
        return PrintablePath(name.support).description
    }

    /// Throws `StoreContents.Unreadable` where the database's last pages are missing, which SQLite takes for zeros.
    ///
    /// Of a store that is just being written they may come after its header, and a journal or a log is beside it then: what
    /// stays as it is around another look has neither.
    func checkWhole() throws {
        guard let status, let header, status.size < header.leastSize, !needsQuiescing else { return }
        let again = try StoreSnapshot(location)
        guard !again.needsQuiescing, again.status == status,
            try location.directory.status(location.name.database) == status
        else { return }
        throw StoreContents.Unreadable(
            description: "\(header.leastSize - status.size) bytes of its last pages are missing")
    }

    /// Throws `StoreWithdrawn` where a relocation's empty directory stands at the store's name.
    func checkNotWithdrawn() throws {
        guard let status, status.kind == .directory else { return }
        let hidden = try location.directory.names().first { TransferIdentifier(hiddenName: $0) != nil }
        // The last that a relocation takes away.
        let isLeft =
            try status.permissions == 0o500 && location.directory.directory(location.name.database).names().isEmpty
        guard hidden != nil || isLeft else { return }
        throw StoreWithdrawn(path: location.path, hidden: hidden.map(location.directory.path.appending))
    }

    /// The first file that this process may not read and write, as SQLite must before the database alone is the whole
    /// store. A side file that a program's last connection has taken away since the look stands in nobody's way.
    func unwritableFile() throws(SystemError) -> FilePath.Component? {
        let name = location.name
        let files = [
            (name.database, status), (name.wal, wal), (name.journal, journal), (name.sharedMemory, sharedMemory),
        ]
        for (file, status) in files where status?.kind == .regular {
            let result = file.withPlatformString { faccessat(location.directory.raw, $0, R_OK | W_OK, AT_EACCESS) }
            guard result != 0 else { continue }
            let error = SystemError.last("faccessat", path: location.directory.path.appending(file))
            switch error.errno {
            case .noSuchFileOrDirectory: continue
            case .permissionDenied, .notPermitted, .readOnlyFileSystem: return file
            default: throw error
            }
        }
        return nil
    }

    /// A write-ahead log with something in it.
    var walHasContent: Bool { (wal?.size ?? 0) > 0 }

    /// Something must go through SQLite before the database alone is the whole store.
    var needsQuiescing: Bool { walHasContent || journalIsHot }

    /// Bytes of all that belongs to the store, the support folder left out.
    var bytes: Int64 { (status?.size ?? 0) + (wal?.size ?? 0) + (journal?.size ?? 0) }

    var header: DatabaseHeader? {
        if case .sqlite(let header) = database { header } else { nil }
    }
}

/// A relocation, to this group or another one, has taken the store's name away: for a moment, or since it was
/// interrupted.
struct StoreWithdrawn: Error {
    let path: FilePath
    /// Where the store is meanwhile; nil where it has left already.
    let hidden: FilePath?
}

/// What another relocation, or a program that writes, may do to a store between two looks at it.
enum TransientObstacle {
    /// Whether it caused the error, so that looking again may help.
    static func caused(_ error: any Error) -> Bool {
        switch error {
        case is StoreWithdrawn: true
        // What wasn't there at the first look, or was a directory, is not opened.
        case let error as SystemError:
            error.isOfALease || error.errno == .isDirectory
                || (error.call == "open" && error.errno == .noSuchFileOrDirectory)
        case StoreError.busy, StoreError.notAFile, StoreError.missing: true
        default: false
        }
    }
}

extension Directory {
    /// How the file begins; nil when it went away meanwhile.
    fileprivate func read(_ name: FilePath.Component, count: Int) throws(SystemError) -> [UInt8]? {
        do throws(SystemError) {
            let descriptor = try open(name, flags: O_RDONLY)
            return try descriptor.read(count: count, at: 0, path: path.appending(name))
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }
}

/// By what a database is known again: enough to tell that nobody wrote to it in between.
struct DatabaseFingerprint: Equatable {
    let identity: FileIdentity
    let size: Int64
    let modified: Int64
    /// Of SQLite's header: counters that each transaction moves; nil for a file that is no database.
    let changeCounter: UInt32?

    init(_ descriptor: borrowing Descriptor, path: FilePath) throws(SystemError) {
        try self.init(descriptor.raw, path: path)
    }

    /// The descriptor must stay open meanwhile.
    init(_ raw: CInt, path: FilePath) throws(SystemError) {
        var found = stat()
        try retrying("fstat", path: path) { fstat(raw, &found) }
        let status = FileStatus(found)
        var start = [UInt8](repeating: 0, count: 100)
        let count = try retrying("pread", path: path) { pread(raw, &start, 100, 0) }
        identity = status.identity
        size = status.size
        modified = status.modified
        changeCounter = DatabaseHeader(Array(start.prefix(count)))?.changeCounter
    }
}
