import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The descriptors by which a store is watched: its directory, its database, and its log's index while there is one.
final class StoreFiles {
    private let directory: Directory
    private let name: StoreName
    private let identity: FileIdentity
    /// How many names the database has.
    private var nameCount: UInt64
    /// The database alone is mounted here: what is written to it raises its events where it comes from.
    private let isMountPoint: Bool
    private let database: SharedDescriptor
    private(set) var log: WALIndexFile?
    /// The log that belongs to the index; opened when its frames are wanted.
    private(set) var logFile: WALFile?

    private var path: FilePath { directory.path.appending(name.database) }

    /// Nil when there is no store.
    init?(_ path: FilePath, _ name: StoreName) throws {
        guard FileStatus(following: path)?.kind == .directory else { return nil }
        let directory = try Directory(path)
        guard let status = try directory.status(name.database), status.kind == .regular else { return nil }
        let database = SharedDescriptor(try directory.open(name.database, flags: O_RDONLY))
        identity = try database.identity()
        nameCount = status.links
        isMountPoint = (try? directory.isMountPoint(name.database)) ?? false
        self.directory = directory
        self.name = name
        self.database = database
        log = try WALIndexFile(name.sharedMemory, in: directory)
    }

    /// `known` when it is still what its names stand for, else what they stand for now; nil when there is none.
    static func current(_ path: FilePath, _ name: StoreName, unless known: StoreFiles?) throws -> StoreFiles? {
        if let known, FileStatus(following: path)?.identity == known.directory.identity,
            let now = try known.directory.status(name.database), now.identity == known.identity,
            // A directory that is mounted over itself is the same one, without what was mounted in it.
            FileStatus(following: path.appending(name.database))?.identity == known.identity
        {
            known.nameCount = now.links
            return known
        }
        return try StoreFiles(path, name)
    }

    /// The database, where it has other names: what is written through them raises no event in this directory.
    var sharedIdentity: FileIdentity? { nameCount > 1 || isMountPoint ? identity : nil }

    /// What a subscriber that begins now knows.
    func baseline() throws -> CommitBaseline {
        var known = CommitBaseline()
        known.changeCounter = try header()?.changeCounter
        if let index = try index() {
            known.commit = WALPosition(index)
            known.commitCount = index.commitCount
        } else if let left = try leftCommit() {
            known.commit = left
        }
        return known
    }

    /// The last commit in the log, read without its index, or beyond what an index tells of; nil when there is no log.
    func leftCommit(beyond index: WriteAheadIndex? = nil) throws -> WALPosition? {
        guard try directory.status(name.wal) != nil else { return nil }
        do throws(SystemError) {
            let log = try directory.open(name.wal, flags: O_RDONLY)
            let left = try WriteAheadLog(log, path: directory.path.appending(name.wal), beyond: index)
            guard left.lastFrame > 0 else { return nil }
            return WALPosition(salt: left.salt, frame: left.lastFrame, checksum: left.checksum)
        } catch {
            // Removed between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    /// Nil when there is no log.
    func logStamp() throws(SystemError) -> Stamp? {
        try directory.status(name.wal).map { Stamp(size: $0.size, modified: $0.modified) }
    }

    func header() throws(SystemError) -> DatabaseHeader? {
        DatabaseHeader(try database.read(count: DatabaseHeader.length, at: 0, path: path))
    }

    /// By what it is known that the database was written again.
    struct Stamp: Equatable {
        let size: Int64
        /// Nanoseconds since 1970.
        let modified: Int64

        /// Nil where a write from now on could leave it as it is.
        var whenSettled: Stamp? { FileTime.isSettled(modified) ? self : nil }
    }

    func stamp() throws(SystemError) -> Stamp {
        let status = try database.status()
        return Stamp(size: status.size, modified: status.modified)
    }

    func isJournalHot() throws(SystemError) -> Bool { try RollbackJournal.isHot(name.journal, in: directory) }

    func hasJournal() throws(SystemError) -> Bool { try directory.status(name.journal) != nil }

    // MARK: The log's index

    /// The index as it is now; nil without one, or while it is being made.
    func index() throws(SystemError) -> WriteAheadIndex? {
        try log?.readWhole()
    }

    /// Lets go of an index that has lost its name, and takes the one that has it. `lastLook` is done before: nobody
    /// can commit to the old one any more. `changed` gets the old one afterwards. True when one was let go of.
    func refreshLog(_ lastLook: () throws -> Void, changed: (WALIndexFile?) throws -> Void) throws -> Bool {
        let now = try directory.status(name.sharedMemory)?.identity
        guard now != log?.identity else { return false }
        let former = log
        if former != nil { try lastLook() }
        logFile = nil
        log = try WALIndexFile(name.sharedMemory, in: directory)
        try changed(former)
        return former != nil
    }

    /// The log's frames. `anew`: the file that has its name now.
    func openLog(anew: Bool = false) throws -> WALFile? {
        if anew || logFile == nil { logFile = try WALFile(name.wal, in: directory) }
        return logFile
    }

    /// Whether the index that is read, or none where none is, is what its name stands for.
    func isLogCurrent() throws -> Bool { try directory.status(name.sharedMemory)?.identity == log?.identity }

    /// What a survey reads: the store at the commit `known`; nil when it can't be read now.
    func surveySubject(_ known: WriteAheadIndex?) throws -> PageMapScan.Subject? {
        guard try header()?.journalMode == .writeAhead else { return nil }
        guard let log else {
            // A log that a crash has left is worth reading when it has an index again.
            let isAlone = try directory.status(name.wal).map { $0.size == 0 } ?? true
            return isAlone ? PageMapScan.Subject(database: database, log: nil) : nil
        }
        guard let known, let file = try openLog() else { return nil }
        return PageMapScan.Subject(database: database, log: .init(file: file, index: log, known: known))
    }

    /// Whether somebody holds `WAL_WRITE_LOCK`, byte 120 of the index.
    func isLogBeingWritten() -> Bool { log?.isLocked(at: 120) ?? false }

    // MARK: The database's locks

    /// Whether a program keeps everybody else from reading.
    func isLockedExclusively() -> Bool { DatabaseLocks.areExclusive(on: database.raw) }

    /// Gives a writer that has just committed a millisecond to release its lock, so that a reader who is told now
    /// can read now. True when it is still held.
    func waitForWriter() -> Bool {
        let until = ContinuousClock.now.advanced(by: .milliseconds(1))
        while isLockedExclusively() {
            if ContinuousClock.now >= until { return true }
            gs_cpu_relax()
        }
        return false
    }
}

/// A descriptor that a survey on another thread reads with, too: with `pread`, which moves nothing.
final class SharedDescriptor: Sendable {
    private let descriptor: Descriptor

    init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }

    var raw: CInt { descriptor.raw }

    func identity() throws(SystemError) -> FileIdentity { try descriptor.status().identity }

    func status() throws(SystemError) -> FileStatus { try descriptor.status() }

    func read(count: Int, at offset: Int64, path: FilePath? = nil) throws(SystemError) -> [UInt8] {
        try descriptor.read(count: count, at: offset, path: path)
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(SystemError) -> Int {
        try descriptor.read(into: buffer, at: offset)
    }
}

/// An open wal-index. It can be read to its end after it has lost its name.
final class WALIndexFile: Sendable {
    let identity: FileIdentity
    private let descriptor: Descriptor

    /// Nil when there is none.
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

    func read() throws(SystemError) -> WriteAheadIndex? { try WriteAheadIndex(descriptor) }

    /// As it is now. A torn read is tried again; nil while it is being made.
    func readWhole() throws(SystemError) -> WriteAheadIndex? {
        for _ in 0..<16 {
            if let index = try read() { return index }
            gs_cpu_relax()
        }
        return nil
    }

    /// Whether the log still has the frames up to that commit.
    func stillHas(_ commit: WriteAheadIndex) throws(SystemError) -> Bool {
        guard let now = try readWhole() else { return false }
        return now.salt == commit.salt && now.lastFrame >= commit.lastFrame
    }

    func isLocked(at byte: off_t) -> Bool { gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), byte, 1) == 1 }
}
