import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The files of an archived set by their paths in it, without its note.
struct ArchivedFiles: Equatable {
    let statuses: [FilePath: FileStatus]

    init(in directory: Directory) throws(SystemError) {
        var found: [FilePath: FileStatus] = [:]
        try Self.add(directory, below: FilePath(""), to: &found)
        statuses = found
    }

    /// Returns the state of the files, once any later write changes it. Throws `ArchiveRemoval.InUse` if they are
    /// written all the time.
    static func settled(in directory: Directory) throws -> ArchivedFiles {
        let start = ContinuousClock.now
        repeat {
            let files = try ArchivedFiles(in: directory)
            if files.statuses.values.allSatisfy({ FileTime.isSettled($0.changed) }) { return files }
            pause(FileTime.resolution / 4)
        } while start.duration(to: .now) < FileTime.resolution * 10
        throw ArchiveRemoval.InUse(reason: "it is being written to")
    }

    private static func add(
        _ directory: Directory, below path: FilePath, to found: inout [FilePath: FileStatus]
    ) throws(SystemError) {
        for name in try directory.names() {
            if path.isEmpty, GroupContainer.isArchiveNote(name) { continue }
            guard let status = try directory.status(name) else { continue }
            if status.kind == .directory {
                try add(directory.directory(name), below: path.appending(name), to: &found)
            } else {
                found[path.appending(name)] = status
            }
        }
    }

    /// Returns the files of all of the group's archived sets.
    static func identities(in container: GroupContainer) throws -> Set<FileIdentity> {
        Set(try container.archives().flatMap { try ArchivedFiles(in: $0.directory).statuses.values.map(\.identity) })
    }

    var isEmpty: Bool { statuses.isEmpty }
    var areEmptyFiles: Bool { statuses.values.allSatisfy { $0.kind == .regular && $0.size == 0 } }
    var haveExternalData: Bool { statuses.contains { $0.key.components.count > 1 && $0.value.size > 0 } }

    /// Returns a file that is neither the database nor external data, and has content: a log, for example, that a
    /// program has left. A wal-index has none.
    func first(besidesStoreNamed name: StoreName) -> FilePath? {
        statuses.keys.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.first { path in
            guard let top = path.components.first, let status = statuses[path] else { return false }
            if status.kind == .regular, status.size == 0 { return false }
            return top != name.database && top != name.support && top != name.sharedMemory
        }
    }
}

/// Removes an archived set whose content is proved to be elsewhere.
///
/// 1. A write lease on the database proves that no program has it open. The files must be those that were compared.
/// 2. The set gets a name that no program knows. After the grace period, the lease still proves that nobody opened it.
/// 3. Each external file is removed under a lease of its own, the database last. Whenever the process is killed, what
///    is left can be compared again under the set's own name.
struct ArchiveRemoval {
    /// A program has the set open, or has changed it since it was compared.
    struct InUse: Error {
        let reason: String
    }

    private let set: ArchivedStore
    private let container: GroupContainer
    private let gracePeriod: OpenerGracePeriod

    init(of set: ArchivedStore, in container: GroupContainer, gracePeriod: OpenerGracePeriod) {
        self.set = set
        self.container = container
        self.gracePeriod = gracePeriod
    }

    /// Removes the set if its files are `files` and `isProven` returns true. Throws `InUse` otherwise; the set then has
    /// its name.
    func run(_ files: ArchivedFiles, _ isProven: () throws -> Bool) throws {
        guard let database = set.entry.name, files.statuses[FilePath(root: nil, [database])]?.kind == .regular else {
            return try withdraw(files, isProven: isProven) { try removeFiles(files, besides: nil) }
        }
        let directory = set.entry.directory
        let descriptor = try directory.open(database, flags: O_RDONLY)
        try withLease(descriptor, of: FilePath(root: nil, [database])) { isIntact in
            try withdraw(files, isProven: { try isIntact() && isProven() }) {
                try removeFiles(files, besides: database)
                guard isIntact(), try isProven() else { throw Self.changed }
                try directory.removeFile(database)
            }
        }
    }

    /// Throws `InUse` if `run` would at this moment.
    func rehearse(_ files: ArchivedFiles, _ isProven: () throws -> Bool) throws {
        guard let database = set.entry.name, files.statuses[FilePath(root: nil, [database])]?.kind == .regular else {
            return
        }
        let descriptor = try set.entry.directory.open(database, flags: O_RDONLY)
        try withLease(descriptor, of: FilePath(root: nil, [database])) { _ in }
    }

    private func withdraw(
        _ files: ArchivedFiles, isProven: () throws -> Bool, _ remove: () throws -> Void
    ) throws {
        let directory = set.entry.directory
        guard try ArchivedFiles(in: directory) == files, try isProven() else { throw Self.changed }
        try container.withdrawArchive(set.id)
        do {
            gracePeriod.wait()
            guard try ArchivedFiles(in: directory) == files, try isProven() else { throw Self.changed }
            try remove()
            // What has come since stays.
            guard try ArchivedFiles(in: directory).isEmpty else { throw Self.changed }
            try directory.synchronize()
        } catch {
            try container.returnArchive(set.id)
            throw error
        }
        // The note is no content.
        try container.removeWithdrawnArchive(set.id, includingContents: false)
    }

    /// Removes files as they were compared. Leaves the directories: an empty folder of external data shows that there
    /// was one.
    private func removeFiles(_ files: ArchivedFiles, besides database: FilePath.Component?) throws {
        for (path, status) in files.statuses where database.map({ path != FilePath(root: nil, [$0]) }) ?? true {
            guard let name = path.lastComponent, status.kind == .regular else { throw Self.changed }
            var directory = set.entry.directory
            for parent in path.removingLastComponent().components { directory = try directory.directory(parent) }
            let descriptor = try directory.open(name, flags: O_RDONLY)
            try withLease(descriptor, of: path) { isIntact in
                guard try directory.status(name) == status, isIntact() else { throw Self.changed }
                try directory.removeFile(name)
            }
        }
    }

    private static let changed = InUse(reason: "it, or the store that has its content, was changed meanwhile")

    private func withLease(
        _ descriptor: borrowing Descriptor, of path: FilePath, _ body: (_ isIntact: () -> Bool) throws -> Void
    ) throws {
        let held: FileLease?
        do throws(SystemError) {
            held = try StoreTransfer.lease(descriptor)
        } catch {
            throw InUse(reason: "it can't be proved that no program has \(PrintablePath(path)) open: \(error.message)")
        }
        guard let lease = held else { throw InUse(reason: "a program has \(PrintablePath(path)) open") }
        let raw = descriptor.raw
        try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
    }
}
