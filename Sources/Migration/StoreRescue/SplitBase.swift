import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreRelocation
import SystemPackage

/// The last state that a store and its branches had in common: a copy of the database that they share, without any log.
struct SplitBase {
    let location: StoreLocation

    /// The file systems on which each write changes a file's `ctime`, whoever writes, and creation times stay.
    static let fileSystems: Set<String> = ["ext4", "xfs", "btrfs", "f2fs"]

    /// What contradicts a common base.
    struct Obstacle: Error {
        let reason: String

        init(_ reason: String) { self.reason = reason }
    }

    /// The state of the shared database before anything is copied. If it is the same afterwards, all copies match.
    struct Start {
        let status: FileStatus?
        /// The header of the log at the store's name, with its salts; empty without one.
        let logHeader: [UInt8]

        init(_ store: StoreLocation) {
            status = try? store.directory.status(store.name.database)
            let log = try? store.directory.open(store.name.wal, flags: O_RDONLY | O_NOFOLLOW).read(count: 32, at: 0)
            logHeader = log ?? []
        }
    }

    /// Copies the database to the name `base`, once the branches and the store at the name are copied. Throws
    /// `Obstacle` if anything contradicts that it is the base of the store and of all branches.
    ///
    /// - Parameters:
    ///   - foreign: The files that belong to a branch.
    ///   - margin: See `BaseContradiction.margin`.
    init(
        of store: StoreLocation, since start: Start, _ branches: [OrphanedBranch], without foreign: Set<FileIdentity>,
        in place: Directory, margin: Duration
    ) throws {
        guard let name = StoreName.existing("base") else { throw StoreError.notAFile(place.path) }
        location = StoreLocation(directory: place, name: name)
        guard branches.allSatisfy(\.sharesDatabase) else {
            throw Obstacle("a branch has another database file than the store's name")
        }
        try Self.check(store, start, branches, foreign, margin)
        do {
            for name in [name.database] + name.sideFiles { try place.removeFile(name) }
            if let identity = start.status?.identity {
                let file = BranchFile(path: store.path, identity: identity)
                try file.copy(file.open(), as: name.database, in: place)
            }
            // Nothing was written while it was copied either.
            try Self.check(store, start, branches, foreign, margin)
            guard try StoreSnapshotHeader.isWAL(location) else { throw Obstacle("the database is in rollback mode") }
            try BranchCopy.settle(location)
            if try !StoreReader.read(location, { try $0.integrityFindings() }).isEmpty {
                throw Obstacle("the database without its logs is damaged")
            }
        } catch {
            for name in [name.database] + name.sideFiles { try place.removeFile(name) }
            guard error is BranchFile.Lost || error is SystemError || error is StoreError else { throw error }
            throw Obstacle("the database can't be copied")
        }
    }

    /// Throws `Obstacle` if anything contradicts that all logs follow on the database as it is.
    static func check(
        _ store: StoreLocation, _ start: Start, _ branches: [OrphanedBranch], _ foreign: Set<FileIdentity>,
        _ margin: Duration
    ) throws {
        let (directory, name) = (store.directory, store.name)
        let fileSystem = try directory.fileSystem()
        guard Self.fileSystems.contains(fileSystem.name) else {
            throw Obstacle("the times of files on \(fileSystem.name) show nothing")
        }
        guard let database = try? directory.open(name.database, flags: O_RDONLY | O_NOFOLLOW) else {
            throw Obstacle("the database can't be read")
        }
        let header = try? DatabaseHeader(database.read(count: DatabaseHeader.length, at: 0))
        guard let status = start.status, status.kind == .regular, status.links == 1,
            try directory.status(name.database) == status
        else { throw Obstacle("the database is being written to") }
        for side in [name.wal, name.sharedMemory, name.journal] {
            guard let found = try directory.status(side) else { continue }
            if foreign.contains(found.identity) || side == name.journal && found.size > 0 {
                throw Obstacle("\(PrintablePath(side)) at the store's name isn't the store's own log or index")
            }
        }
        guard Start(store).logHeader == start.logHeader else { throw Obstacle("the store's log was begun meanwhile") }
        var logs: [BaseContradiction.Log] = []
        if let found = try directory.status(name.wal), found.size > 0 {
            let index = NamedFiles(name, in: directory).index.map {
                BranchFile(path: directory.path.appending(name.sharedMemory), identity: $0)
            }
            let file = BranchFile(path: directory.path.appending(name.wal), identity: found.identity)
            guard let log = BaseContradiction.Log(file, index, of: database) else {
                throw Obstacle("the store's log can't be read")
            }
            logs.append(log)
        }
        for branch in branches {
            guard branch.database.identity == status.identity, branch.lastCommit != nil,
                let file = branch.log, let log = BaseContradiction.Log(file, branch.indexFile, of: database)
            else { throw Obstacle("the branch's log or index can't be read") }
            logs.append(log)
        }
        let contradiction = BaseContradiction(
            database: .init(birth: directory.birth(name.database), changed: status.changed, header: header),
            logs: logs, now: BaseContradiction.presentTime, margin: margin)
        if let reason = contradiction.reason { throw Obstacle(reason) }
    }
}

extension BaseContradiction.Log {
    /// Reads a log and its index. Returns nil if the log can't be read.
    init?(_ log: BranchFile, _ index: BranchFile?, of database: borrowing Descriptor) {
        let origin: WriteAheadLog.Origin?
        let (status, header): (FileStatus, [UInt8])
        do {
            let file = try log.open()
            birth = file.birth
            origin = try WriteAheadLog.Origin(file, path: log.path)
            mismatch = try LogMismatch.find(in: file, path: log.path, databaseSize: database.status().size) {
                try database.read(count: $0, at: $1)
            }
            // The header and the index last: they tell if the log was begun anew while it was read.
            (status, header) = (try file.status(path: log.path), try file.read(count: 16, at: 0, path: log.path))
        } catch {
            return nil
        }
        let commit = index?.lastCommit
        changed = min(status.changed, status.modified)
        // The checkpoint sequence number (https://sqlite.org/fileformat2.html, §4.1). A new log has 0.
        isRestarted = header.count == 16 && header[12...].contains { $0 != 0 }
        // An index that was made anew, as after a crash, counts all frames as perhaps checkpointed.
        isCheckpointed = commit.map { $0.checkpointedFrame > 0 } ?? false
        let isOwn = origin?.salts.contains(commit?.salt ?? 0) ?? false
        indexBirth = isOwn ? index?.recorded.birth : nil
        self.origin = origin
    }
}
