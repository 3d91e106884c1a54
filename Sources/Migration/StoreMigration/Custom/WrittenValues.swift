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
    /// The tables as they are to be.
    private let creations: [DatabaseSchema.Object]
    private var foundInvalidValue = false

    /// Adds the constraints to the tables, which are empty. Throws `StoreError`.
    init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        creations = try DatabaseSchema(store).objects(.table)
        try store.addFunction(Self.function, arguments: 0, isDeterministic: false) { [weak self] _ in
            self?.foundInvalidValue = true
            return .integer(1)
        }
        let written = try Self.writtenClasses(plan)
        try setCreations(
            creations.map { creation in
                let constraints = Self.constraints(of: creation.name, plan.destination, written)
                let sql = creation.creation
                guard !constraints.isEmpty, let end = sql.lastIndex(of: ")") else { return (creation.name, sql) }
                return (creation.name, sql[..<end] + ", " + constraints.joined(separator: ", ") + ")")
            })
    }

    /// Returns the storage classes that the values of each entity's columns may have, by entity and column, as far as
    /// the expressions say.
    private static func writtenClasses(
        _ plan: MappingPlan
    ) throws(MappingFault) -> [String: [String: StorageClasses]] {
        var found: [String: [String: StorageClasses]] = [:]
        for entityPlan in plan.entityMappings where entityPlan.mapsObjects {
            guard let entity = entityPlan.destination?.name else { continue }
            let classes = Dictionary(
                try plan.attributeAssignments(entityPlan).map { ($0.column, $0.classes) },
                uniquingKeysWith: { $0.union($1) })
            // Several mappings of one entity have values for the same columns.
            found[entity, default: [:]].merge(classes) { $0.union($1) }
        }
        return found
    }

    private static func constraints(
        of table: String, _ layout: StoreLayout, _ written: [String: [String: StorageClasses]]
    ) -> [String] {
        let entities = layout.numbers.entities.filter { layout.table(of: $0.name)?.name == table }
        return entities.filter { !$0.isAbstract }.flatMap { entity in
            let rules = ObjectChecks(layout).structure(of: entity).compactMap(\.written).filter { rule in
                !rule.classes.isSuperset(of: written[entity.name]?[rule.column] ?? .all)
            }
            return stride(from: 0, to: rules.count, by: maximumTerms).map { start in
                let part = rules[start..<min(start + maximumTerms, rules.count)]
                let any = part.map(\.condition).joined(separator: " OR ")
                let number = layout.numbers.number(of: entity.name)
                let condition = entities.count == 1 ? any : "Z_ENT = \(number) AND (\(any))"
                return "CHECK (CASE WHEN \(condition) THEN \(function)() ELSE 1 END)"
            }
        }
    }

    /// Removes the constraints. Returns true if no value is missing or has a wrong type. Throws `StoreError`, and
    /// `MigrationError` if the tables aren't as they were.
    func finish() throws -> Bool {
        try setCreations(creations.map { ($0.name, $0.creation) })
        let found = try DatabaseSchema(store).objects(.table)
        if let table = creations.first(where: { !found.contains($0) }) {
            throw MigrationError(
                CoreDataError.migration, "the new store's table \(table.name) is not as it was created",
                remedy: "report this with both models and the mapping model")
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
