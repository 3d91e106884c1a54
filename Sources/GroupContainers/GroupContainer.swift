import Glibc
import LinuxSystem
import SystemPackage

/// A group's directory on this machine, and `.groupstore` in it, where everything of ours is kept:
///
///     .groupstore/lock          held by whoever moves a store (an open-file-description lock)
///     .groupstore/journal.json  the transfer under way; gone when it is over
///     .groupstore/postponed/    journals of transfers that can't be brought to their end now
///     .groupstore/receipts/     one file a relocation done
///     .groupstore/staging/      copies not yet published
///     .groupstore/archive/      sets put aside, each in a directory with an `about.json`
///     .groupstore/claims/       a lock file an item that was ever claimed, and who holds claims now
public struct GroupContainer: Sendable {
    package let directory: Directory
    /// Nil when it was named by its directory alone: an agent can't be asked about it then.
    package let identifier: GroupIdentifier?

    package static let bookkeepingName: FilePath.Component = ".groupstore"
    static let lockName: FilePath.Component = "lock"
    static let journalName: FilePath.Component = "journal.json"
    static let postponedName: FilePath.Component = "postponed"
    static let receiptsName: FilePath.Component = "receipts"
    static let stagingName: FilePath.Component = "staging"
    static let archiveName: FilePath.Component = "archive"
    static let claimsName: FilePath.Component = "claims"

    package init(directory: Directory, identifier: GroupIdentifier? = nil) {
        self.directory = directory
        self.identifier = identifier
    }

    /// Opens the directory, following symbolic links. Throws when it isn't there.
    package init(_ path: FilePath, identifier: GroupIdentifier? = nil) throws(SystemError) {
        self.init(directory: try Directory(path), identifier: identifier)
    }

    /// Whether that is a container's `.groupstore`, or below one; another directory of that name has no such lock.
    package static func isBookkeeping(_ path: FilePath) -> Bool {
        var place = path
        while let name = place.lastComponent {
            if name == bookkeepingName, FileStatus(following: place.appending(lockName))?.kind == .regular {
                return true
            }
            place.removeLastComponent()
        }
        return false
    }

    /// `.groupstore`; nil when it was never made. A symbolic link in its place is an error.
    package func existingBookkeeping() throws(SystemError) -> Directory? {
        guard try directory.status(Self.bookkeepingName) != nil else { return nil }
        return try directory.directory(Self.bookkeepingName)
    }

    /// `.groupstore`, made where it is missing, never wider than the group's directory is.
    package func bookkeeping() throws(SystemError) -> Directory {
        try Self.child(Self.bookkeepingName, of: directory)
    }

    /// The directory for staged copies of one transfer.
    package func staging(_ id: TransferIdentifier) throws(SystemError) -> Directory {
        try Self.child(id.component, of: Self.child(Self.stagingName, of: bookkeeping()))
    }

    /// The same, where it is there; looking makes nothing.
    package func existingStaging(_ id: TransferIdentifier) throws(SystemError) -> Directory? {
        try existing(id, in: Self.stagingName)
    }

    /// The directory that one archived set gets for itself.
    package func archive(_ id: TransferIdentifier) throws(SystemError) -> Directory {
        try Self.child(id.component, of: Self.child(Self.archiveName, of: bookkeeping()))
    }

    /// The same, where it is there; looking makes nothing.
    package func existingArchive(_ id: TransferIdentifier) throws(SystemError) -> Directory? {
        try existing(id, in: Self.archiveName)
    }

    private func existing(
        _ id: TransferIdentifier, in name: FilePath.Component
    ) throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(name) != nil else { return nil }
        let parent = try bookkeeping.directory(name)
        return try parent.status(id.component) == nil ? nil : try parent.directory(id.component)
    }

    /// Where all archived sets are, or would be.
    package var archivePath: FilePath { directory.path.appending([Self.bookkeepingName, Self.archiveName]) }

    /// Where that archive is, or would be.
    package func archivePath(_ id: TransferIdentifier) -> FilePath {
        directory.path.appending([Self.bookkeepingName, Self.archiveName, id.component])
    }

    /// Removes what was staged for a transfer; nothing when nothing was.
    package func removeStaging(_ id: TransferIdentifier) throws(SystemError) {
        try remove(id, in: Self.stagingName)
    }

    /// Removes the archive of a transfer that was undone.
    package func removeArchive(_ id: TransferIdentifier) throws(SystemError) {
        try remove(id, in: Self.archiveName)
    }

    /// Removes what is left of an archive when its set was taken back out: nothing while more than its note is there.
    package func removeEmptiedArchive(_ id: TransferIdentifier) throws(SystemError) {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.archiveName) != nil
        else { return }
        let parent = try bookkeeping.directory(Self.archiveName)
        guard try parent.status(id.component) != nil else { return }
        let archive = try parent.directory(id.component)
        guard try archive.names().allSatisfy({ $0 == Self.noteName }) else { return }
        try archive.removeFile(Self.noteName)
        try parent.removeDirectory(id.component)
        try parent.synchronize()
    }

    private func remove(_ id: TransferIdentifier, in name: FilePath.Component) throws(SystemError) {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(name) != nil else { return }
        let parent = try bookkeeping.directory(name)
        try parent.removeTree(id.component)
        try parent.synchronize()
    }

    /// The directory `name`, made where it is missing with its parent's mode.
    package static func child(
        _ name: FilePath.Component, of parent: Directory
    ) throws(SystemError) -> Directory {
        if try parent.status(name) == nil {
            do throws(SystemError) {
                let mode = try parent.status().permissions & 0o777
                try parent.makeDirectory(name, mode: mode)
                let made = try parent.directory(name)
                // The umask must not shut out those whom the group directory lets in.
                let given = try made.status().permissions
                if given & mode != mode { try made.setPermissions(given | mode) }
                // Whoever may write to the parent could have put another directory there meanwhile: a new one is empty.
                if try made.names().isEmpty { parent.giveToOwner(made) }
                try parent.synchronize()
            } catch {
                if error.errno != .fileExists { throw error }
            }
        }
        return try parent.directory(name)
    }

    /// The mode of the files we make: what the directory grants, less the right to execute.
    package static func fileMode(in directory: Directory) throws(SystemError) -> mode_t {
        try directory.status().permissions & 0o666
    }
}

extension GroupContainer {
    /// The lock that whoever moves a store of this group holds; nil when somebody else does.
    package func lock() throws(SystemError) -> OpenFileLock? {
        let bookkeeping = try bookkeeping()
        return try OpenFileLock(Self.lockName, in: bookkeeping, mode: Self.fileMode(in: bookkeeping))
    }

    /// Who holds the lock, as its holder noted it; empty when unknown.
    package func lockHolder() -> String {
        guard let bookkeeping = try? existingBookkeeping() else { return "" }
        return String(decoding: OpenFileLock.note(Self.lockName, in: bookkeeping), as: UTF8.self)
    }
}
