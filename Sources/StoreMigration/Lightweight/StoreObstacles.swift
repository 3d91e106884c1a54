import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

/// What of a store's content stands in the way of an inferred migration: the one judgement that `model check`, a dry run
/// and the migration itself go by.
///
/// Core Data checks the same while it migrates in place: mandatory properties that are new or were optional have a value
/// in each object, no two objects have what a uniqueness constraint lets one have, and no entity with persistent history
/// is removed.
package struct StoreObstacles {
    private let store: SQLiteConnection
    private let schema: StoreSchema
    private let succession: EntityMatching
    private let tables: [TableMigration]

    /// Nil for a step that isn't inferred: a mapping model makes new objects.
    package init?(_ reader: SQLiteConnection, _ step: MigrationStep) throws {
        guard case .inferred(let mapping) = step.method else { return nil }
        let schema = try StoreSchema(reader)
        let source = StoreLayout(step.source).named(as: schema)
        self.init(reader, schema, EntityMatching(source, StoreLayout(step.destination), mapping))
    }

    init(_ store: SQLiteConnection, _ schema: StoreSchema, _ succession: EntityMatching) {
        self.schema = schema
        self.succession = succession
        self.store = store
        tables = succession.tableMigrations
    }

    private var destination: StoreLayout { succession.destination }

    /// Throws `MigrationError` where the store's tables are in the step's way.
    package func checkTables() throws(MigrationError) {
        try schema.check(succession.source, becoming: destination)
    }

    /// Returns an error for each obstacle. Throws `StoreError`.
    package func find(_ options: MigrationOptions) throws -> [MigrationFinding] {
        try missingValues() + repetitions() + (options.allowsPartialHistory ? [] : historyOfRemoved())
    }

    // MARK: Mandatory properties

    /// A column in which some entities' objects must have something.
    private struct Candidate {
        let property: PropertyDescription
        let entity: String
        /// Where there is nothing, as SQL says it.
        let condition: String
    }

    /// SQLite takes a thousand terms in one expression.
    private static let termsAtOnce = 250

    private func missingValues() throws -> [MigrationFinding] {
        var findings: [MigrationFinding] = []
        for table in tables where table.isTransformed && !table.numbers.isEmpty {
            guard let source = table.source else { continue }
            findings += try self.findings(in: source, candidates(table))
        }
        return findings
    }

    private func candidates(_ table: TableMigration) -> [Candidate] {
        table.columns.compactMap { column in
            let (entity, name): (String, String)
            switch column.column.content {
            case .attribute(let owner, let path) where path.count == 1: (entity, name) = (owner, path[0])
            case .reference(let owner, let relationship): (entity, name) = (owner, relationship)
            case .attribute, .referencedEntity, .order: return nil
            }
            guard let declaring = destination.model.entity(named: entity),
                let property = destination.model.property(named: name, of: declaring)
            else { return nil }
            let members = destination.numbers.family(of: entity).filter { isAtRisk(property, of: $0) }
            guard !members.isEmpty else { return nil }
            let numbers = members.compactMap { succession.predecessors[$0] }.map(succession.source.numbers.number)
            return Candidate(
                property: property, entity: entity,
                condition: "(Z_ENT IN (\(numbers.sorted().list)) AND \(missing(column, property, of: entity, table)))")
        }
    }

    /// Where the migrated object has nothing, in terms of the row that it comes from.
    private func missing(
        _ column: ColumnMigration, _ property: PropertyDescription, of entity: String, _ table: TableMigration
    ) -> String {
        let value = column.expression(succession.numbers, family: Set(table.numbers.keys))
        guard case .relationship(let relationship) = property else { return "(\(value)) IS NULL" }
        // A link to an object that doesn't come along is let go of.
        let links = succession.links(of: relationship, declaredBy: entity).filter { !$0.isInverse }
        let targets = links.reduce(into: Set<Int64>()) { $0.formUnion($1.targets) }
        guard let table = links.first?.targetTable, !links.allSatisfy(\.hasAllTargets) else {
            return "(\(value)) IS NULL"
        }
        return "((\(value)) IS NULL OR (\(value)) NOT IN "
            + "(SELECT Z_PK FROM \(table.sqlName) WHERE Z_ENT IN (\(targets.sorted().list))))"
    }

    /// Nearly always there is none: one pass over the rows says so. Only where there is one they are counted.
    private func findings(in table: TableLayout, _ candidates: [Candidate]) throws -> [MigrationFinding] {
        var findings: [MigrationFinding] = []
        // Indexes may have collations that only Core Data has.
        let rows = "\(table.name.sqlName) NOT INDEXED"
        for start in stride(from: 0, to: candidates.count, by: Self.termsAtOnce) {
            let some = candidates[start..<min(start + Self.termsAtOnce, candidates.count)]
            let any = some.map(\.condition).joined(separator: " OR ")
            guard try store.integer("SELECT EXISTS (SELECT 1 FROM \(rows) WHERE \(any))") == 1 else { continue }
            for candidate in some {
                let count = try store.integer("SELECT count(*) FROM \(rows) WHERE \(candidate.condition)") ?? 0
                if count > 0 { findings.append(finding(candidate, count)) }
            }
        }
        return findings
    }

    private func finding(_ candidate: Candidate, _ count: Int64) -> MigrationFinding {
        let kind = if case .attribute = candidate.property { "attribute" } else { "relationship" }
        let subject = "\(candidate.entity).\(candidate.property.name)"
        return MigrationFinding(
            .error, code: CoreDataError.migration, entity: candidate.entity, property: candidate.property.name,
            "Validation error missing \(kind) values on mandatory destination \(kind): \(subject), in \(count) objects",
            remedy: "give \(subject) a default, make it optional, or set the values before")
    }

    private func isAtRisk(_ property: PropertyDescription, of entity: String) -> Bool {
        guard succession.predecessors[entity] != nil else { return false }
        switch property {
        case .attribute(let attribute):
            // Where there was no value, the default is one.
            guard !attribute.isOptional, attribute.derivation == nil, attribute.defaultLiteral == nil else {
                return false
            }
            return succession.attribute(attribute.name, of: entity)?.attribute.isOptional ?? true
        case .relationship(let relationship):
            guard !relationship.isOptional, !relationship.isToMany else { return false }
            // A new one begins without objects: Core Data lets that pass, and checks when the object is saved.
            return succession.relationship(relationship.name, of: entity)?.relationship.isOptional ?? false
        case .fetched: return false
        }
    }

    // MARK: Uniqueness constraints

    private func repetitions() throws -> [MigrationFinding] {
        var findings: [MigrationFinding] = []
        for entity in destination.numbers.entities {
            guard let table = tables.first(where: { $0.destination.name == destination.table(of: entity.name)?.name }),
                let source = table.source, !table.isUnchanged || table.isTransformed
            else { continue }
            for constraint in entity.uniquenessConstraints {
                let columns = constraint.compactMap { name in
                    destination.column(of: name, of: entity.name).flatMap { column in
                        table.columns.first { $0.column == column }
                    }
                }
                guard columns.count == constraint.count, !columns.isEmpty, !wasUnique(columns, in: table) else {
                    continue
                }
                let count = try repetitions(of: columns, of: table, source)
                guard count > 0 else { continue }
                findings.append(
                    MigrationFinding(
                        .error, code: CoreDataError.migrationConstraintViolation, entity: entity.name,
                        property: constraint.count == 1 ? constraint[0] : nil,
                        "the uniqueness constraint (\(constraint.joined(separator: ", "))) lets no two objects have the "
                            + "same: here \(count) are there more than once",
                        remedy: "remove one of the objects that have the same, or leave the uniqueness constraint out"))
            }
        }
        return findings
    }

    /// Whether an index of the store has seen to it already, and the values stay what they are.
    private func wasUnique(_ columns: [ColumnMigration], in table: TableMigration) -> Bool {
        let carried = columns.compactMap(\.carried)
        guard carried.count == columns.count else { return false }
        let unique = succession.source.indexes.filter { $0.isUnique && $0.table == table.source?.name }
        let there = Set(schema.objects.filter { $0.kind == .index }.map(\.name))
        return unique.contains { there.contains($0.name) && Set($0.columnNames) == Set(carried) }
    }

    /// Combinations of values that several rows would have in the new table. As in SQLite's index, what has no value is like
    /// nothing else; rows of all entities count.
    private func repetitions(
        of columns: [ColumnMigration], of table: TableMigration, _ source: TableLayout
    ) throws -> Int64 {
        let coming = Set(table.numbers.keys)
        let names = columns.indices.map { "v\($0)" }
        let values = zip(columns, names).map { "\($0.expression(succession.numbers, family: coming)) AS \($1)" }
        let present = names.map { "\($0) IS NOT NULL" }.joined(separator: " AND ")
        return try store.integer(
            "SELECT count(*) FROM (SELECT 1 FROM (SELECT \(values.joined(separator: ", ")) "
                + "FROM \(source.name.sqlName) NOT INDEXED\(table.rowCondition)) WHERE \(present) "
                + "GROUP BY \(names.map { $0 + " COLLATE BINARY" }.joined(separator: ", ")) HAVING count(*) > 1)") ?? 0
    }

    // MARK: Persistent history

    private func historyOfRemoved() throws -> [MigrationFinding] {
        guard schema.has(column: "ZENTITY", in: "ACHANGE") else { return [] }
        return try succession.source.numbers.entities.compactMap { entity in
            guard succession.successors[entity.name] == nil else { return nil }
            let number = succession.source.numbers.number(of: entity.name)
            let count = try store.integer("SELECT count(*) FROM ACHANGE NOT INDEXED WHERE ZENTITY = \(number)") ?? 0
            guard count > 0 else { return nil }
            return MigrationFinding(
                .error, code: CoreDataError.migration, entity: entity.name,
                "the entity is removed, and Core Data's persistent history has changes of it: here there are \(count)",
                remedy: "purge the history first, or allow it to lose them: groupstore migrate --allow-partial-history")
        }
    }
}

extension MigrationError {
    /// Nil where nothing stands in the way.
    init?(_ obstacles: [MigrationFinding], in store: FilePath) {
        guard let first = obstacles.first else { return nil }
        self.init(
            first.code ?? CoreDataError.migration,
            "\(PrintablePath(store)): Cannot migrate store in-place: \(first.sentence)",
            remedy: first.remedy, findings: obstacles)
    }
}
