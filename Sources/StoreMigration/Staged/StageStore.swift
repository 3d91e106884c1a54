import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The copy of a store that is migrated, as a custom stage's handler has it: for as long as the handler runs.
public final class StageStore {
    /// The store's model at this moment: the older version's in `willMigrate`, the newer's in `didMigrate`.
    public let model: ManagedObjectModel
    private let store: StoreWriter
    private let layout: StoreLayout

    init(_ store: StoreWriter, _ model: ManagedObjectModel) throws {
        self.store = store
        self.model = model
        try store.addCoreDataFunctions()
        layout = StoreLayout(model).named(as: try StoreSchema(store))
    }

    /// The table that the entity's objects are in; it holds those of all entities of the hierarchy, told apart by `Z_ENT`.
    /// Nil when the model has no such entity.
    public func table(of entity: String) -> String? { layout.table(of: entity)?.name }

    /// The column of an attribute's values, or of the keys (`Z_PK`) that a to-one relationship leads to. Nil for what has
    /// none of its own: it can't be told from the property's name alone.
    public func column(of property: String, in entity: String) -> String? {
        layout.column(of: property, of: entity)?.name
    }

    /// What `Z_ENT` is in the entity's own objects; nil when the model has no such entity.
    public func number(of entity: String) -> Int64? {
        layout.model.entity(named: entity).map { layout.numbers.number(of: $0.name) }
    }

    /// Runs one statement. Values stand for the statement's question marks: dates as seconds since 2001-01-01 UTC, truth
    /// values as 1 and 0, UUIDs as their 16 bytes.
    ///
    /// Throws `MigrationError` with SQLite's code.
    public func execute(_ sql: String, _ values: [AttributeValue?] = []) throws {
        try failing { try store.execute(sql, values.map(\.stored)) }
    }

    /// The rows that one statement gives, as SQLite has their values; nil for NULL. Throws `MigrationError`.
    public func rows(_ sql: String, _ values: [AttributeValue?] = []) throws -> [[AttributeValue?]] {
        try failing {
            let statement = try store.prepare(sql, values.map(\.stored))
            var rows: [[AttributeValue?]] = []
            while try statement.step() {
                rows.append((0..<statement.columnCount).map { AttributeValue(statement.value($0)) })
            }
            return rows
        }
    }

    private func failing<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let error as StoreError { throw MigrationError(error) }
    }
}

extension AttributeValue? {
    fileprivate var stored: SQLiteValue {
        switch self {
        case nil: .null
        case .integer(let number)?: .integer(number)
        case .boolean(let truth)?: .integer(truth ? 1 : 0)
        case .real(let number)?, .date(let number)?: .real(number)
        // Numeric affinity makes a number of it.
        case .decimal(let text)?, .string(let text)?, .url(let text)?, .archived(let text)?: .text(text)
        case .data(let bytes)?: .blob(bytes)
        case .uuid(let uuid)?: .blob(withUnsafeBytes(of: uuid.uuid) { Array($0) })
        }
    }
}

extension AttributeValue {
    fileprivate init?(_ value: SQLiteValue) {
        switch value {
        case .null: return nil
        case .integer(let number): self = .integer(number)
        case .real(let number): self = .real(number)
        case .text(let text): self = .string(text)
        case .blob(let bytes): self = .data(bytes)
        }
    }
}
