import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

/// The content of a store that prevents an inferred migration. `model check`, a dry run and the migration itself all
/// use this check.
///
/// Core Data checks the same while it migrates in place: mandatory properties that are new or were optional have a
/// value in each object, no two objects violate a uniqueness constraint, and no entity with persistent history is
/// removed.
package struct StoreObstacles {
    private let store: SQLiteConnection
    private let schema: DatabaseSchema
    private let matching: EntityMatching
    private let tables: [TableMigration]

    /// Returns nil for a step that isn't inferred: a mapping model creates new objects.
    package init?(_ reader: SQLiteConnection, _ step: MigrationStep) throws {
        guard case .inferred(let mapping) = step.method else { return nil }
        let schema = try DatabaseSchema(reader)
        let source = StoreLayout(step.source).usingJoinTableNames(of: schema)
        self.init(
            reader, schema: schema,
            matching: EntityMatching(from: source, to: source.layout(for: step.destination), mapping: mapping))
    }

    init(_ store: SQLiteConnection, schema: DatabaseSchema, matching: EntityMatching) {
        self.schema = schema
        self.matching = matching
        self.store = store
        tables = matching.tableMigrations
    }

    private var destination: StoreLayout { matching.destination }

    /// Throws `MigrationError` if the store's tables prevent the step.
    package func checkTables() throws(MigrationError) {
        try schema.check(matching.source, becoming: destination)
    }

    /// Returns an error for each obstacle. Throws `StoreError`.
    package func find(_ options: MigrationOptions) throws -> [MigrationFinding] {
        try missingValues() + duplicates() + (options.allowsPartialHistory ? [] : historyOfRemovedEntities())
    }

    /// Returns a warning for each entity that becomes abstract and has objects: they stay, but no request finds them.
    /// Throws `StoreError`.
    package func abstractObjects() throws -> [MigrationFinding] {
        try matching.source.numbers.entities.compactMap { entity in
            guard !entity.isAbstract, let new = matching.successors[entity.name],
                destination.model.entity(named: new)?.isAbstract == true,
                let table = matching.source.table(of: entity.name)?.name
            else { return nil }
            let count = try store.integer(
                "SELECT count(*) FROM \(table.sqlName) WHERE Z_ENT = \(matching.source.numbers.number(of: entity.name))"
            )
            guard let count, count > 0 else { return nil }
            return MigrationFinding(
                .warning, entity: new,
                "the entity becomes abstract: \(count == 1 ? "1 object stays" : "\(count) objects stay") in the store, "
                    + "but no request finds \(count == 1 ? "it" : "them")",
                remedy: MigrationReview.whereAbstract)
        }
    }

    // MARK: Mandatory properties

    /// A column in which the objects of some entities must have a value.
    private struct Candidate {
        let property: PropertyDescription
        let entity: String
        /// The SQL condition of rows without a value.
        let condition: String
    }

    /// SQLite accepts a thousand terms in one expression.
    private static let maximumTerms = 250

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
            let members = destination.numbers.family(of: entity).filter { mayLackValues(property, of: $0) }
            guard !members.isEmpty else { return nil }
            let numbers = members.compactMap { matching.predecessors[$0] }.map(matching.source.numbers.number)
            return Candidate(
                property: property, entity: entity,
                condition: "(Z_ENT IN (\(numbers.sorted().list)) AND "
                    + missingCondition(of: property, of: entity, in: column, of: table) + ")")
        }
    }

    /// Returns the SQL condition, on the source's row, under which the migrated object has no value.
    private func missingCondition(
        of property: PropertyDescription, of entity: String, in column: ColumnMigration, of table: TableMigration
    ) -> String {
        let value = column.expression(matching.numbers, family: Set(table.numbers.keys))
        guard case .relationship(let relationship) = property else { return "(\(value)) IS NULL" }
        // A link to an object that isn't migrated is cleared.
        let links = matching.links(of: relationship, declaredBy: entity).filter { !$0.isInverse }
        let targets = links.reduce(into: Set<Int64>()) { $0.formUnion($1.targets) }
        guard let table = links.first?.targetTable, !links.allSatisfy(\.hasAllTargets) else {
            return "(\(value)) IS NULL"
        }
        return "((\(value)) IS NULL OR (\(value)) NOT IN "
            + "(SELECT Z_PK FROM \(table.sqlName) WHERE Z_ENT IN (\(targets.sorted().list))))"
    }

    /// Checks all candidates in one pass over the rows, since values are hardly ever missing, and counts them only if
    /// some are.
    private func findings(in table: TableLayout, _ candidates: [Candidate]) throws -> [MigrationFinding] {
        var findings: [MigrationFinding] = []
        // Indexes may have collations that only Core Data provides.
        let rows = "\(table.name.sqlName) NOT INDEXED"
        for start in stride(from: 0, to: candidates.count, by: Self.maximumTerms) {
            let batch = candidates[start..<min(start + Self.maximumTerms, candidates.count)]
            let any = batch.map(\.condition).joined(separator: " OR ")
            guard try store.integer("SELECT EXISTS (SELECT 1 FROM \(rows) WHERE \(any))") == 1 else { continue }
            for candidate in batch {
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
            "Validation error missing \(kind) values on mandatory destination \(kind): \(subject), in \(Counted(count, "object"))",
            remedy: "give \(subject) a default, make it optional, or set the values before the migration")
    }

    private func mayLackValues(_ property: PropertyDescription, of entity: String) -> Bool {
        guard matching.predecessors[entity] != nil else { return false }
        switch property {
        case .attribute(let attribute):
            // A default fills in missing values.
            guard !attribute.isOptional, attribute.derivation == nil, attribute.defaultLiteral == nil else {
                return false
            }
            return matching.attribute(attribute.name, of: entity)?.attribute.isOptional ?? true
        case .relationship(let relationship):
            guard !relationship.isOptional, !relationship.isToMany else { return false }
            // A new relationship has no objects at first. Core Data accepts that, and validates when the object is
            // saved.
            return matching.relationship(relationship.name, of: entity)?.relationship.isOptional ?? false
        case .fetched: return false
        }
    }

    // MARK: Uniqueness constraints

    private func duplicates() throws -> [MigrationFinding] {
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
                let count = try duplicates(in: columns, of: table, source)
                guard count > 0 else { continue }
                findings.append(
                    MigrationFinding(
                        .error, code: CoreDataError.migrationConstraintViolation, entity: entity.name,
                        property: constraint.count == 1 ? constraint[0] : nil,
                        "the uniqueness constraint (\(constraint.joined(separator: ", "))) is violated: "
                            + (count == 1 ? "1 value occurs" : "\(count) values occur") + " more than once",
                        remedy: "remove one of the duplicate objects, or drop the uniqueness constraint"))
            }
        }
        return findings
    }

    /// True if an index of the store already enforces the constraint, and the values don't change.
    private func wasUnique(_ columns: [ColumnMigration], in table: TableMigration) -> Bool {
        let unchanged = columns.compactMap(\.unchangedSource)
        guard unchanged.count == columns.count else { return false }
        let unique = matching.source.indexes.filter { $0.isUnique && $0.table == table.source?.name }
        let present = Set(schema.objects(.index).map(\.name))
        return unique.contains { present.contains($0.name) && Set($0.columnNames) == Set(unchanged) }
    }

    /// Returns the number of combinations of values that several rows would have in the new table. As in SQLite's
    /// index, NULL equals nothing, and rows of all entities count.
    private func duplicates(
        in columns: [ColumnMigration], of table: TableMigration, _ source: TableLayout
    ) throws -> Int64 {
        let family = Set(table.numbers.keys)
        let names = columns.indices.map { "v\($0)" }
        let values = zip(columns, names).map { "\($0.expression(matching.numbers, family: family)) AS \($1)" }
        let present = names.map { "\($0) IS NOT NULL" }.joined(separator: " AND ")
        return try store.integer(
            "SELECT count(*) FROM (SELECT 1 FROM (SELECT \(values.joined(separator: ", ")) "
                + "FROM \(source.name.sqlName) NOT INDEXED\(table.rowCondition)) WHERE \(present) "
                + "GROUP BY \(names.map { $0 + " COLLATE BINARY" }.joined(separator: ", ")) HAVING count(*) > 1)") ?? 0
    }

    // MARK: Persistent history

    private func historyOfRemovedEntities() throws -> [MigrationFinding] {
        guard schema.has(column: "ZENTITY", in: "ACHANGE") else { return [] }
        return try matching.source.numbers.entities.compactMap { entity in
            guard matching.successors[entity.name] == nil else { return nil }
            let number = matching.source.numbers.number(of: entity.name)
            let count = try store.integer("SELECT count(*) FROM ACHANGE NOT INDEXED WHERE ZENTITY = \(number)") ?? 0
            guard count > 0 else { return nil }
            return MigrationFinding(
                .error, code: CoreDataError.migration, entity: entity.name,
                "the entity is removed, but Core Data's persistent history has \(Counted(count, "change")) of it",
                remedy:
                    "purge the history first, or let it lose these changes: groupstore migrate --allow-partial-history")
        }
    }
}

extension MigrationError {
    /// Returns nil if there are no obstacles.
    init?(_ obstacles: [MigrationFinding], in store: FilePath) {
        guard let first = obstacles.first else { return nil }
        self.init(
            first.code ?? CoreDataError.migration,
            "\(PrintablePath(store)): Cannot migrate store in-place: \(first.sentence)",
            remedy: first.remedy, findings: obstacles)
    }
}
