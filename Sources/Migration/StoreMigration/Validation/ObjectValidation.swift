import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The validation of all objects of a store by its model: what Core Data would refuse to save.
struct ObjectValidation {
    private let store: SQLiteConnection
    private let layout: StoreLayout

    /// Throws `StoreError`.
    init(_ store: SQLiteConnection, _ model: ManagedObjectModel) throws {
        self.store = store
        layout = StoreLayout(model).usingJoinTableNames(of: try DatabaseSchema(store))
        try SQLFunction.register(store)
    }

    /// Returns all faults, by entity. Throws `StoreError`.
    func faults() throws -> [InvalidContent.Fault] {
        try layout.numbers.entities.filter { !$0.isAbstract }.sorted { $0.name < $1.name }.flatMap { entity in
            let (rules, unchecked) = ValidationRules(layout).checks(of: entity)
            return try find(ObjectChecks(layout).structure(of: entity) + rules, in: entity) + unchecked
        }
    }

    /// SQLite accepts a thousand terms in one expression.
    private static let maximumTerms = 100

    /// Finds out in one pass which checks fail, and lists their objects only then.
    private func find(_ checks: [ValidationCondition], in entity: EntityDescription) throws -> [InvalidContent.Fault] {
        guard let table = layout.table(of: entity.name)?.name else { return [] }
        let rows =
            "FROM main.\(table.sqlName) AS \(ValidationCondition.alias) NOT INDEXED WHERE \(ValidationCondition.alias).Z_ENT = ?"
        let number = SQLiteValue.integer(layout.numbers.number(of: entity.name))
        var found: [InvalidContent.Fault] = []
        for start in stride(from: 0, to: checks.count, by: Self.maximumTerms) {
            let batch = Array(checks[start..<min(start + Self.maximumTerms, checks.count)])
            let marks = batch.map { "max(\($0.condition))" }.joined(separator: ", ")
            let failed = try store.prepare("SELECT \(marks) \(rows)", [number])
            guard try failed.step() else { continue }
            let broken = zip(Int32(0)..., batch).filter { failed.integer($0.0) != 0 }.map(\.1)
            failed.reset()
            for check in broken {
                let keys = try store.prepare(
                    "SELECT \(ValidationCondition.alias).Z_PK \(rows) AND (\(check.condition)) ORDER BY 1", [number])
                var list: [Int64] = []
                while try keys.step() { list.append(keys.integer(0)) }
                found.append(
                    InvalidContent.Fault(
                        entity: entity.name, property: check.property, code: check.code, check.message, keys: list))
            }
        }
        return found
    }
}
