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

    static let otherFile = "the branch has another database file than the store's name"

    /// The file systems on which each write changes a file's `ctime`, whoever writes, and creation times stay.
    static let fileSystems: Set<String> = ["ext4", "xfs", "btrfs", "f2fs"]

    /// The reason why no common base is proved.
    struct Obstacle: Error {
        let reason: String

        init(_ reason: String) { self.reason = reason }
    }

    /// The state of the shared database before anything is copied. If it is the same afterwards, all copies match.
    struct Start {
        let status: FileStatus?
        let header: SplitLog?

        init(_ store: StoreLocation) {
            status = try? store.directory.status(store.name.database)
            header = SplitLog(named: store)
        }
    }

    /// Copies the database to the name `base`, once the branches and the store at the name are copied. Throws
    /// `Obstacle` if nothing proves that it is the base of all branches that share it.
    ///
    /// - Parameters:
    ///   - foreign: The files that belong to a branch.
    ///   - margin: See `SplitProof.margin`.
    init(
        of store: StoreLocation, since start: Start, _ branches: [OrphanedBranch], without foreign: Set<FileIdentity>,
        in place: Directory, margin: Duration
    ) throws {
        guard let name = StoreName.existing("base") else { throw StoreError.notAFile(place.path) }
        location = StoreLocation(directory: place, name: name)
        let shared = branches.filter(\.sharesDatabase)
        guard !shared.isEmpty else { throw Obstacle(Self.otherFile) }
        try Self.check(store, start, shared, foreign, margin)
        do {
            for name in [name.database] + name.sideFiles { try place.removeFile(name) }
            if let identity = start.status?.identity {
                let file = BranchFile(path: store.path, identity: identity)
                try file.copy(file.open(), as: name.database, in: place)
            }
            // Nothing was written while it was copied either.
            try Self.check(store, start, shared, foreign, margin)
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

    private static func check(
        _ store: StoreLocation, _ start: Start, _ branches: [OrphanedBranch], _ foreign: Set<FileIdentity>,
        _ margin: Duration
    ) throws {
        let (directory, name) = (store.directory, store.name)
        let fileSystem = try directory.fileSystem()
        guard Self.fileSystems.contains(fileSystem.name) else {
            throw Obstacle("the times of files on \(fileSystem.name) prove nothing")
        }
        guard let status = start.status, status.kind == .regular, status.links == 1,
            try directory.status(name.database) == status
        else { throw Obstacle("the database is being written to") }
        for side in [name.wal, name.sharedMemory, name.journal] {
            guard let found = try directory.status(side) else { continue }
            if foreign.contains(found.identity) || side == name.journal && found.size > 0 {
                throw Obstacle("\(PrintablePath(side)) at the store's name isn't the store's own log or index")
            }
        }
        var logs: [SplitProof.Log] = []
        if let log = SplitLog(named: store) {
            guard log.header == start.header?.header else { throw Obstacle("the store's log was begun meanwhile") }
            logs.append(log.evidence)
        } else if let log = try directory.status(name.wal), log.size > 0 {
            throw Obstacle("the store's log can't be read")
        }
        for branch in branches {
            guard branch.database.identity == status.identity, let log = SplitLog(branch) else {
                throw Obstacle("the branch's log or index can't be read")
            }
            logs.append(log.evidence)
        }
        let proof = SplitProof(
            database: .init(birth: directory.birth(name.database), changed: status.changed), logs: logs,
            now: SplitProof.presentTime, margin: margin)
        if let obstacle = proof.obstacle { throw Obstacle(obstacle) }
    }
}

/// A log that follows on the shared database.
struct SplitLog {
    let evidence: SplitProof.Log
    /// The log's header, with its salts; shorter if the log has no commit.
    let header: [UInt8]

    /// The log at the store's name; nil if there is none, or one without a commit.
    init?(named store: StoreLocation) {
        guard let log = try? store.directory.open(store.name.wal, flags: O_RDONLY | O_NOFOLLOW) else { return nil }
        // After a crash, an index is made anew: it then counts all frames as perhaps checkpointed.
        self.init(log, Self.index(named: store)) { $0.backfilledFrame > 0 }
        if header.isEmpty { return nil }
    }

    /// The log of a branch. Returns nil if it can't be read, or has no index of its own.
    init?(_ branch: OrphanedBranch) {
        guard let log = try? branch.log?.open(), let index = branch.lastCommit else { return nil }
        self.init(log, index) { $0.checkpointedFrame > 0 }
    }

    private init?(
        _ log: borrowing Descriptor, _ index: WriteAheadIndex?, isCheckpointed: (WriteAheadIndex) -> Bool
    ) {
        guard let status = try? log.status(), let header = try? log.read(count: 32, at: 0) else { return nil }
        self.header = header
        // The checkpoint sequence number (https://sqlite.org/fileformat2.html, §4.1). A new log has 0.
        let isRestarted = header.count >= 16 && header[12..<16].contains { $0 != 0 }
        evidence = SplitProof.Log(
            birth: log.birth, changed: status.changed, isRestarted: isRestarted,
            isCheckpointed: index.map(isCheckpointed) ?? false)
    }

    private static func index(named store: StoreLocation) -> WriteAheadIndex? {
        guard let file = try? store.directory.open(store.name.sharedMemory, flags: O_RDONLY | O_NOFOLLOW) else {
            return nil
        }
        return (try? WriteAheadIndex(file)) ?? nil
    }
}
