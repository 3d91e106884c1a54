import Glibc
import LinuxSystem
import SQLiteStore
import SystemPackage

/// Reads what the plan needs of a store's content. Leaves no trace on the store.
enum StoreContents {
    /// SQLite can't read the store, for this reason.
    struct Unreadable: ActionableError {
        let path: FilePath
        let message: String

        var errorCode: String { "corrupt" }
        var remedy: String { StoreError.recovery(of: path) }
        var errorPath: FilePath? { path }
    }

    /// The facts by which a person can tell two stores apart.
    struct Summary {
        let rows: [(table: String, count: Int64)]
        let storeUUID: String?
        let modelIdentifiers: [String]
    }

    /// Returns true if no table has a row. If `countingRows` is false, reads only the schema and returns nil.
    static func isSchemaOnly(_ store: StoreSnapshot, countingRows: Bool) throws -> Bool? {
        if countingRows { return try read(store) { try StoreContent($0).isEmptyOrSchemaOnly() } }
        guard isQuickToRead(store) else { return nil }
        do {
            _ = try read(store) { try StoreContent($0) }
        } catch StoreError.busy {
            // A program that keeps the store locked is waited for later, until the deadline.
        }
        return nil
    }

    static func areEqual(_ first: StoreSnapshot, _ second: StoreSnapshot) throws -> Bool {
        try read(first) { reader in
            let content = try StoreContent(reader)
            return try read(second) { try content.difference(from: StoreContent($0)) == nil }
        }
    }

    /// Returns Core Data's UUID of the store, or nil if the store isn't Core Data's.
    static func storeUUID(_ store: StoreSnapshot) throws -> String? {
        guard store.header != nil, isQuickToRead(store) else { return nil }
        return try read(store) { try CoreDataMetadata($0)?.uuid }
    }

    static func summary(_ store: StoreSnapshot) throws -> Summary {
        guard store.header != nil else { return Summary(rows: [], storeUUID: nil, modelIdentifiers: []) }
        return try read(store) { reader in
            let metadata = try CoreDataMetadata(reader)
            return Summary(
                rows: try StoreContent(reader).rowCounts().map { ($0.table, $0.rows) }, storeUUID: metadata?.uuid,
                modelIdentifiers: metadata?.versionIdentifiers ?? [])
        }
    }

    /// Returns the hash that a receipt would have if the database were published as it is.
    static func publishedHash(_ store: StoreSnapshot) throws -> String {
        let location = store.location
        let descriptor = try location.directory.open(location.name.database, flags: O_RDONLY)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
        defer { buffer.deallocate() }
        var hash = ContentHash()
        var offset: Int64 = 0
        while true {
            let count = try descriptor.read(into: buffer, at: offset, path: location.path)
            if count == 0 { return hash.text() }
            if offset == 0, store.header?.journalMode == .writeAhead, count >= 20 {
                buffer[18] = 1
                buffer[19] = 1
            }
            hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
        }
    }

    /// Returns false for a large store with a hot journal. Such a store is read from a private copy, which isn't
    /// worthwhile when the journal is about to be rolled back.
    private static func isQuickToRead(_ store: StoreSnapshot) -> Bool {
        !store.journalIsHot || store.bytes < 64 << 20
    }

    private static func read<Result>(_ store: StoreSnapshot, _ body: (StoreReader) throws -> Result) throws -> Result {
        do {
            return try StoreReader.read(store.location, body)
        } catch let error as StoreError {
            switch error {
            case .corrupt(let code, let message, let path):
                throw Unreadable(path: path, message: "SQLite error \(code), \(message)")
            case .foreign(let format, let path): throw Unreadable(path: path, message: "\(format)")
            default: throw error
            }
        }
    }
}
