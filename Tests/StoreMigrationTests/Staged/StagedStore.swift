import CoreDataStore
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport

@testable import StoreMigration

/// A store that is created from a model, filled by SQL, and migrated.
final class StagedStore {
    let path: FilePath
    private let directory: TemporaryDirectory
    private let source: ManagedObjectModel

    init(_ source: ManagedObjectModel, _ statements: [String] = []) throws {
        directory = try TemporaryDirectory()
        path = directory.path.appending("Store.sqlite")
        self.source = source
        let writer = try StoreWriter(path, creating: true)
        try writer.prepareEmptyStore()
        try writer.createStore(StoreLayout(source), uuid: "STORE-1")
        try writer.addCoreDataFunctions()
        for statement in statements { try writer.execute(statement) }
    }

    convenience init(_ source: String, _ statements: [String] = []) throws {
        try self.init(try model(source), statements)
    }

    /// A copy of a store that an app has written.
    init(copyOf location: StoreLocation, _ model: ManagedObjectModel) throws {
        directory = try TemporaryDirectory()
        path = directory.path.appending("Store.sqlite")
        source = model
        _ = try StoreWriter(path, creating: true)
        try StoreReader.read(location) { try $0.copy(to: path) }
    }

    /// Returns the remarks for the user.
    @discardableResult
    func migrate(
        to destination: ManagedObjectModel, _ options: MigrationOptions = MigrationOptions(),
        isCancelled: @escaping () -> Bool = { false }
    ) throws -> [String] {
        var manager = MigrationManager(
            try MigrationPlan(from: source, to: destination, named: "new", options: options))
        manager.isCancelled = isCancelled
        return try manager.migrate(staged: path).notes
    }

    @discardableResult
    func migrate(to destination: String, _ options: MigrationOptions = MigrationOptions()) throws -> [String] {
        try migrate(to: try model(destination), options)
    }

    /// Returns each row's values, written so that their types can be told apart: 1, 1.0, 'text', x'00', NULL.
    func rows(_ query: String) throws -> [String] {
        let writer = try StoreWriter(path)
        let statement = try writer.prepare(query)
        var found: [String] = []
        while try statement.step() {
            var values: [String] = []
            for column in 0..<statement.columnCount {
                switch statement.value(column) {
                case .null: values.append("NULL")
                case .integer(let number): values.append("\(number)")
                case .real(let number): values.append("\(number)")
                case .text(let text): values.append(text.sqlText)
                case .blob(let bytes):
                    values.append("x'\(bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined())'")
                }
            }
            found.append(values.joined(separator: " "))
        }
        return found
    }

    /// Returns the tables, columns, indexes and triggers that a store of the model needs and lacks, or has in excess.
    func differences(from model: ManagedObjectModel) throws -> [String] {
        let writer = try StoreWriter(path)
        let schema = try DatabaseSchema(writer)
        let layout = StoreLayout(model, rule: StoreLayout(model).usingJoinTableNames(of: schema).rule)
        var expected = Set([
            "Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING",
        ])
        expected.formUnion(layout.tables.map(\.name) + layout.joinTables.map(\.name))
        var differences = schema.missingParts(of: layout)
        for table in layout.tables {
            let wanted = Set(["Z_PK", "Z_ENT", "Z_OPT"] + table.columns.map(\.name))
            let types = Dictionary(uniqueKeysWithValues: table.columns.map { ($0.name, $0.type) })
            for column in schema.table(table.name)?.columns ?? [] {
                if !wanted.contains(column.name) { differences.append("+\(table.name).\(column.name)") }
                if let type = types[column.name], type != column.type {
                    differences.append("\(column.name) \(column.type)")
                }
            }
        }
        differences += schema.tables.map(\.name).filter { !expected.contains($0) }.map { "+" + $0 }
        let indexes = Set(schema.objects.filter { $0.kind == .index && expected.contains($0.table) }.map(\.name))
            .filter { !$0.contains("TRANSACTION") }
        differences += indexes.symmetricDifference(layout.indexes.map(\.name)).map { "index " + $0 }
        let triggers = Set(layout.derivedAttributeTriggers.flatMap(\.triggers).map(\.name))
        differences += triggers.symmetricDifference(schema.objects.filter { $0.kind == .trigger }.map(\.name))
            .map { "trigger " + $0 }
        try writer.checkIntegrity()
        return differences.sorted()
    }
}
