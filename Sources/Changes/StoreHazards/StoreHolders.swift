import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The files at a store's names at one moment.
package struct NamedFiles: Equatable, Sendable {
    package let path: FilePath
    package let directory: FileIdentity
    /// Nil if nothing has the store's name: it was removed.
    package let database: FileIdentity?
    package let log: FileIdentity?
    package let index: FileIdentity?
    package let journal: FileIdentity?
    /// The store's logs, indexes and journals that a rescue has moved into the archive, because they were those of a
    /// program that has another database open.
    package let setAside: Set<FileIdentity>

    package init(
        path: FilePath, directory: FileIdentity, database: FileIdentity?, log: FileIdentity?, index: FileIdentity?,
        journal: FileIdentity? = nil, setAside: Set<FileIdentity> = []
    ) {
        (self.path, self.directory, self.database) = (path, directory, database)
        (self.log, self.index, self.journal) = (log, index, journal)
        self.setAside = setAside
    }

    /// Reads the status of the files and opens none: a descriptor that is closed would drop the locks of a connection
    /// in this process.
    package init(_ name: StoreName, in directory: Directory) {
        func identity(_ name: FilePath.Component) -> FileIdentity? {
            guard let status = try? directory.status(name), status.kind == .regular else { return nil }
            return status.identity
        }
        self.init(
            path: directory.path.appending(name.database), directory: directory.identity,
            database: identity(name.database), log: identity(name.wal), index: identity(name.sharedMemory),
            journal: identity(name.journal), setAside: Self.setAside(name, in: directory))
    }

    private static func setAside(_ name: StoreName, in directory: Directory) -> Set<FileIdentity> {
        let archive = GroupContainer(directory: directory).archivePath
        guard let sets = try? Directory(archive).names() else { return [] }
        let files = sets.flatMap { set in name.sideFiles.map { archive.appending([set, $0]) } }
        return Set(files.compactMap { FileStatus(following: $0)?.identity })
    }

    var all: Set<FileIdentity> { setAside.union([database, log, index, journal].compactMap { $0 }) }
}

/// A process that has files of a store open, or may have.
package struct StoreHolderFiles: Equatable, Sendable {
    package let pid: Int32
    package let files: [HeldFile]
    /// The directories in which the process sees its files, by path; the files whose directory is unknown are absent.
    package let directories: [FilePath: FileIdentity]
    /// The identities that now stand at the paths of the files, as the process sees them.
    package let present: [FilePath: FileIdentity]
    /// The files that are known to be write-ahead logs or indexes, whatever they are called.
    package let sides: [FileIdentity: HeldStore.Side]
    /// The files on which the process holds record locks; nil if that is unknown.
    package let locked: Set<FileIdentity>?
    /// True if the process holds a record lock on the database, or shares its descriptor with one that does.
    package let hasLock: Bool
    /// True if it is known to hold one itself.
    package let hasOwnLock: Bool

    package init(
        pid: Int32, files: [HeldFile], directories: [FilePath: FileIdentity] = [:],
        present: [FilePath: FileIdentity] = [:], sides: [FileIdentity: HeldStore.Side] = [:],
        locked: Set<FileIdentity>? = nil, hasLock: Bool = true, hasOwnLock: Bool = false
    ) {
        (self.pid, self.files, self.directories) = (pid, files, directories)
        (self.present, self.sides, self.locked) = (present, sides, locked)
        (self.hasLock, self.hasOwnLock) = (hasLock, hasOwnLock)
    }

    /// Returns the files that the process has open for writing under a name.
    func writable(_ path: FilePath) -> [HeldFile] { files.filter { $0.canWrite && $0.path == path } }

    func writable(_ identity: FileIdentity?) -> HeldFile? {
        identity.flatMap { identity in files.first { $0.canWrite && $0.identity == identity } }
    }

    /// True if the file stands at the name by which the process has it open.
    func isPresent(_ file: HeldFile) -> Bool { present[file.path] == file.identity }
}
