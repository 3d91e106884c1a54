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
    /// The database when the set was archived; nil in a note of an older version.
    package var archived: FileState?
    /// The places that the store was restored to, while it stayed in the archive too; the last ones only.
    package var restored: [Restoration]?
    /// True if `guard` made the copy before a command, nil otherwise.
    package var isGuard: Bool?
    /// True if that command has lost rows, columns or tables, or may have: some can't be compared. False if it has not;
    /// nil if that isn't known.
    package var hasLoss: Bool?
    /// The lost files of which the archived store is a copy, if `rescue` made it, nil otherwise.
    package var branch: Branch?

    /// A program's own history of a store, in files that had lost their names.
    package struct Branch: Codable, Sendable, Equatable {
        /// A file, also after another one has got its inode.
        package struct File: Codable, Sendable, Equatable {
            package var identity: FileIdentity
            /// The creation time, in nanoseconds since 1970; nil if the file system doesn't record it.
            package var birth: Int64?

            package init(identity: FileIdentity, birth: Int64?) { (self.identity, self.birth) = (identity, birth) }
        }

        /// The database that the program had open, and its log.
        package var database: File
        package var log: File?
        /// The programs, in one phrase: `notes (pid 4711)`.
        package var holders: String
        package var hadWAL = false
        /// True once the store has the branch's rows, and the store's file then.
        package var isJoined = false
        package var store: File?

        package init(database: File, log: File?, holders: String) {
            (self.database, self.log, self.holders) = (database, log, holders)
        }

        /// True if both are copies of the same files, made at different times perhaps.
        package func isOfSameFiles(as other: Branch) -> Bool { database == other.database && log == other.log }
    }

    /// The facts that tell whether anybody has written to an archived database since.
    package struct FileState: Codable, Sendable, Equatable {
        package var inode: UInt64
        package var size: Int64
        /// The times of the last write and of the last change of any kind, in nanoseconds since 1970. No program can
        /// set the latter.
        package var modified: Int64
        package var changed: Int64
        /// The hash of the content, as in a receipt; nil if it was not read.
        package var hash: String?

        package init(_ status: FileStatus, hash: String? = nil) {
            inode = status.identity.inode
            size = status.size
            modified = status.modified
            changed = status.changed
            self.hash = hash
        }
    }

    /// A place that an archived store was copied back to.
    package struct Restoration: Codable, Sendable, Equatable {
        package var to: StoredPath
        package var at: Date
        /// The copy's file.
        package var file: FileIdentity
        /// The file's creation time, in nanoseconds since 1970; nil if the file system doesn't record it. A later file
        /// may reuse the inode.
        package var birth: Int64?
        /// The archived database when it was copied; nil in a note of an older version.
        package var archived: FileState?

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
    /// The same, or the owner of the directory of archives wrote the note: root gives what it archives to that user.
    package let isTrustedInside: Bool

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
        let owner = try parent.status().owner
        return ArchiveEntry(
            id: id, directory: directory, note: read?.value,
            isTrusted: read.map { $0.status.isWritten(by: [0, geteuid()]) } ?? false,
            isTrustedInside: read.map { $0.status.isWritten(by: [0, geteuid(), owner]) } ?? false)
    }

    private func archiveDirectory() throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.archiveName) != nil else {
            return nil
        }
        return try bookkeeping.directory(Self.archiveName)
    }

    /// Takes an archived set out of the list under a name of its own, which no program knows. Throws EEXIST
    /// if there is such a set already. The caller must hold the group's lock.
    package func withdrawArchive(_ id: TransferIdentifier) throws(SystemError) {
        try renameArchive(from: id.component, to: Self.purgedName(id))
    }

    /// Gives a withdrawn set its name back, unless another set has it.
    package func returnArchive(_ id: TransferIdentifier) throws(SystemError) {
        try renameArchive(from: Self.purgedName(id), to: id.component)
    }

    private func renameArchive(
        from name: FilePath.Component, to other: FilePath.Component
    ) throws(SystemError) {
        guard let directory = try archiveDirectory() else { return }
        try directory.rename(name, to: other, in: directory, .refuse)
        try directory.synchronize()
    }

    /// Removes a withdrawn set, its note last. Throws ENOTEMPTY if it has files, unless `includingContents` is true.
    package func removeWithdrawnArchive(_ id: TransferIdentifier, includingContents: Bool) throws(SystemError) {
        guard let directory = try archiveDirectory(), case let name = Self.purgedName(id),
            try directory.status(name)?.kind == .directory
        else { return }
        let set = try directory.directory(name)
        for name in try set.names() where !Self.isArchiveNote(name) {
            if includingContents { try set.removeTree(name) } else { try set.removeDirectories(name) }
        }
        for name in try set.names() where Self.isArchiveNote(name) { try set.removeFile(name) }
        try directory.removeDirectory(name)
        try directory.synchronize()
    }

    /// Gives sets that a killed process has withdrawn their names back: only the proof that its content is elsewhere
    /// allows to remove one, and it has to be made again. The caller must hold the group's lock.
    package func returnWithdrawnArchives() throws(SystemError) {
        for id in try withdrawnArchives() { try returnArchive(id) }
    }

    package func hasWithdrawnArchives() throws(SystemError) -> Bool { try !withdrawnArchives().isEmpty }

    /// Returns the withdrawn sets whose names are free.
    private func withdrawnArchives() throws(SystemError) -> [TransferIdentifier] {
        guard let directory = try archiveDirectory() else { return [] }
        var found: [TransferIdentifier] = []
        for name in try directory.names() {
            guard let text = name.utf8, text.hasSuffix(Self.purgedSuffix),
                let id = TransferIdentifier(String(text.dropLast(Self.purgedSuffix.utf8.count))),
                try directory.status(id.component) == nil
            else { continue }
            found.append(id)
        }
        return found
    }

    private static func purgedName(_ id: TransferIdentifier) -> FilePath.Component {
        id.component.appending(purgedSuffix) ?? id.component
    }

    private static let purgedSuffix = ".purged"
}
