import Glibc
import LinuxSystem
import SystemPackage

/// A group's directory on this machine, shared by the apps of the group.
///
/// Apps create a container from the group's identifier, with `init(identifier:)` of the module `GroupStore`, and pass
/// it to a `FileCoordinator`:
///
///     let container = try GroupContainer(identifier: "group.com.example.notes")
///     let coordinator = FileCoordinator(in: container)
///
/// - Important: The subdirectory `.groupstore` holds the package's own records and locks. Don't change or remove
///   anything in it:
///
///     .groupstore/lock          locked by the process that moves a store (an open-file-description lock)
///     .groupstore/journal.json  the transfer in progress; removed when it is complete
///     .groupstore/postponed/    journals of transfers that can't be completed at present
///     .groupstore/receipts/     one file per completed relocation
///     .groupstore/staging/      copies that are not yet published
///     .groupstore/archive/      archived sets, each in a directory with an `about.json`
///     .groupstore/claims/       one lock file per item that was ever claimed, and the holders of current claims
///     .groupstore/replicas/     snapshots that are being received, and the locks of followed replicas
public struct GroupContainer: Sendable {
    package let directory: Directory
    /// The group's identifier. It is nil if the container was named by its directory alone; an agent can't be asked
    /// about such a container.
    package let identifier: GroupIdentifier?

    package static let bookkeepingName: FilePath.Component = ".groupstore"
    static let lockName: FilePath.Component = "lock"
    static let journalName: FilePath.Component = "journal.json"
    static let postponedName: FilePath.Component = "postponed"
    static let receiptsName: FilePath.Component = "receipts"
    static let stagingName: FilePath.Component = "staging"
    static let archiveName: FilePath.Component = "archive"
    static let claimsName: FilePath.Component = "claims"
    static let replicasName: FilePath.Component = "replicas"

    package init(directory: Directory, identifier: GroupIdentifier? = nil) {
        self.directory = directory
        self.identifier = identifier
    }

    /// Opens the directory, following symbolic links. Throws `SystemError` if the directory doesn't exist.
    package init(_ path: FilePath, identifier: GroupIdentifier? = nil) throws(SystemError) {
        self.init(directory: try Directory(path), identifier: identifier)
    }

    /// False if the directory was moved or removed. Another one may be at its path, where other processes look for the
    /// group: locks in this one hold nobody off any more.
    package var isCurrent: Bool { FileStatus(following: directory.path)?.identity == directory.identity }

    /// True if another directory is at its path.
    package var isReplaced: Bool { !isCurrent && FileStatus(following: directory.path)?.kind == .directory }

    /// Returns the container at this one's path: another value if another directory has replaced this one there.
    /// Throws `SystemError` if there is no directory.
    package func current() throws(SystemError) -> GroupContainer {
        isCurrent ? self : try GroupContainer(directory.path, identifier: identifier)
    }

    /// Returns true if the path is a container's `.groupstore` or lies below one. Only a container's has the lock file;
    /// another directory of that name has none.
    package static func isBookkeeping(_ path: FilePath) -> Bool {
        var ancestor = path
        while let name = ancestor.lastComponent {
            if name == bookkeepingName, FileStatus(following: ancestor.appending(lockName))?.kind == .regular {
                return true
            }
            ancestor.removeLastComponent()
        }
        return false
    }

    /// Returns `.groupstore`, or nil if it was never created. Throws if a symbolic link stands in its place.
    package func existingBookkeeping() throws(SystemError) -> Directory? {
        guard try directory.status(Self.bookkeepingName) != nil else { return nil }
        return try directory.directory(Self.bookkeepingName)
    }

    /// Returns `.groupstore` and creates it if missing. Its mode grants no more than that of the group's directory.
    package func bookkeeping() throws(SystemError) -> Directory {
        try Self.child(Self.bookkeepingName, of: directory)
    }

    /// Returns the directory for what a relay keeps beside its replicas and creates it if missing.
    package func replicas() throws(SystemError) -> Directory { try Self.child(Self.replicasName, of: bookkeeping()) }

    /// Returns the same directory, or nil if it was never created.
    package func existingReplicas() throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.replicasName) != nil else {
            return nil
        }
        return try bookkeeping.directory(Self.replicasName)
    }

    /// Returns the directory for the staged copies of one transfer and creates it if missing.
    package func staging(_ id: TransferIdentifier) throws(SystemError) -> Directory {
        try Self.child(id.component, of: Self.child(Self.stagingName, of: bookkeeping()))
    }

    /// Returns the same directory if it exists. Creates nothing.
    package func existingStaging(_ id: TransferIdentifier) throws(SystemError) -> Directory? {
        try existing(id, in: Self.stagingName)
    }

    /// Returns the directory of one archived set and creates it if missing.
    package func archive(_ id: TransferIdentifier) throws(SystemError) -> Directory {
        try Self.child(id.component, of: Self.child(Self.archiveName, of: bookkeeping()))
    }

    /// Returns the same directory if it exists. Creates nothing.
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

    /// The directory of all archived sets; it may not exist.
    package var archivePath: FilePath { directory.path.appending([Self.bookkeepingName, Self.archiveName]) }

    /// Returns the path of one archived set's directory; it may not exist.
    package func archivePath(_ id: TransferIdentifier) -> FilePath {
        directory.path.appending([Self.bookkeepingName, Self.archiveName, id.component])
    }

    /// Removes the staged copies of a transfer, if any.
    package func removeStaging(_ id: TransferIdentifier) throws(SystemError) {
        try remove(id, in: Self.stagingName)
    }

    /// Removes the archive of a transfer that was undone.
    package func removeArchive(_ id: TransferIdentifier) throws(SystemError) {
        try remove(id, in: Self.archiveName)
    }

    /// Removes the archive directory of a set that was restored from it. Does nothing if the directory holds more than
    /// its note.
    package func removeEmptiedArchive(_ id: TransferIdentifier) throws(SystemError) {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.archiveName) != nil
        else { return }
        let parent = try bookkeeping.directory(Self.archiveName)
        guard try parent.status(id.component) != nil else { return }
        let archive = try parent.directory(id.component)
        let names = try archive.names()
        guard names.allSatisfy(Self.isArchiveNote) else { return }
        for name in names { try archive.removeFile(name) }
        try parent.removeDirectory(id.component)
        try parent.synchronize()
    }

    private func remove(_ id: TransferIdentifier, in name: FilePath.Component) throws(SystemError) {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(name) != nil else { return }
        let parent = try bookkeeping.directory(name)
        try parent.removeTree(id.component)
        try parent.synchronize()
    }

    /// Returns the directory `name` in `parent`. If it is missing, creates it with its parent's mode, access
    /// control list and group, and the parent's sticky bit.
    package static func child(
        _ name: FilePath.Component, of parent: Directory
    ) throws(SystemError) -> Directory {
        if try parent.status(name) == nil {
            do throws(SystemError) {
                let wanted = try parent.status()
                try parent.makeDirectory(name, mode: wanted.permissions & 0o777)
                let created = try parent.directory(name)
                // Anybody who may write to the parent could have replaced the new directory; a new one is empty.
                if try created.names().isEmpty { parent.giveToOwner(created) }
                try admitUsers(of: wanted, to: created)
                // Last: a list's mask is the mode's group bits.
                try ExtendedAttributes.inheritList(
                    from: parent.raw, to: created.raw, isOfSameGroup: try created.status().group == wanted.group,
                    path: created.path)
                try parent.synchronize()
            } catch {
                if error.errno != .fileExists { throw error }
            }
        }
        return try parent.directory(name)
    }

    /// Sets the new directory's mode: the umask must not shut out users whom its parent admits. If its group is another
    /// one than the parent's, because this user isn't in that, the group gets no more than everybody.
    private static func admitUsers(of parent: FileStatus, to created: Directory) throws(SystemError) {
        let made = try created.status()
        var mode = parent.permissions & 0o777
        if made.group != parent.group { mode &= 0o707 | (mode & 0o007) << 3 }
        if made.permissions & 0o777 != mode { try created.setPermissions(mode | made.permissions & mode_t(S_ISGID)) }
        // Not every file system has the bit.
        let sticky = parent.permissions & mode_t(S_ISVTX)
        if sticky != 0 { try? created.setPermissions(mode | sticky | made.permissions & mode_t(S_ISGID)) }
    }

    /// The mode of the files that this package creates: the permissions of the directory without the right to execute.
    package static func fileMode(in directory: Directory) throws(SystemError) -> mode_t {
        try directory.status().permissions & 0o666
    }
}

extension GroupContainer {
    /// Acquires the lock for moving stores of this group. Returns nil if another process holds it.
    package func lock() throws(SystemError) -> OpenFileLock? {
        while true {
            let bookkeeping = try bookkeeping()
            do throws(SystemError) {
                return try OpenFileLock(Self.lockName, in: bookkeeping, mode: Self.fileMode(in: bookkeeping))
            } catch {
                // The last holder has removed the records meanwhile, which it didn't need.
                guard error.errno == .noSuchFileOrDirectory, isCurrent,
                    try existingBookkeeping()?.identity != bookkeeping.identity
                else { throw error }
            }
        }
    }

    /// True while a process moves stores of this group. Creates and locks nothing.
    package var isLocked: Bool {
        guard let bookkeeping = try? existingBookkeeping() else { return false }
        // Nobody holds a lock that isn't there, as beside records that were put back from a backup.
        if let names = try? bookkeeping.names(), !names.contains(Self.lockName) { return false }
        return !OpenFileLock.isFree(Self.lockName, in: bookkeeping)
    }

    /// Writes this process into the lock that it holds, for those who wait: its pid, a space and its program. Returns
    /// false, and changes nothing, if the file has anything but such a note: that is somebody's.
    package func sign(_ lock: borrowing OpenFileLock) throws(SystemError) -> Bool {
        let note = lockHolder()
        let words = note.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: false)
        guard note.isEmpty || (words.count == 2 && pid_t(words[0]) != nil && !note.contains("\n")) else { return false }
        try lock.write(note: Array("\(getpid()) \(FileHolder.program(of: getpid()))".utf8))
        return true
    }

    /// Returns the note that the lock's holder wrote into it, or an empty string if there is none.
    package func lockHolder() -> String {
        guard let bookkeeping = try? existingBookkeeping() else { return "" }
        return String(decoding: OpenFileLock.note(Self.lockName, in: bookkeeping), as: UTF8.self)
    }
}
