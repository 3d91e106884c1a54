import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Checks values while they are written, which takes a fraction of the time of a pass over finished tables.
///
/// Meanwhile each table has CHECK constraints, which never fail: for a value that is missing or has another type than
/// its attribute, they call a function. `ValidationPass` looks for such values only if that happened.
final class WrittenValues {
    private static let function = "gs_invalid_value"
    /// SQLite accepts a thousand terms in one expression.
    private static let maximumTerms = 200

    private let store: StoreWriter
    /// The statements that create the tables as they are to be, by table.
    private let creations: [(table: String, sql: String)]
    private var foundInvalidValue = false

    /// Adds the constraints to the tables, which are empty. Throws `StoreError`.
    init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        let rows = try store.prepare("SELECT name, sql FROM main.sqlite_schema WHERE type = 'table' ORDER BY rowid")
        var creations: [(table: String, sql: String)] = []
        while try rows.step() { creations.append((rows.text(0) ?? "", rows.text(1) ?? "")) }
        rows.reset()
        self.creations = creations
        try store.addFunction(Self.function, arguments: 0, isDeterministic: false) { [weak self] _ in
            self?.foundInvalidValue = true
            return .integer(1)
        }
        try setCreations(
            creations.map { creation in
                let constraints = Self.constraints(of: creation.table, plan.destination)
                guard !constraints.isEmpty, let end = creation.sql.lastIndex(of: ")") else { return creation }
                return (creation.table, creation.sql[..<end] + ", " + constraints.joined(separator: ", ") + ")")
            })
    }

    private static func constraints(of table: String, _ layout: StoreLayout) -> [String] {
        layout.numbers.entities.filter { !$0.isAbstract && layout.table(of: $0.name)?.name == table }.flatMap {
            entity in
            let conditions = ObjectChecks(layout).structure(of: entity).compactMap(\.writtenCondition)
            return stride(from: 0, to: conditions.count, by: maximumTerms).map { start in
                let any = conditions[start..<min(start + maximumTerms, conditions.count)].joined(separator: " OR ")
                let number = layout.numbers.number(of: entity.name)
                return "CHECK (CASE WHEN Z_ENT = \(number) AND (\(any)) THEN \(function)() ELSE 1 END)"
            }
        }
    }

    /// Removes the constraints. Returns true if no value is missing or has a wrong type. Throws `StoreError`, and
    /// `MigrationError` if the tables aren't as they were.
    func finish() throws -> Bool {
        try setCreations(creations)
        for (table, sql) in creations {
            let found = try store.text(
                "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?", [.text(table)])
            guard found == sql else {
                throw MigrationError(
                    CoreDataError.migration, "the new store's table \(table) is not as it was created",
                    remedy: "report this with both models and the mapping model")
            }
        }
        return !foundInvalidValue
    }

    private func setCreations(_ creations: [(table: String, sql: String)]) throws {
        try store.execute("PRAGMA writable_schema = ON")
        for (table, sql) in creations {
            try store.execute(
                "UPDATE main.sqlite_schema SET sql = ?2 WHERE type = 'table' AND name = ?1 AND sql IS NOT ?2",
                [.text(table), .text(sql)])
        }
        try store.execute("PRAGMA writable_schema = RESET")
    }
}
