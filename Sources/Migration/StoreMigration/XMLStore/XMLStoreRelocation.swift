import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The relocation of an XML store: it becomes a SQLite store in a group container, and the original goes to the group's
/// archive.
///
/// The archive has the whole file before the new store gets its name, and the original is removed only after that. So
/// the relocation can be killed at any time and run again: it begins again, or completes what it had begun.
package struct XMLStoreRelocation {
    private let migration: XMLStoreMigration
    private let container: GroupContainer
    private let name: StoreName
    private let deadline: Duration
    private let isCancelled: @Sendable () -> Bool

    package struct Summary {
        package let from: FilePath
        package let to: FilePath
        package let archive: FilePath?
        package let bytes: Int64
        package let result: XMLStoreMigration.Result?
        package let notes: [String]
    }

    /// - Parameters:
    ///   - name: The new store's name in the group container.
    ///   - deadline: How long another relocation in the group is waited for.
    package init(
        _ migration: XMLStoreMigration, into container: GroupContainer, as name: StoreName, deadline: Duration,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) {
        self.migration = migration
        self.container = container
        self.name = name
        self.deadline = deadline
        self.isCancelled = isCancelled
    }

    private var file: XMLStoreFile { migration.file }
    private var destination: StoreLocation { StoreLocation(directory: container.directory, name: name) }

    /// Says what would be done. Throws the errors of `run`.
    package func dryRun() throws -> Summary {
        if try isPublished() == .other { throw conflict() }
        return Summary(
            from: file.path, to: destination.path, archive: nil, bytes: Int64(file.bytes.count),
            result: try migration.rehearse(), notes: [])
    }

    /// Throws `RelocationFailure`, `XMLStoreError`, `MigrationError`, `StoreError`, `SystemError`. The original is in
    /// its place then.
    package func run(progress: @escaping MigrationManager.ProgressHandler = { _, _ in }) throws -> Summary {
        let lock = try lockGroup()
        defer { withExtendedLifetime(lock) {} }
        guard let (directory, last, before) = try original() else { throw gone() }
        switch try isPublished() {
        case .other: throw conflict()
        case .sameStore(let archive):
            // An earlier run was killed before it removed the original.
            let notes = try remove(last, in: directory, before)
            return Summary(
                from: file.path, to: destination.path, archive: archive, bytes: Int64(file.bytes.count), result: nil,
                notes: notes)
        case .nothing: break
        }
        try removeUnfinishedArchives(of: last)
        let new = try NewStore(at: destination)
        let result = try migration.run(into: new.staged, isCancelled: isCancelled, progress: progress)
        let archive = try keep(last)
        guard let now = try directory.status(last), now.isSameContent(as: before) else {
            try container.removeArchive(archive)
            throw changed()
        }
        try new.publish(mode: GroupContainer.fileMode(in: container.directory), writeAhead: true)
        let notes = try remove(last, in: directory, before)
        return Summary(
            from: file.path, to: destination.path, archive: container.archivePath(archive),
            bytes: Int64(file.bytes.count), result: result, notes: notes)
    }

    /// Waits for another relocation in the group.
    private func lockGroup() throws -> OpenFileLock {
        let end = Deadline(after: deadline)
        var backoff = Backoff(first: .milliseconds(5), longest: .milliseconds(250))
        while true {
            if let lock = try container.lock() { return lock }
            guard !end.hasPassed, !isCancelled() else {
                throw RelocationFailure(
                    .busy, code: "locked",
                    "another relocation is in progress in \(PrintablePath(container.directory.path)) (process "
                        + "\(container.lockHolder()))", remedy: "try again when it is done")
            }
            // No event reports the release of a lock.
            pause(backoff.next())
        }
    }

    // MARK: The original

    /// Returns the original's directory, name and status, if its bytes are those that were read.
    private func original() throws -> (Directory, FilePath.Component, FileStatus)? {
        let (directory, last) = try Directory.resolving(file: file.path)
        guard let status = try directory.status(last), status.kind == .regular,
            status.size == Int64(file.bytes.count),
            try Descriptor(opening: file.path, flags: 0).readAll(path: file.path) == file.bytes
        else { return nil }
        return (directory, last, status)
    }

    /// Puts the file into the archive, synced.
    private func keep(_ last: FilePath.Component) throws -> TransferIdentifier {
        let id = TransferIdentifier()
        let directory = try container.archive(id)
        try DurableFile.write(file.bytes, as: last, in: directory, mode: 0o600)
        var note = ArchiveNote(
            id: id, name: last, from: file.path, at: Date(),
            reason: "the XML store from which \(PrintablePath(destination.path)) was made")
        note.hasSupport = false
        note.hadWAL = false
        try container.write(note)
        return id
    }

    /// Removes what an earlier run that was killed has left of its archive: a set without a note whose files are the
    /// beginning of the original. The original is still in its place, and the caller holds the group's lock.
    private func removeUnfinishedArchives(of last: FilePath.Component) throws {
        for entry in try container.archives() where entry.note == nil {
            let names = try entry.directory.names().filter { !GroupContainer.isArchiveNote($0) }
            let holdsOnlyTheOriginal = try names.allSatisfy { name in
                guard [last, last.appending(".new")].contains(name),
                    try entry.directory.status(name)?.kind == .regular
                else { return false }
                let bytes = try entry.directory.openOwn(name, flags: O_RDONLY).readAll(
                    path: entry.directory.path.appending(name))
                return file.bytes.starts(with: bytes)
            }
            if holdsOnlyTheOriginal { try container.removeArchive(entry.id) }
        }
    }

    /// Removes the original, unless another program has written it since.
    private func remove(
        _ last: FilePath.Component, in directory: Directory, _ before: FileStatus
    ) throws -> [String] {
        guard let now = try directory.status(last) else { return [] }
        guard now.isSameContent(as: before) else {
            return [
                "\(PrintablePath(file.path)) was written while it was relocated, and stays there: the group's store has "
                    + "its former content"
            ]
        }
        try directory.removeFile(last)
        try directory.synchronize()
        return []
    }

    // MARK: The group

    private enum Published: Equatable {
        case nothing
        /// The store that was made from this file, which is in the archive at a path.
        case sameStore(FilePath)
        case other
    }

    /// Returns what has the new store's name.
    private func isPublished() throws -> Published {
        guard try container.directory.status(name.database) != nil else { return .nothing }
        guard let uuid = file.uuid,
            let found = try? StoreReader.read(destination, { try $0.text("SELECT Z_UUID FROM Z_METADATA") }),
            found == uuid
        else { return .other }
        for entry in try container.archives() where entry.isTrusted {
            guard let archived = entry.name, let status = try entry.directory.status(archived),
                status.size == Int64(file.bytes.count)
            else { continue }
            let path = entry.directory.path.appending(archived)
            let bytes = try entry.directory.openOwn(archived, flags: O_RDONLY).readAll(path: path)
            if bytes == file.bytes { return .sameStore(container.archivePath(entry.id)) }
        }
        return .other
    }

    private func conflict() -> RelocationFailure {
        RelocationFailure(
            .conflict, code: "conflict",
            "\(PrintablePath(destination.path)) exists, and wasn't made from \(PrintablePath(file.path)) as it is now",
            remedy: "choose another name (--name), or move one of them away")
    }

    private func gone() -> RelocationFailure {
        RelocationFailure(
            .busy, code: "in_use", "\(PrintablePath(file.path)) was written or removed since it was read",
            remedy: "close the program that writes it, then try again")
    }

    private func changed() -> RelocationFailure { gone() }
}

extension FileStatus {
    /// True if nobody has written the file in the meantime.
    fileprivate func isSameContent(as other: FileStatus) -> Bool {
        identity == other.identity && size == other.size && changed == other.changed
    }
}

extension Descriptor {
    /// Reads the file to its end.
    fileprivate func readAll(path: FilePath) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while true {
            let part = try read(count: 1 << 20, at: Int64(bytes.count), path: path)
            if part.isEmpty { return bytes }
            bytes += part
        }
    }
}
