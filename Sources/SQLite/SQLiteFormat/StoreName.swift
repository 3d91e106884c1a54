import Glibc
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

    /// Derives the names. Returns nil if another store or the group container would lose something by a store of this
    /// name, or if a side file's name would exceed the 255 bytes that a file name may have:
    ///
    /// - A name that ends in `-wal`, `-shm` or `-journal` is a side file's. SQLite removes or overwrites it when the
    ///   database without that suffix is opened. Case is ignored, as it is on some file systems.
    /// - `.NAME_SUPPORT` is the folder of a store's external data.
    /// - `.groupstore` and names that begin like it are this package's own.
    package init?(_ database: FilePath.Component) {
        guard !Self.isReserved(database) else { return nil }
        self.init(unchecked: database)
    }

    /// Returns the names for a database that exists, whatever it is called: an old store can be read and moved away
    /// from a name that no new one may have. Returns nil if a side file's name would be too long.
    package static func existing(_ database: FilePath.Component) -> StoreName? { StoreName(unchecked: database) }

    private init?(unchecked database: FilePath.Component) {
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

    /// The advice for a name that no store can have.
    package static let remedy =
        "choose a name that does not end in -wal, -shm or -journal, leaves room for those in 255 bytes, and is neither "
        + ".NAME_SUPPORT nor begins with .groupstore"

    /// True for a name that another store's files or the group container may have.
    package static func isReserved(_ component: FilePath.Component) -> Bool {
        let name = component.bytes.map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
        let isSideFile = ["-wal", "-shm", "-journal"].contains { name.suffix($0.utf8.count).elementsEqual($0.utf8) }
        let isSupport = name.first == UInt8(ascii: ".") && name.suffix(8).elementsEqual("_support".utf8)
        return isSideFile || isSupport || name.starts(with: ".groupstore".utf8)
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

extension StoreLocation {
    /// Returns the first of the store's side files that is a database of its own, or nil if none is. SQLite would
    /// remove it or write over it when the store is opened.
    ///
    /// The wal-index is opened only if it can't be one that SQLite uses. Closing any descriptor of one that is in use
    /// would drop this process's locks on it (https://sqlite.org/howtocorrupt.html, §2.2).
    package func databaseInPlaceOfSideFile() throws(SystemError) -> FilePath? {
        let hasLog = try directory.status(name.wal) != nil
        for sideFile in name.sideFiles {
            guard let status = try directory.status(sideFile), status.kind == .regular, status.size > 0,
                sideFile != name.sharedMemory || !hasLog || status.size % 32_768 != 0
            else { continue }
            let start: [UInt8]
            do throws(SystemError) {
                start = try directory.open(sideFile, flags: O_RDONLY).read(count: DatabaseHeader.magic.count, at: 0)
            } catch {
                // Removed meanwhile, or this user can't read it, nor then the store.
                if error.errno == .noSuchFileOrDirectory || error.errno == .permissionDenied { continue }
                throw error
            }
            if start == DatabaseHeader.magic { return directory.path.appending(sideFile) }
        }
        return nil
    }
}
