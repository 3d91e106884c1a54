import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// An archived set: its files, and whether they are a whole store. Reading it changes nothing.
package struct ArchivedStore: Sendable {
    package enum State: String, Sendable {
        case complete
        /// A part of the store is missing.
        case incomplete
        /// Files that were found where a store was published, without a store.
        case leftovers
        /// A transfer to or from the archive is under way or was interrupted.
        case unfinished
        /// The directory has no readable note.
        case unknown
    }

    /// A file of the set.
    package struct File: Sendable {
        /// The path in the set's directory.
        package let path: FilePath
        /// The size in bytes.
        package let size: Int64
    }

    package let entry: ArchiveEntry
    package let files: [File]
    package let state: State
    /// A sentence about what is wrong; nil if nothing is.
    package let problem: String?

    package var id: TransferIdentifier { entry.id }
    package var bytes: Int64 { files.reduce(0) { $0 + $1.size } }
    package var path: FilePath { entry.directory.path }
    /// The archived database; nil if the note names none.
    package var location: StoreLocation? {
        entry.name.flatMap(StoreName.existing).map { StoreLocation(directory: entry.directory, name: $0) }
    }

    package init(_ entry: ArchiveEntry, in container: GroupContainer) throws {
        self.entry = entry
        files = try Self.files(in: entry.directory, below: FilePath("")).sorted {
            $0.path.bytes.lexicographicallyPrecedes($1.path.bytes)
        }
        (state, problem) = try Self.state(of: entry, in: container)
    }

    /// Returns the group's archived sets, oldest first. Throws `SystemError` and `UnreadableRecord`.
    package static func all(in container: GroupContainer) throws -> [ArchivedStore] {
        // A set may go away meanwhile: its relocation is undone, or it is purged.
        try container.archives().compactMap { entry in
            do {
                return try ArchivedStore(entry, in: container)
            } catch let error as SystemError where error.errno == .noSuchFileOrDirectory {
                return nil
            }
        }
    }

    private static func state(
        of entry: ArchiveEntry, in container: GroupContainer
    ) throws -> (State, String?) {
        if try container.journals().contains(where: { $0.uses(entry, of: container) }) {
            return (.unfinished, "a relocation that uses it is under way or was interrupted (groupstore recover)")
        }
        guard let note = entry.note, let name = entry.name.flatMap(StoreName.existing) else {
            return (.unknown, "its about.json is missing or can't be read")
        }
        let snapshot = try StoreSnapshot(StoreLocation(directory: entry.directory, name: name))
        switch snapshot.database {
        case .absent, .empty:
            // Only the note of a store says whether there was a support folder.
            return note.hasSupport == nil ? (.leftovers, nil) : (.incomplete, "its database is missing")
        case .unusual: return (.incomplete, "its database is not a regular file")
        case .sqlite, .foreign: break
        }
        do {
            try snapshot.checkWhole()
        } catch let error as StoreContents.Unreadable {
            return (.incomplete, error.message)
        }
        if note.hasSupport == true, snapshot.support?.kind != .directory {
            return (.incomplete, "its support folder is missing")
        }
        return (.complete, nil)
    }

    private static func files(in directory: Directory, below path: FilePath) throws(SystemError) -> [File] {
        var found: [File] = []
        for name in try directory.names() {
            if path.isEmpty, GroupContainer.isArchiveNote(name) { continue }
            guard let status = try directory.status(name) else { continue }
            if status.kind == .directory {
                found += try files(in: directory.directory(name), below: path.appending(name))
            } else {
                found.append(File(path: path.appending(name), size: status.kind == .regular ? status.size : 0))
            }
        }
        return found
    }
}

extension TransferJournal {
    /// Returns true if the transfer moves a set into that archive or out of it.
    func uses(_ entry: ArchiveEntry, of container: GroupContainer) -> Bool {
        if transfer.id == entry.id || transfer.directory.path == container.archivePath(entry.id) { return true }
        guard case .restore(_, _, let taken) = transfer.purpose else { return false }
        return taken == entry.id && isFromArchive(of: container)
    }

    /// True if the transfer restores an archived set. Undoing a relocation moves a set out of the group's directory.
    func isFromArchive(of container: GroupContainer) -> Bool {
        guard case .restore(_, _, let taken) = transfer.purpose else { return false }
        return transfer.directory.path == container.archivePath(taken)
    }
}
