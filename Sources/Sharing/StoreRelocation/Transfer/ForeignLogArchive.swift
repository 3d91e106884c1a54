import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Keeps another database's write-ahead log, which lies beside a store, in the group's archive. SQLite would replay it
/// into the store.
struct ForeignLogArchive {
    let container: GroupContainer
    let store: StoreLocation
    let assumeClosed: Bool

    /// Moves the log and its index into the archive, and returns a note for the user. The database alone must be sound,
    /// and no program may have it open.
    ///
    /// Throws `StoreTransfer.RetryReason`, `RelocationFailure` if the database is not sound, and `SystemError`.
    func setAside(_ log: ForeignLog) throws -> String {
        let before = try FileState(of: store)
        guard try isIntactWithout(log) else { throw StoreTransfer.RetryReason.changed }
        let id = TransferIdentifier()
        try container.write(
            ArchiveNote(id: id, name: store.name.database, from: store.path, at: Date(), reason: log.description))
        let archive = try container.archive(id)
        do {
            try underLease {
                guard try FileState(of: store) == before else { throw StoreTransfer.RetryReason.changed }
                // The index, which SQLite rebuilds, goes first: beside a log, it may be taken for that log's.
                try move(store.name.sharedMemory, to: archive)
                try move(store.name.wal, to: archive)
            }
        } catch {
            try container.removeEmptiedArchive(id)
            throw error
        }
        try archive.synchronize()
        try store.directory.synchronize()
        return "\(log.description); it is kept in \(PrintablePath(archive.path))"
    }

    /// Returns true if the database is sound without the log, and false if another program keeps it from being read so.
    /// Throws `RelocationFailure` if it is damaged, or if the log may be the store's own, because the store was split.
    func isIntactWithout(_ log: ForeignLog) throws -> Bool {
        let branches = try SavedBranches(GroupContainer(directory: store.directory)).notes(of: store.name.database)
        if let branch = branches.first, log.mismatch != .rollbackMode {
            throw RelocationFailure(
                .badData, code: "foreign_log",
                "\(log.description), or the store's own, under which a program that had lost its log has written: "
                    + branch,
                remedy: "join what both have: groupstore rescue \(store.path.shellWord)")
        }
        let problem: String?
        do {
            let found = try StoreReader.read(store) { reader in
                reader.readsDatabaseOnly ? try reader.integrityFindings() : nil
            }
            guard let found else { return false }
            problem = found.first
        } catch StoreError.corrupt(_, let message, _) {
            problem = message
        }
        guard let problem else { return true }
        throw RelocationFailure(
            .badData, code: "foreign_log", "\(log.description), and the database alone is damaged: \(problem)",
            remedy: "restore the database and the log that belong together, or "
                + StoreError.recovery(of: store.path))
    }

    /// Runs `body` while no other process has the database open.
    private func underLease(_ body: () throws -> Void) throws {
        guard !assumeClosed else { return try body() }
        let descriptor = try store.directory.open(store.name.database, flags: O_RDWR)
        guard let lease = try StoreTransfer.lease(descriptor) else {
            throw StoreTransfer.RetryReason.held(try descriptor.status(path: store.path).identity)
        }
        try withExtendedLifetime(lease) { _ in try body() }
    }

    private func move(_ name: FilePath.Component, to archive: Directory) throws {
        guard let found = try store.directory.status(name) else { return }
        do throws(SystemError) {
            try store.directory.rename(name, to: name, in: archive, .refuse)
        } catch {
            guard error.errno == .improperLink else { throw error }
            try copy(name, found, to: archive)
            try store.directory.removeFile(name)
        }
    }

    /// Copies the file to another file system, synced.
    private func copy(_ name: FilePath.Component, _ found: FileStatus, to archive: Directory) throws {
        let source = try store.directory.open(name, flags: O_RDONLY)
        let target = try archive.open(name, flags: O_WRONLY | O_CREAT | O_EXCL, mode: found.permissions)
        var copy = FileCopy(from: store.directory.path.appending(name), to: archive.path.appending(name))
        copy.maximumSize = found.size
        _ = try copy.run(from: source, to: target)
        try target.synchronize(path: archive.path.appending(name))
        try archive.synchronize()
    }

    /// The files on which the proof rests.
    private struct FileState: Equatable {
        let database: FileStatus?
        let log: FileStatus?
        let journal: FileStatus?

        init(of store: StoreLocation) throws(SystemError) {
            database = try store.directory.status(store.name.database)
            log = try store.directory.status(store.name.wal)
            journal = try store.directory.status(store.name.journal)
        }
    }
}
