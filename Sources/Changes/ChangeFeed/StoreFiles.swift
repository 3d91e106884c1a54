import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The descriptors of an observed store: its directory, its database, and its WAL index while there is one.
package final class StoreFiles {
    private let directory: Directory
    private let name: StoreName
    /// The database file.
    package let identity: FileIdentity
    /// The time at which the database was made: another file may get its inode number.
    private let birth: Int64?
    /// The number of the database's hard links.
    private var nameCount: UInt64
    /// True if the database alone is a mount point. Writes to it raise their events in the directory it comes from.
    private let isMountPoint: Bool
    /// The database; nil while nobody uses it and its descriptor is closed.
    private var openDatabase: SharedDescriptor?
    /// The open wal-index; nil if there is none.
    package private(set) var walIndex: WALIndexFile? { didSet { generation &+= 1 } }
    /// The WAL that belongs to the index. It is opened when its frames are needed.
    package private(set) var wal: WALFile? { didSet { generation &+= 1 } }
    /// A number that changes with each index and WAL that is opened or closed.
    private(set) var generation = 0

    private var path: FilePath { directory.path.appending(name.database) }

    /// Opens the store. Returns nil if it does not exist; throws if that can't be known.
    init?(_ path: FilePath, _ name: StoreName) throws {
        let directory: Directory
        do throws(SystemError) { directory = try Directory(path) } catch {
            guard [.noSuchFileOrDirectory, .notDirectory].contains(error.errno) else { throw error }
            return nil
        }
        guard let status = try directory.status(name.database), status.kind == .regular else { return nil }
        let database = SharedDescriptor(try directory.open(name.database, flags: O_RDONLY))
        identity = try database.identity()
        birth = directory.birth(name.database)
        nameCount = status.links
        isMountPoint = (try? directory.isMountPoint(name.database)) ?? false
        self.directory = directory
        self.name = name
        openDatabase = database
        walIndex = try WALIndexFile(name.sharedMemory, in: directory)
    }

    /// Returns `known` if its names still stand for the same files, else the files they stand for now, or nil if there
    /// are none.
    package static func current(_ path: FilePath, _ name: StoreName, unless known: StoreFiles?) throws -> StoreFiles? {
        if let known, FileStatus(following: path)?.identity == known.directory.identity,
            let now = try known.directory.status(name.database), now.identity == known.identity,
            // A file that is open keeps its inode number.
            known.openDatabase != nil || known.directory.birth(name.database) == known.birth,
            // A directory that is bind-mounted over itself is the same one, without the mounts inside it.
            FileStatus(following: path.appending(name.database))?.identity == known.identity
        {
            known.nameCount = now.links
            return known
        }
        return try StoreFiles(path, name)
    }

    /// The database's identity if it has other names. Writes through those raise no event in this directory.
    package var sharedIdentity: FileIdentity? { nameCount > 1 || isMountPoint ? identity : nil }

    /// Returns the store's present state, from which a new subscriber starts.
    func baseline() throws -> CommitBaseline {
        var baseline = CommitBaseline()
        baseline.changeCounter = try header()?.changeCounter
        let index = try readIndex()
        if let index { baseline.record(WALPosition(index), commitCount: index.commitCount) }
        let last = try lastLoggedCommit(beyond: [index.map(WALPosition.init)].compactMap(\.self))
        if index?.reports(last) == true { return baseline }
        // A program that has the store may be writing what the index doesn't report yet.
        if try walIndex == nil || !isWALInUse() && isIndexUnchanged(since: index) {
            baseline.record(last, overruling: index)
        }
        return baseline
    }

    /// Returns the last commit in the WAL, as its frames tell, whatever its index says; `none` if there is none.
    /// `known` are commits that needn't be read again.
    func lastLoggedCommit(beyond known: [WALPosition] = []) throws -> WALPosition {
        guard try directory.status(name.wal) != nil else { return .none }
        do throws(SystemError) {
            let log = try directory.open(name.wal, flags: O_RDONLY)
            let last = try WriteAheadLog(
                log, path: directory.path.appending(name.wal), beyond: known.map { ($0.salt, $0.frame, $0.checksum) })
            guard last.lastFrame > 0 else { return .none }
            return WALPosition(salt: last.salt, frame: last.lastFrame, checksum: last.checksum)
        } catch {
            // The file was removed between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return .none
        }
    }

    /// True if a program may be writing the WAL: no reader sees a commit before the index has it, or before a program
    /// in exclusive mode is gone.
    func isWALInUse() throws -> Bool { isWALWriteLocked() || isLockedExclusively() }

    /// True if the index, or its absence, is as it was. A WAL that was read since is of the same time.
    func isIndexUnchanged(since former: WriteAheadIndex?) throws -> Bool {
        guard try isIndexCurrent() else { return false }
        guard let now = try readIndex() else { return former == nil }
        return former.map(now.hasSameHeader) ?? false
    }

    /// Returns the WAL's stamp, or nil if there is no WAL.
    package func walStamp() throws(SystemError) -> Stamp? {
        try directory.status(name.wal).map(Stamp.init)
    }

    /// Returns the open database. Throws ENOENT if another file has its name now.
    private func database() throws(SystemError) -> SharedDescriptor {
        if let openDatabase { return openDatabase }
        // A relocation's lease must not make this thread wait.
        let file = SharedDescriptor(try directory.open(name.database, flags: O_RDONLY | O_NONBLOCK))
        guard try file.identity() == identity else { throw SystemError("open", .noSuchFileOrDirectory, path: path) }
        openDatabase = file
        return file
    }

    /// Returns the open database, for a reader of all pages.
    package func openedDatabase() throws(SystemError) -> SharedDescriptor { try database() }

    /// True if no transaction has written the database in rollback mode since the commit with this change counter, and
    /// none is writing it now.
    ///
    /// - Parameter isLocked: True if the lock of the program that made the commit is no sign of writing.
    func isUnwritten(since changeCounter: UInt32, isLocked: Bool = false) throws(SystemError) -> Bool {
        guard isLocked || !isLockedExclusively(), try !isJournalHot() else { return false }
        return try header()?.changeCounter == changeCounter
    }

    /// Closes the database, so that other programs can prove that nobody has it open. It is opened again when it is
    /// read.
    package func closeDatabase() { openDatabase = nil }

    /// True unless a connection to the store, in any process, can be seen. Each connection in WAL mode holds a shared
    /// lock on byte 128 of the index ("DMS", https://sqlite.org/walformat.html, §2.3.1). In rollback mode a connection
    /// holds one only during a transaction.
    package var isUnused: Bool { walIndex?.isShared(at: 128) != true }

    /// Reads the header; nil if the file doesn't begin as a database.
    package func header() throws(SystemError) -> DatabaseHeader? {
        DatabaseHeader(try database().read(count: DatabaseHeader.length, at: 0, path: path))
    }

    /// The size and modification time of a file, which show that it was written again.
    package struct Stamp: Equatable {
        package let size: Int64
        /// Nanoseconds since 1970.
        let modified: Int64
        /// The time of the last change of the content or the status, in nanoseconds since 1970. No program can set it.
        let changed: Int64

        init(_ status: FileStatus) {
            (size, modified, changed) = (status.size, status.modified, status.changed)
        }

        /// The stamp of a file that doesn't exist.
        static let absent = Stamp(size: -1, modified: 0, changed: 0)

        init(size: Int64, modified: Int64, changed: Int64) {
            (self.size, self.modified, self.changed) = (size, modified, changed)
        }

        /// A change of permissions or links is no write.
        package static func == (one: Stamp, other: Stamp) -> Bool {
            one.size == other.size && one.modified == other.modified
        }

        /// True if neither the content nor the status was changed in between. A file that was restored with its times
        /// has another time of change.
        package func isIdentical(to other: Stamp?) -> Bool { self == other && changed == other?.changed }

        /// The stamp, or nil if a write from now on could leave it unchanged.
        package var whenSettled: Stamp? { FileTime.isSettled(max(modified, changed)) ? self : nil }
    }

    /// The database's stamp.
    package func stamp() throws(SystemError) -> Stamp {
        let found: FileStatus?
        if let openDatabase { found = try openDatabase.status() } else { found = try directory.status(name.database) }
        guard let status = found, status.identity == identity else {
            throw SystemError("stat", .noSuchFileOrDirectory, path: path)
        }
        return Stamp(status)
    }

    /// True if a journal could undo what was written to the database.
    package func isJournalHot() throws(SystemError) -> Bool { try RollbackJournal.isHot(name.journal, in: directory) }

    /// Returns the change counter of the last commit beside a hot journal.
    ///
    /// - Parameter isAbandoned: True if the journal's program is gone. One that lives writes the database only while it
    ///   locks out every reader.
    func committedChangeCounter(isAbandoned: Bool) throws(SystemError) -> UInt32? {
        if isAbandoned, let original = try RollbackJournal.originalChangeCounter(name.journal, in: directory) {
            return original
        }
        return try header()?.changeCounter
    }

    func hasJournalRecords() throws(SystemError) -> Bool { try RollbackJournal.hasRecords(name.journal, in: directory) }

    /// Returns the journal's stamp, `absent` if there is none.
    package func journalStamp() throws(SystemError) -> Stamp {
        try directory.status(name.journal).map(Stamp.init) ?? .absent
    }

    func hasJournal() throws(SystemError) -> Bool { try directory.status(name.journal) != nil }

    // MARK: The WAL index

    /// Returns the index as it is now, or nil if there is none or it is being created.
    package func readIndex() throws(SystemError) -> WriteAheadIndex? {
        try walIndex?.readWhole()
    }

    /// Closes an index that has lost its name and opens the one that has it now. It calls `finalRead` before, when
    /// nobody can commit to the former index any more, and passes the former index to `changed` afterwards. Returns
    /// true if an index was closed.
    package func refreshIndex(finalRead: () throws -> Void, changed: (WALIndexFile?) throws -> Void) throws -> Bool {
        let now = try directory.status(name.sharedMemory)?.identity
        guard now != walIndex?.identity else { return false }
        let former = walIndex
        if former != nil { try finalRead() }
        wal = nil
        walIndex = try WALIndexFile(name.sharedMemory, in: directory)
        try changed(former)
        return former != nil
    }

    /// Reads from now on from a log that is held, whatever has its name; from none if nil.
    package func use(_ log: HeldLogs.Log?) { (walIndex, wal) = (log?.index, log?.log) }

    /// Returns the WAL. `reopening` opens the file that has its name now.
    package func openWAL(reopening: Bool = false) throws -> WALFile? {
        if reopening || wal == nil { wal = try WALFile(name.wal, in: directory) }
        return wal
    }

    /// True if the open index, or its absence, matches the name.
    package func isIndexCurrent() throws -> Bool {
        try directory.status(name.sharedMemory)?.identity == walIndex?.identity
    }

    /// Returns the store at `commit` for a page map scan, or nil if it can't be read now.
    ///
    /// - Parameter holdsJournals: True if journals lead on from it, whatever its size.
    func scanSubject(at commit: WriteAheadIndex?, holdsJournals: Bool) throws -> PageMapScan.Subject? {
        guard let header = try header() else { return nil }
        if header.journalMode == .rollback {
            guard walIndex == nil,
                holdsJournals || Int(header.pageCount) * header.pageSize <= PageDigests.maximumSize,
                try isUnwritten(since: header.changeCounter)
            else { return nil }
            return PageMapScan.Subject(database: try database(), wal: nil, changeCounter: header.changeCounter)
        }
        guard let walIndex else {
            // A WAL left by a crash can be scanned once it has an index again.
            let isAlone = try directory.status(name.wal).map { $0.size == 0 } ?? true
            return isAlone ? PageMapScan.Subject(database: try database(), wal: nil) : nil
        }
        guard let commit, let file = try openWAL() else { return nil }
        return PageMapScan.Subject(database: try database(), wal: .init(file: file, index: walIndex, commit: commit))
    }

    /// True if somebody holds `WAL_WRITE_LOCK`, byte 120 of the index.
    func isWALWriteLocked() -> Bool { walIndex?.isLocked(at: 120) ?? false }

    /// True if somebody holds `WAL_CKPT_LOCK`, byte 121 of the index.
    func isCheckpointLocked() -> Bool { walIndex?.isLocked(at: 121) ?? false }

    // MARK: The database's locks

    /// True if a program locks out every reader.
    package func isLockedExclusively() -> Bool {
        // A file that can't be opened is found out by the next read.
        (try? database()).map { DatabaseLocks.areExclusive(on: $0.raw) } ?? false
    }

    /// True if a program has begun a transaction in rollback mode.
    func isTransactionUnderWay() -> Bool {
        (try? database()).map { DatabaseLocks.areHeld(on: $0.raw) } ?? false
    }

    /// Waits at most a millisecond for a writer that has just committed to release its lock, so that a reader can read
    /// as soon as it is notified. Returns true if the lock is still held.
    func waitForWriter() -> Bool {
        let until = ContinuousClock.now.advanced(by: .milliseconds(1))
        while isLockedExclusively() {
            if ContinuousClock.now >= until { return true }
            gs_cpu_relax()
        }
        return false
    }
}

/// A descriptor shared with a page map scan on another thread. `pread` moves no file offset.
package final class SharedDescriptor: Sendable {
    private let descriptor: Descriptor

    package init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }

    var raw: CInt { descriptor.raw }

    func identity() throws(SystemError) -> FileIdentity { try descriptor.status().identity }

    package func status() throws(SystemError) -> FileStatus { try descriptor.status() }

    package func read(count: Int, at offset: Int64, path: FilePath? = nil) throws(SystemError) -> [UInt8] {
        try descriptor.read(count: count, at: offset, path: path)
    }

    /// Reads as `Descriptor.read(into:at:path:)`.
    package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(SystemError) -> Int {
        try descriptor.read(into: buffer, at: offset)
    }

    /// Clones as `Descriptor.clone(to:)`.
    package func clone(to file: borrowing Descriptor) -> Bool { descriptor.clone(to: file) }
}

/// An open wal-index. It stays readable after the file has lost its name.
package final class WALIndexFile: Sendable {
    package let identity: FileIdentity
    private let descriptor: Descriptor

    /// The descriptor, open for as long as this object exists.
    var raw: CInt { descriptor.raw }

    /// Opens the file. Returns nil if it does not exist.
    init?(_ name: FilePath.Component, in directory: Directory) throws {
        do throws(SystemError) {
            let descriptor = try directory.open(name, flags: O_RDONLY)
            identity = try descriptor.status().identity
            self.descriptor = descriptor
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    func status() throws(SystemError) -> FileStatus { try descriptor.status() }

    func read() throws(SystemError) -> WriteAheadIndex? { try WriteAheadIndex(descriptor) }

    /// Returns the index as it is now, or nil while it is being created. It retries a torn read.
    func readWhole() throws(SystemError) -> WriteAheadIndex? {
        for _ in 0..<16 {
            if let index = try read() { return index }
            gs_cpu_relax()
        }
        return nil
    }

    /// True if the WAL still has the frames up to that commit.
    func contains(_ commit: WriteAheadIndex) throws(SystemError) -> Bool {
        guard let now = try readWhole() else { return false }
        return now.salt == commit.salt && now.lastFrame >= commit.lastFrame
    }

    /// True if somebody holds an exclusive lock on the byte.
    func isLocked(at byte: off_t) -> Bool { gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), byte, 1) == 1 }

    /// True if somebody holds a lock on the byte, shared or exclusive.
    func isShared(at byte: off_t) -> Bool { gs_ofd_conflict(descriptor.raw, Int16(F_WRLCK), byte, 1) == 1 }
}
