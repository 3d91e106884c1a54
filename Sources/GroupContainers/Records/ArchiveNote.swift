import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// The file `about.json` beside an archived set. It says what the set is and why it is there.
package struct ArchiveNote: Codable, Sendable, Equatable {
    package var version = 1
    package var id: TransferIdentifier
    package var name: StoredPath
    package var from: StoredPath
    package var at: Date
    /// One sentence for the user.
    package var reason: String
    /// True if the store had a support folder; nil in a note of an older version.
    package var hasSupport: Bool?
    /// True if write-ahead logging was on. An archived store is in rollback mode. Nil in a note of an older version.
    package var hadWAL: Bool?
    /// The places that the store was restored to, while it stayed in the archive too; the last ones only.
    package var restored: [Restoration]?

    /// A place that an archived store was copied back to.
    package struct Restoration: Codable, Sendable, Equatable {
        package var to: StoredPath
        package var at: Date
        /// The copy's file.
        package var file: FileIdentity
        /// The file's creation time, in nanoseconds since 1970; nil if the file system doesn't record it. A later file
        /// may reuse the inode.
        package var birth: Int64?

        package init(to: FilePath, at: Date, file: FileIdentity, birth: Int64?) {
            self.to = StoredPath(to)
            self.at = at
            self.file = file
            self.birth = birth
        }

        /// Returns true if the file with this status and creation time is the copy. Compares only the inode: a reboot
        /// may renumber devices.
        package func isCopy(_ status: FileStatus, birth: Int64?) -> Bool {
            guard let known = self.birth, let birth else { return false }
            return file.inode == status.identity.inode && known == birth
        }
    }

    package init(id: TransferIdentifier, name: FilePath.Component, from: FilePath, at: Date, reason: String) {
        self.id = id
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.from = StoredPath(from)
        self.at = at
        self.reason = reason
    }

    /// Adds a restoration, and forgets all but the last eight.
    package mutating func add(_ restoration: Restoration) {
        restored = Array(((restored ?? []).filter { $0.to != restoration.to } + [restoration]).suffix(8))
    }
}

/// The directory of one archived set, with its note.
package struct ArchiveEntry: Sendable {
    package let id: TransferIdentifier
    package let directory: Directory
    /// Nil if the directory has no readable note.
    package let note: ArchiveNote?
    /// True if only root or this user can have written the note. Anybody who may write to a group container could leave
    /// a note there that names a place of another user.
    package let isTrusted: Bool

    /// The database's name in the directory; nil if the note names none.
    package var name: FilePath.Component? {
        guard let path = note?.name.path, path.components.count == 1 else { return nil }
        return path.lastComponent
    }
}

extension GroupContainer {
    static let noteName: FilePath.Component = "about.json"

    /// Returns true if an archived set's note has this name, or one that a killed process has left half written.
    package static func isArchiveNote(_ name: FilePath.Component) -> Bool {
        name == noteName || name == noteName.appending(".new")
    }

    package func write(_ note: ArchiveNote) throws {
        try Record.write(note, Self.noteName, in: archive(note.id))
    }

    /// Returns the archived sets, oldest first. Creates nothing.
    package func archives() throws -> [ArchiveEntry] {
        guard let directory = try archiveDirectory() else { return [] }
        return try directory.names().compactMap { name in
            guard let id = name.utf8.flatMap(TransferIdentifier.init), try directory.status(name)?.kind == .directory
            else { return nil }
            return try Self.entry(id, in: directory)
        }
        .sorted { ($0.note?.at ?? .distantPast, $0.id.rawValue) < ($1.note?.at ?? .distantPast, $1.id.rawValue) }
    }

    /// Returns one archived set, or nil if there is none with that identifier.
    package func archivedSet(_ id: TransferIdentifier) throws -> ArchiveEntry? {
        guard let directory = try archiveDirectory(), try directory.status(id.component)?.kind == .directory else {
            return nil
        }
        return try Self.entry(id, in: directory)
    }

    private static func entry(_ id: TransferIdentifier, in parent: Directory) throws(SystemError) -> ArchiveEntry {
        let directory = try parent.directory(id.component)
        let read = try? Record.readWithStatus(ArchiveNote.self, noteName, in: directory)
        let isTrusted = read.map { [0, geteuid()].contains($0.status.owner) && $0.status.permissions & 0o022 == 0 }
        return ArchiveEntry(id: id, directory: directory, note: read?.value, isTrusted: isTrusted ?? false)
    }

    private func archiveDirectory() throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.archiveName) != nil else {
            return nil
        }
        return try bookkeeping.directory(Self.archiveName)
    }

    /// Removes archived sets for good. Each loses its name first: if the process dies meanwhile, no half a set is
    /// listed, and the next call removes the rest. The caller must hold the group's lock.
    package func purgeArchives(_ ids: [TransferIdentifier]) throws(SystemError) {
        guard let directory = try archiveDirectory() else { return }
        for id in ids {
            guard let purged = id.component.appending(Self.purgedSuffix), try directory.status(id.component) != nil
            else { continue }
            try directory.removeTree(purged)
            try directory.rename(id.component, to: purged, in: directory, .refuse)
            try directory.synchronize()
            try directory.removeTree(purged)
        }
        for name in try directory.names() where Self.isPurged(name) { try directory.removeTree(name) }
        try directory.synchronize()
    }

    private static let purgedSuffix = ".purged"

    private static func isPurged(_ name: FilePath.Component) -> Bool {
        guard let text = name.utf8, text.hasSuffix(purgedSuffix) else { return false }
        return TransferIdentifier(String(text.dropLast(purgedSuffix.utf8.count))) != nil
    }
}
