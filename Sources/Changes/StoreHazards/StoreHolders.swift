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

    package init(
        path: FilePath, directory: FileIdentity, database: FileIdentity?, log: FileIdentity?, index: FileIdentity?
    ) {
        (self.path, self.directory, self.database) = (path, directory, database)
        (self.log, self.index) = (log, index)
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
            database: identity(name.database), log: identity(name.wal), index: identity(name.sharedMemory))
    }

    var all: Set<FileIdentity> { Set([database, log, index].compactMap { $0 }) }
}

/// A process that has files of a store open, or may have.
package struct StoreHolderFiles: Equatable, Sendable {
    package let pid: Int32
    package let files: [HeldFile]
    /// The directories in which the process sees its files, by path; the files whose directory is unknown are absent.
    package let directories: [FilePath: FileIdentity]
    /// The identities that now stand at the paths of the files, as the process sees them.
    package let present: [FilePath: FileIdentity]
    /// The files that are write-ahead logs by their first bytes, whatever they are called.
    package let logs: Set<FileIdentity>
    /// True if the process holds a record lock on the database, or shares its descriptor with one that does.
    package let hasLock: Bool

    package init(
        pid: Int32, files: [HeldFile], directories: [FilePath: FileIdentity] = [:],
        present: [FilePath: FileIdentity] = [:], logs: Set<FileIdentity> = [], hasLock: Bool = true
    ) {
        (self.pid, self.files, self.directories) = (pid, files, directories)
        (self.present, self.logs, self.hasLock) = (present, logs, hasLock)
    }

    /// Returns the files that the process has open for writing under a name.
    func writable(_ path: FilePath) -> [HeldFile] { files.filter { $0.canWrite && $0.path == path } }

    func writable(_ identity: FileIdentity?) -> HeldFile? {
        identity.flatMap { identity in files.first { $0.canWrite && $0.identity == identity } }
    }

    /// True if the file stands at the name by which the process has it open.
    func isPresent(_ file: HeldFile) -> Bool { present[file.path] == file.identity }
}
