import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// What a migration's first step requires of a store, looked up before anything is copied: `model check` and the migration
/// itself go by the same answer.
package struct StoreRequirements {
    private let reader: StoreReader
    private let objects: StoreObjects
    private let succession: ModelSuccession

    /// Nil for a step that isn't inferred: a mapping model makes new objects.
    package init?(_ reader: StoreReader, _ step: MigrationStep) {
        guard case .inferred(let mapping) = step.method else { return nil }
        self.reader = reader
        objects = StoreObjects(reader, step.source)
        succession = ModelSuccession(StoreLayout(step.source), StoreLayout(step.destination), mapping)
    }

    /// Throws `MigrationError` where the store's tables are in the step's way; `StoreError`.
    package func checkTables() throws {
        let schema = try StoreSchema(reader)
        try schema.check(succession.source.named(as: schema), becoming: succession.destination)
    }

    /// How much of the store is in the requirement's way; nil where that can't be told. Throws `StoreError`.
    package func hindrances(_ requirement: StoreRequirement) throws -> Int64? {
        switch requirement {
        case .value(let entity, let property):
            guard let entity = succession.source.model.entity(named: entity) else { return nil }
            return try property.map { try objects.count(of: entity, withoutValueOf: $0) } ?? objects.count(of: entity)
        case .unique(let entity, let properties): return try repetitions(entity, properties)
        case .noHistory(let entity): return try changes(of: entity)
        }
    }

    /// Combinations of values that several objects would have in the new table. As in SQLite's index, what has no value
    /// is like nothing else.
    private func repetitions(_ entity: String, _ properties: [String]) throws -> Int64? {
        guard let destination = succession.destination.table(of: entity),
            let table = succession.tableMigrations.first(where: { $0.destination.name == destination.name })
        else { return nil }
        guard let source = table.source else { return 0 }
        let coming = Set(table.numbers.keys)
        let values = properties.compactMap { property in
            succession.destination.column(of: property, of: entity).flatMap { column in
                table.columns.first { $0.column == column }?.expression(succession.numbers, family: coming)
            }
        }
        guard values.count == properties.count, !values.isEmpty else { return nil }
        let names = values.indices.map { "v\($0)" }
        let selection = zip(values, names).map { "\($0) AS \($1)" }.joined(separator: ", ")
        let present = names.map { "\($0) IS NOT NULL" }.joined(separator: " AND ")
        // Indexes may have collations that only Core Data has.
        return try reader.integer(
            """
            SELECT count(*) FROM (SELECT 1 FROM (SELECT \(selection) FROM \(source.name.sqlName) NOT INDEXED
            WHERE Z_ENT IN (\(coming.sorted().list))) WHERE \(present)
            GROUP BY \(names.joined(separator: ", ")) HAVING count(*) > 1)
            """)
    }

    private func changes(of entity: String) throws -> Int64 {
        let tables = try reader.integer("SELECT count(*) FROM pragma_table_info('ACHANGE') WHERE name = 'ZENTITY'")
        guard tables == 1 else { return 0 }
        let number = succession.source.numbers.number(of: entity)
        return try reader.integer("SELECT count(*) FROM ACHANGE NOT INDEXED WHERE ZENTITY = \(number)") ?? 0
    }
}
