import LinuxSystem
import SystemPackage

/// The name of a store's main database, and with it the names of all that belongs to the store.
///
/// SQLite puts its side files beside the database under the database's name
/// (https://sqlite.org/tempfiles.html); Core Data puts external binary data into `.NAME_SUPPORT`, NAME being the
/// file name without its extension.
package struct StoreName: Hashable, Sendable {
    package let database: FilePath.Component
    package let wal: FilePath.Component
    package let sharedMemory: FilePath.Component
    package let journal: FilePath.Component
    package let support: FilePath.Component

    /// Nil when a side file's name would be longer than the 255 bytes that a name may have.
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

    /// A name that may be given to a store. Nil also where SQLite takes it for a side file of another database: it would
    /// remove the store, or write to it, as soon as that one is opened.
    package static func given(_ name: FilePath.Component) -> StoreName? {
        let bytes = name.bytes
        let isSideFile = ["-wal", "-shm", "-journal"].contains { bytes.suffix($0.utf8.count).elementsEqual($0.utf8) }
        return isSideFile ? nil : StoreName(name)
    }

    /// A leading dot begins a hidden file's name, not an extension.
    private static func withoutExtension(_ name: [UInt8]) -> [UInt8] {
        guard let dot = name.lastIndex(of: UInt8(ascii: ".")), dot > 0 else { return name }
        return Array(name[..<dot])
    }

    /// The files that belong to the database but are not it, the support folder left out.
    package var sideFiles: [FilePath.Component] { [wal, sharedMemory, journal] }

    /// Which of the store's parts goes by this name; nil when none does.
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

package enum StorePart: Hashable, Sendable, CaseIterable {
    case database, wal, sharedMemory, journal, support
}

/// A store's place: a directory held open, and the name in it. The store itself need not be there.
package struct StoreLocation: Sendable {
    package let directory: Directory
    package let name: StoreName
    /// The one file that the database may be; nil: whichever has its name.
    package let granted: FileIdentity?

    package init(directory: Directory, name: StoreName, granted: FileIdentity? = nil) {
        self.directory = directory
        self.name = name
        self.granted = granted
    }

    package var path: FilePath { directory.path.appending(name.database) }
}
