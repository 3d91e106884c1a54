import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store's properties that can be read without changing it.
package struct StoreDescription {
    package struct File {
        package let part: StorePart
        package let name: FilePath.Component
        /// The size in bytes.
        package let size: Int64
        /// The modification time in nanoseconds since 1970.
        package let modified: Int64
    }

    package struct SupportFolder: Equatable {
        package let name: FilePath.Component
        package let files: Int
        /// The size of all files in it, in bytes.
        package let size: Int64
    }

    package struct Table {
        package let name: String
        package let isVirtual: Bool
        /// The number of rows, or nil if they can't be counted.
        package let rows: Int64?
        /// The reason they can't be counted.
        package let problem: String?
    }

    /// The settings that SQLite reports for the database file.
    package struct Settings {
        package let journalMode: DatabaseHeader.JournalMode
        /// The page size in bytes.
        package let pageSize: Int64
        package let pageCount: Int64
        package let freePages: Int64
        package let encoding: String
        package let autoVacuum: AutoVacuum
        package let userVersion: Int64
        package let applicationID: Int64
        /// The change counter in the file. Content in a WAL has not incremented it.
        package let changeCounter: UInt32
    }

    /// https://sqlite.org/pragma.html#pragma_auto_vacuum
    package enum AutoVacuum: Int64, Sendable {
        case none, full, incremental
    }

    package let path: FilePath
    package let files: [File]
    package let support: SupportFolder?
    package let settings: Settings
    package let tables: [Table]
    /// The metadata, or nil if the store isn't Core Data's.
    package let coreData: CoreDataMetadata?
    /// The processes that have the store open, as far as this process can see; see `FileHolder.of`.
    package let holders: [FileHolder]

    /// The time content was last written to the database or its WAL, in nanoseconds since 1970.
    package var modified: Int64 {
        files.filter { $0.part != .sharedMemory }.map(\.modified).max() ?? 0
    }

    /// The number of rows of all tables that aren't virtual.
    package var rows: Int64 { tables.reduce(0) { $0 + ($1.isVirtual ? 0 : $1.rows ?? 0) } }
}

extension StoreDescription {
    /// Reads the store without changing it. Throws `StoreError`, and `SystemError` if a file can't be reached.
    package init(
        _ location: StoreLocation, parsing parse: CoreDataMetadata.ListParser = CoreDataMetadata.binary,
        busyTimeout: Duration = .seconds(2)
    ) throws {
        // Must come before this process opens the store itself.
        let database = try location.directory.status(location.name.database)
        let holders = database.map { FileHolder.of($0.identity) } ?? []
        self = try StoreReader.read(location, busyTimeout: busyTimeout) { reader in
            StoreDescription(
                path: location.path, files: try Self.files(location), support: try Self.support(location),
                settings: try Settings(reader), tables: try StoreContent(reader).tables.map { try Table($0, reader) },
                coreData: try CoreDataMetadata(reader, parsing: parse), holders: holders)
        }
    }

    private static func files(_ location: StoreLocation) throws(SystemError) -> [File] {
        var found: [File] = []
        for part in [StorePart.database, .wal, .sharedMemory, .journal] {
            let name = location.name.file(part)
            guard let status = try location.directory.status(name) else { continue }
            found.append(File(part: part, name: name, size: status.size, modified: status.modified))
        }
        return found
    }

    private static func support(_ location: StoreLocation) throws(SystemError) -> SupportFolder? {
        let name = location.name.support
        guard try location.directory.status(name)?.kind == .directory else { return nil }
        let (files, size) = try total(location.directory.directory(name))
        return SupportFolder(name: name, files: files, size: size)
    }

    private static func total(_ directory: Directory) throws(SystemError) -> (files: Int, size: Int64) {
        var total: (files: Int, size: Int64) = (0, 0)
        for name in try directory.names() {
            guard let status = try directory.status(name) else { continue }
            if status.kind == .directory {
                let inside = try Self.total(directory.directory(name))
                total = (total.files + inside.files, total.size + inside.size)
            } else {
                total = (total.files + 1, total.size + status.size)
            }
        }
        return total
    }
}

extension StoreDescription.Settings {
    package init(_ reader: StoreReader) throws {
        journalMode = reader.header?.journalMode ?? .rollback
        pageSize = try reader.integer("PRAGMA page_size") ?? 0
        pageCount = try reader.integer("PRAGMA page_count") ?? 0
        freePages = try reader.integer("PRAGMA freelist_count") ?? 0
        encoding = try reader.text("PRAGMA encoding") ?? ""
        autoVacuum = .init(rawValue: try reader.integer("PRAGMA auto_vacuum") ?? 0) ?? .none
        userVersion = try reader.integer("PRAGMA user_version") ?? 0
        applicationID = try reader.integer("PRAGMA application_id") ?? 0
        changeCounter = reader.header?.changeCounter ?? 0
    }
}

extension StoreDescription.Table {
    /// Counts the rows. A virtual table can't be counted if only the store's own program has its module or tokenizer.
    /// That is no damage.
    fileprivate init(_ table: DatabaseSchema.Table, _ reader: StoreReader) throws {
        name = table.name
        isVirtual = table.kind == .virtual
        do {
            rows = try reader.rowCount(table)
            problem = nil
        } catch StoreError.sqlite(_, let message, _) where isVirtual {
            rows = nil
            problem = message
        }
    }
}

extension StoreName {
    package func file(_ part: StorePart) -> FilePath.Component {
        switch part {
        case .database: database
        case .wal: wal
        case .sharedMemory: sharedMemory
        case .journal: journal
        case .support: support
        }
    }
}
