import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The state of a store's files, found without opening anything through SQLite.
struct StoreSnapshot {
    enum Database {
        /// The file doesn't exist.
        case absent
        /// The file has zero bytes.
        case empty
        case sqlite(DatabaseHeader)
        /// A file that SQLite can't read: Core Data's XML or binary format, encrypted, or something else.
        case foreign(FileFormat)
        /// A directory, a FIFO or a device, which are never moved.
        case unusual
    }

    let location: StoreLocation
    let database: Database
    /// The status of the database's file; nil if it is absent.
    let status: FileStatus?
    let wal: FileStatus?
    let sharedMemory: FileStatus?
    let journal: FileStatus?
    /// True if a rollback journal contains a transaction. An absent, empty or zeroed journal is cold.
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

    /// The name of a side file that is not a regular file or has a second name, through which SQLite would write too,
    /// or of a support folder that is not a directory; nil if there is none. A journal may have a second name: this
    /// package links one.
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

    /// Throws `StoreContents.Unreadable` if the database's last pages are missing, which SQLite reads as zeros.
    ///
    /// While a store is being written, its pages may follow its header, but then it has a journal or a log. A store is
    /// damaged only if it has neither and a second look finds it unchanged.
    func checkWhole() throws {
        guard let status, let header, status.size < header.minimumSize, !needsQuiescing else { return }
        let second = try StoreSnapshot(location)
        guard !second.needsQuiescing, second.status == status,
            try location.directory.status(location.name.database) == status
        else { return }
        throw StoreContents.Unreadable(
            path: location.path,
            message: "\(ByteCount(header.minimumSize - status.size)) of its last pages are missing")
    }

    /// Throws `StoreWithdrawn` if a relocation's empty directory stands at the store's name.
    func checkNotWithdrawn() throws {
        guard let status, status.kind == .directory else { return }
        let hidden = try location.directory.names().first { TransferIdentifier(hiddenName: $0) != nil }
        // The directory is the last thing that a relocation removes.
        let isLeftBehind =
            try status.permissions == 0o500 && location.directory.directory(location.name.database).names().isEmpty
        guard hidden != nil || isLeftBehind else { return }
        throw StoreWithdrawn(path: location.path, hidden: hidden.map(location.directory.path.appending))
    }

    /// Returns the first file that this process may not read and write. SQLite needs both before the database alone is
    /// the whole store. Ignores a side file that a program's last connection has removed since the snapshot.
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

    /// The names of the files that are there, the database first. A link in the database's place isn't one of them.
    var parts: [FilePath.Component] {
        let name = location.name
        let database = status?.kind == .regular ? status : nil
        let all = [
            (name.database, database), (name.wal, wal), (name.journal, journal), (name.sharedMemory, sharedMemory),
            (name.support, support),
        ]
        return all.compactMap { $1 == nil ? nil : $0 }
    }

    /// True if the write-ahead log has content.
    var walHasContent: Bool { (wal?.size ?? 0) > 0 }

    /// True if SQLite must process a log or journal before the database alone is the whole store.
    var needsQuiescing: Bool { walHasContent || journalIsHot }

    /// Size of the store in bytes, without the support folder.
    var bytes: Int64 { (status?.size ?? 0) + (wal?.size ?? 0) + (journal?.size ?? 0) }

    /// True if the file is a SQLite database, or may be an encrypted one.
    var mayBeStore: Bool {
        switch database {
        case .sqlite: true
        case .foreign(let format): format.mayBeOpaque
        case .absent, .empty, .unusual: false
        }
    }

    var header: DatabaseHeader? {
        if case .sqlite(let header) = database { header } else { nil }
    }
}

/// A relocation, to this group or another one, has withdrawn the store's name: for a moment, or until its interrupted
/// run is recovered.
struct StoreWithdrawn: ActionableError {
    let path: FilePath
    /// The store's hidden path; nil if the store has left already.
    let hidden: FilePath?

    var errorCode: String { "in_use" }
    var message: String {
        "\(PrintablePath(path)) is being relocated, or an interrupted relocation has withdrawn it"
            + (hidden.map { "; the store is \(PrintablePath($0))" } ?? "")
    }
    var remedy: String {
        "try again; if no relocation is in progress: groupstore recover, with the destination directory"
    }
    var errorPath: FilePath? { path }
}

/// Interference by another relocation or a writing program between two looks at a store.
enum TransientObstacle {
    /// Returns true if interference caused the error, so that a retry may succeed.
    static func caused(_ error: any Error) -> Bool {
        switch error {
        case is StoreWithdrawn: true
        // A file that was absent, or a directory, at the first look isn't opened.
        case let error as SystemError:
            error.isLeaseConflict || error.errno == .isDirectory
                || (error.call == "open" && error.errno == .noSuchFileOrDirectory)
        case StoreError.busy, StoreError.notAFile, StoreError.missing: true
        default: false
        }
    }
}

extension Directory {
    /// Returns the first bytes of a file, or nil if it was removed in the meantime.
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

/// The properties of a database's file that reveal a write.
struct DatabaseFingerprint: Equatable {
    let identity: FileIdentity
    let size: Int64
    let modified: Int64
    /// The counter in SQLite's header that a write in rollback mode increments; nil if the file is no database.
    let changeCounter: UInt32?

    init(_ descriptor: borrowing Descriptor, path: FilePath) throws(SystemError) {
        try self.init(descriptor.raw, path: path)
    }

    /// Reads the fingerprint. The descriptor must stay open.
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

    /// Returns a fingerprint that any later write changes: waits until the last write is long enough ago. Returns nil
    /// if the file is written all the time.
    static func settled(_ descriptor: borrowing Descriptor, path: FilePath) throws(SystemError) -> Self? {
        let start = ContinuousClock.now
        repeat {
            let fingerprint = try Self(descriptor, path: path)
            if FileTime.isSettled(fingerprint.modified) { return fingerprint }
            pause(FileTime.resolution / 4)
        } while start.duration(to: .now) < FileTime.resolution * 4
        return nil
    }
}
