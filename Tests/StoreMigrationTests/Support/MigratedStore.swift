import Glibc
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore
@testable import MappingModels
@testable import StoreMigration

/// A store that a mapping model created from another one.
struct MigratedStore {
    let path: FilePath
    let notes: [String]
    private let contents: StoreRows

    init(
        _ mapping: MappingModel, _ source: FilePath, from old: ManagedObjectModel, to new: ManagedObjectModel,
        in directory: borrowing TemporaryDirectory, policies: EntityMigrationPolicies = [:]
    ) throws {
        path = directory.path.appending("Migrated.sqlite")
        do {
            let writer = try StoreWriter(path, creating: true)
            var migration = try MappingMigration(
                mapping, into: writer, from: source, of: old, to: new, policies: policies)
            try migration.run()
            notes = migration.notes
        }
        contents = try StoreRows(path)
        try contents.store.checkIntegrity()
        #expect(try DatabaseSchema(contents.store).missingParts(of: StoreLayout(new)).isEmpty)
    }

    func rows(_ sql: String) throws -> [String] { try contents.rows(sql) }

    func row(_ sql: String) throws -> String? { try rows(sql).first }

    /// Copies a real store with its side files.
    static func copy(_ store: FilePath, to directory: borrowing TemporaryDirectory) throws -> FilePath {
        let last = try #require(store.lastComponent)
        let name = try #require(StoreName(last))
        let copies = try Directory(directory.path)
        for file in [name.database, name.wal] {
            let from = store.removingLastComponent().appending(file)
            guard let status = FileStatus(following: from) else { continue }
            let bytes = try Descriptor(opening: from, flags: O_RDONLY).read(count: Int(status.size), at: 0, path: from)
            try DurableFile.write(bytes, as: file, in: copies, mode: 0o600)
        }
        return directory.path.appending(name.database)
    }

    /// Creates a store of the model, filled by statements.
    static func make(
        _ model: ManagedObjectModel, in directory: borrowing TemporaryDirectory, _ statements: [String]
    ) throws -> FilePath {
        let path = directory.path.appending("Old.sqlite")
        let store = try StoreWriter(path, creating: true)
        try store.prepareEmptyStore()
        try store.createStore(StoreLayout(model))
        for statement in statements { try store.execute(statement) }
        return path
    }
}

/// Reads a store's rows.
struct StoreRows {
    let store: StoreWriter

    init(_ path: FilePath) throws { store = try StoreWriter(path) }

    /// Returns each row's columns, as text with `|` between them.
    func rows(_ sql: String) throws -> [String] {
        let statement = try store.prepare(sql)
        var found: [String] = []
        while try statement.step() {
            found.append((0..<statement.columnCount).map { statement.text($0) ?? "-" }.joined(separator: "|"))
        }
        return found
    }
}

enum TextFile {
    static func write(_ text: String, to path: FilePath) throws {
        let name = try #require(path.lastComponent)
        try DurableFile.write(
            Array(text.utf8), as: name, in: Directory(path.removingLastComponent()), mode: 0o600)
    }
}
