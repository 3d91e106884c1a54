import LinuxSystem
import SystemPackage

/// The name of a store's main database, and with it the names of the store's other files.
///
/// SQLite puts its side files beside the database and appends a suffix to its name (https://sqlite.org/tempfiles.html).
/// Core Data puts external binary data into `.NAME_SUPPORT`, where NAME is the file name without its extension.
package struct StoreName: Hashable, Sendable {
    /// The main database file.
    package let database: FilePath.Component
    /// The write-ahead log, `-wal`.
    package let wal: FilePath.Component
    /// The wal-index, `-shm`.
    package let sharedMemory: FilePath.Component
    /// The rollback journal, `-journal`.
    package let journal: FilePath.Component
    /// Core Data's folder of external binary data.
    package let support: FilePath.Component

    /// Derives the names. Returns nil if a side file's name would exceed the 255 bytes that a file name may have.
    package init?(_ database: FilePath.Component) {
        let stem = [UInt8(ascii: ".")] + Self.withoutExtension(database.bytes) + Array("_SUPPORT".utf8)
        guard let wal = database.appending("-wal"), let sharedMemory = database.appending("-shm"),
            let journal = database.appending("-journal"), stem.count <= 255,
            let support = FilePath.Component(bytes: stem), database.kind == .regular
        else { return nil }
        self.database = database
        self.wal = wal
        self.sharedMemory = sharedMemory
        self.journal = journal
        self.support = support
    }

    /// Returns the name for a new store. Returns nil also if SQLite would treat it as a side file of another database:
    /// opening that database would remove the store or write to it.
    package static func validated(_ name: FilePath.Component) -> StoreName? {
        let bytes = name.bytes
        let isSideFile = ["-wal", "-shm", "-journal"].contains { bytes.suffix($0.utf8.count).elementsEqual($0.utf8) }
        return isSideFile ? nil : StoreName(name)
    }

    /// A leading dot marks a hidden file, not an extension.
    private static func withoutExtension(_ name: [UInt8]) -> [UInt8] {
        guard let dot = name.lastIndex(of: UInt8(ascii: ".")), dot > 0 else { return name }
        return Array(name[..<dot])
    }

    /// The names of SQLite's side files, without the support folder.
    package var sideFiles: [FilePath.Component] { [wal, sharedMemory, journal] }

    /// Returns the part of the store that has this name, or nil if none has.
    package func part(named name: FilePath.Component) -> StorePart? {
        switch name {
        case database: .database
        case wal: .wal
        case sharedMemory: .sharedMemory
        case journal: .journal
        case support: .support
        default: nil
        }
    }
}

/// A file or folder of a store.
package enum StorePart: Hashable, Sendable, CaseIterable {
    case database, wal, sharedMemory, journal, support
}

/// A store's location: an open directory and a name in it. The store itself need not exist.
package struct StoreLocation: Sendable {
    package let directory: Directory
    package let name: StoreName
    /// The only file that the database may be, or nil if any file with its name may be.
    package let granted: FileIdentity?

    package init(directory: Directory, name: StoreName, granted: FileIdentity? = nil) {
        self.directory = directory
        self.name = name
        self.granted = granted
    }

    /// The database's path.
    package var path: FilePath { directory.path.appending(name.database) }
}
