import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// Gives a custom stage's handler access to the copy of the store that is migrated.
///
///     guard let table = store.table(of: "Note"), let title = store.column(of: "title", in: "Note") else { return }
///     let rows = try store.rows("SELECT Z_PK, \(title) FROM \(table) WHERE \(title) LIKE ?", [.string("http%")])
///
/// - Important: It is valid only while the handler runs. Don't keep it.
public final class StageStore {
    /// The store's current model: the older version's in `willMigrate`, the newer's in `didMigrate`.
    public let model: ManagedObjectModel
    private let store: StoreWriter
    private let layout: StoreLayout

    init(_ store: StoreWriter, _ model: ManagedObjectModel) throws {
        self.store = store
        self.model = model
        try store.addCoreDataFunctions()
        layout = StoreLayout(model).usingJoinTableNames(of: try DatabaseSchema(store))
    }

    /// Returns the name of the table with the entity's objects; nil if the model has no such entity. The table holds
    /// the objects of all entities of the hierarchy; `Z_ENT` distinguishes them.
    public func table(of entity: String) -> String? { layout.table(of: entity)?.name }

    /// Returns the name of the column with an attribute's values, or with the keys (`Z_PK`) of a to-one relationship's
    /// destinations; nil if the property has no column of its own. The name can't be derived from the property's name
    /// alone.
    public func column(of property: String, in entity: String) -> String? {
        layout.column(of: property, of: entity)?.name
    }

    /// Returns the value of `Z_ENT` in the entity's own objects; nil if the model has no such entity.
    public func number(of entity: String) -> Int64? {
        layout.model.entity(named: entity).map { layout.numbers.number(of: $0.name) }
    }

    /// Runs one SQL statement.
    ///
    /// - Parameters:
    ///   - sql: The statement.
    ///   - values: The values for the statement's question marks: dates as seconds since 2001-01-01 UTC, Boolean values
    ///     as 1 and 0, UUIDs as their 16 bytes, nil as NULL.
    /// - Throws: ``MigrationError`` with SQLite's code.
    public func execute(_ sql: String, _ values: [AttributeValue?] = []) throws {
        try translatingErrors { try store.execute(sql, values.map(\.stored)) }
    }

    /// Returns all rows of one SQL query. Each row lists the column values with SQLite's types; nil stands for NULL.
    ///
    /// - Parameters:
    ///   - sql: The query.
    ///   - values: The values for the query's question marks, as in ``execute(_:_:)``.
    /// - Throws: ``MigrationError`` with SQLite's code.
    public func rows(_ sql: String, _ values: [AttributeValue?] = []) throws -> [[AttributeValue?]] {
        try translatingErrors {
            let statement = try store.prepare(sql, values.map(\.stored))
            var rows: [[AttributeValue?]] = []
            while try statement.step() {
                rows.append((0..<statement.columnCount).map { AttributeValue(statement.value($0)) })
            }
            return rows
        }
    }

    private func translatingErrors<Result>(_ body: () throws -> Result) throws -> Result {
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
        // The column's numeric affinity converts a decimal to a number.
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
