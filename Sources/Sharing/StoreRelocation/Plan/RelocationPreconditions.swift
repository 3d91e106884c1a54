import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The conditions that both places must meet before anything is moved.
struct RelocationPreconditions {
    /// The stores that leave their places.
    private let moved: [StoreLocation]
    /// The directories that stores leave and enter.
    private let directories: [Directory]
    private let snapshots: [StoreSnapshot]
    /// The directory that the store enters.
    private let target: Directory
    private let needsCopy: Bool
    private let bytesToCopy: Int64
    private let assumeClosed: Bool
    /// The store that enters the target directory; nil if none does.
    private let entering: StoreSnapshot?

    init(_ decision: RelocationDecision) {
        let endpoints = decision.endpoints
        switch decision.plan {
        case .relocate(.some), .merge: moved = [endpoints.legacy, endpoints.group]
        default: moved = [endpoints.legacy]
        }
        directories = [endpoints.legacy.directory, endpoints.group.directory]
        snapshots = [decision.legacy, decision.group]
        target = endpoints.group.directory
        needsCopy = decision.needsCopy
        bytesToCopy = decision.bytesToCopy
        assumeClosed = decision.request.assumeClosed
        if case .relocate = decision.plan { entering = decision.legacy } else { entering = nil }
    }

    /// The conditions for one store that goes to a free place.
    init(moved store: StoreLocation, to target: Directory, needsCopy: Bool, bytesToCopy: Int64, assumeClosed: Bool)
        throws
    {
        moved = [store]
        directories = [store.directory, target]
        let snapshot = try StoreSnapshot(store)
        snapshots = [snapshot]
        entering = snapshot
        self.target = target
        self.needsCopy = needsCopy
        self.bytesToCopy = bytesToCopy
        self.assumeClosed = assumeClosed
    }

    func check() throws {
        for snapshot in snapshots {
            if let found = try snapshot.location.databaseInPlaceOfSideFile() {
                throw RelocationFailure.sideFileIsDatabase(found)
            }
        }
        for store in moved {
            try store.checkExternalDataIsUnshared()
            try store.checkNothingIsMounted()
            try checkAttributes(store)
        }
        for directory in directories {
            try checkAttributes(".", in: directory, as: directory.path)
            try checkWritable(directory)
            try checkReach(directory)
        }
        for snapshot in snapshots {
            try checkOwner(snapshot)
            try checkFilesAreWritable(snapshot)
            try checkFolder(snapshot)
        }
        for store in moved where needsCopy {
            guard try store.directory.status(store.name.support)?.kind == .directory else { continue }
            try checkContent(store.directory.directory(store.name.support))
        }
        try checkOwnerReaches()
        let available = try target.fileSystem().available
        if UInt64(bytesToCopy) > available {
            throw RelocationFailure(
                .unusablePlace, code: "no_space",
                "\(PrintablePath(target.path)) has \(ByteCount(available)) free, and \(ByteCount(bytesToCopy)) are needed",
                remedy: "free that much there, then run this again")
        }
    }

    private func checkOwner(_ snapshot: StoreSnapshot) throws {
        guard let status = snapshot.status, geteuid() != 0, status.owner != geteuid() else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_owner",
            "\(PrintablePath(snapshot.location.path)) belongs to user \(status.owner)",
            remedy: "run this as that user, or as root")
    }

    /// Root can move a store to where its owner, or the service that uses it, can't open it.
    private func checkOwnerReaches() throws {
        guard geteuid() == 0, let entering, let owner = entering.status?.owner else { return }
        let home = entering.location.directory.path
        if owner != 0, let obstacle = try OwnerAccess(of: owner, to: target).obstacle(from: home) {
            throw RelocationFailure.lockedOut(obstacle, "the store")
        }
        try ServiceUnit.check(owner: owner, from: home, to: target.path, leavesLink: false)
    }

    private func checkFilesAreWritable(_ snapshot: StoreSnapshot) throws {
        guard let file = try snapshot.unwritableFile() else { return }
        let path = snapshot.location.directory.path.appending(file)
        throw RelocationFailure(
            .notPermitted, code: "not_writable", "\(PrintablePath(path)) can't be written to",
            remedy: "allow it, as its owner: chmod u+rw \(path.shellWord)")
    }

    private func checkAttributes(_ store: StoreLocation) throws {
        for part in try StoreSnapshot(store).parts {
            try checkAttributes(part, in: store.directory, as: store.directory.path.appending(part))
        }
    }

    /// A copy of a folder has files and directories only, and each original is removed afterwards.
    private func checkContent(_ folder: Directory) throws {
        for name in try folder.names() {
            let path = folder.path.appending(name)
            guard let kind = try folder.status(name)?.kind else { continue }
            try checkAttributes(name, in: folder, as: path)
            switch kind {
            case .directory where try !folder.isMountPoint(name): try checkContent(folder.directory(name))
            case .directory, .regular: break
            case .symbolicLink, .other:
                let error = UnsupportedFile(path: path)
                throw RelocationFailure(.badData, code: error.errorCode, error.message, remedy: error.remedy)
            }
        }
    }

    private func checkAttributes(_ name: FilePath.Component, in directory: Directory, as path: FilePath) throws {
        guard directory.isImmutable(name) else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_writable",
            "\(PrintablePath(path)) is immutable or append-only, so that nobody may move it or what is in it",
            remedy: "allow it, as root: chattr -ia \(path.shellWord)")
    }

    /// Checks the folder of external data: it is either moved to another parent, or copied and emptied.
    private func checkFolder(_ snapshot: StoreSnapshot) throws {
        let name = snapshot.location.name.support
        guard let status = snapshot.support, status.kind == .directory,
            let obstacle = try snapshot.location.directory.obstacle(
                toMoving: name, includingContents: needsCopy)
        else { return }
        throw RelocationFailure(
            .notPermitted, code: "not_writable", "\(PrintablePath(obstacle.path)) can't be \(obstacle.missingRight)",
            remedy: "allow it, as its owner: chmod \(obstacle.missingMode) \(obstacle.path.shellWord)")
    }

    private func checkWritable(_ directory: Directory) throws {
        if try directory.fileSystem().isReadOnly {
            throw RelocationFailure(
                .unusablePlace, code: "read_only", "\(PrintablePath(directory.path)) is on a read-only file system",
                remedy: "make it writable, then run this again: "
                    + "mount -o remount,rw \"$(stat -c %m \(directory.path.shellWord))\"")
        }
        guard faccessat(directory.raw, ".", W_OK | X_OK, AT_EACCESS) == 0 else {
            throw RelocationFailure(
                .notPermitted, code: "not_writable", "\(PrintablePath(directory.path)) can't be written to",
                remedy: "grant write permission on this directory, or run this as its owner")
        }
    }

    private func checkReach(_ directory: Directory) throws {
        let fileSystem = try directory.fileSystem()
        let location = "\(PrintablePath(directory.path)) is on \(fileSystem.name)"
        switch fileSystem.reach {
        case .local: return
        case .network:
            throw RelocationFailure(
                .unusablePlace, code: "network_file_system", "\(location), which other machines may use too",
                remedy: "relocate to and from file systems of this machine only")
        case .userSpace, .overlay:
            guard !assumeClosed else { return }
            throw RelocationFailure(
                .unusablePlace, code: "no_proof",
                "\(location), where it can't be proved that the store is closed",
                remedy: "close every program that uses it, then run this again with --assume-closed")
        }
    }
}

extension RelocationDecision {
    /// The files that a run makes beside external data, at least: the claim's record, the journal and what replaces it,
    /// and the staging directory with the store and what takes its name meanwhile.
    private static let transientFiles = 6
    /// `.groupstore` with its lock, `staging`, and `claims` with two locks.
    private static let firstRecords = 6

    /// Throws the failure with which a run ends if the group's file system has too few inodes. Call it before the run
    /// has made any of these files.
    func checkInodes() throws {
        let target = endpoints.group.directory
        guard plan.movesLegacyStore, let left = try target.fileSystem().availableFiles else { return }
        let isFirst = try endpoints.container.existingBookkeeping() == nil
        let support = endpoints.legacy.name.support
        let copied = needsCopy ? try endpoints.legacy.directory.fileCount(under: support) : 0
        let needed = Self.transientFiles + (isFirst ? Self.firstRecords : 0) + copied
        if left < UInt64(needed) {
            throw RelocationFailure.noInodes(target.path, left: left, needed: needed)
        }
    }
}
