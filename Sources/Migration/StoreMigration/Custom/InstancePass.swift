import CoreDataStore
import MappingModels
import SQLiteStore

/// The first pass, for entity mappings without a policy: one statement per mapping creates all its objects.
struct InstancePass {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let progress: MigrationProgress
    private let excluded: ExcludedObjects

    init(_ store: StoreWriter, _ plan: MappingPlan, progress: MigrationProgress) throws {
        self.store = store
        self.plan = plan
        self.progress = progress
        excluded = try ExcludedObjects(store)
    }

    /// The number of older objects that an entity mapping's condition excludes, by entity, as far as they were counted.
    var excludedCounts: [String: Int64] { excluded.counts }

    /// Returns the approximate number of source rows that the mapping may read, taken from the highest key: counting
    /// them would take a noticeable part of the mapping's own time.
    func rows(of entityPlan: EntityMappingPlan) throws -> Int64 {
        guard let source = entityPlan.source else { return 0 }
        let root = plan.source.model.rootEntity(of: source).name
        return try store.integer(
            "SELECT Z_MAX FROM source.Z_PRIMARYKEY WHERE Z_ENT = ?",
            [.integer(plan.source.numbers.number(of: root))]) ?? 0
    }

    /// Assigns new keys to objects that don't keep theirs, so that each relationship can be looked up.
    func associate() throws {
        for entityPlan in plan.entityMappings {
            guard case .table(let name) = entityPlan.association else { continue }
            try store.execute(
                "CREATE TEMP TABLE \(name) (source INTEGER, source_entity INTEGER, destination INTEGER, "
                    + "destination_entity INTEGER)")
            if entityPlan.mapsObjects, !entityPlan.usesPolicy { try assignKeys(entityPlan, name) }
            try store.execute("CREATE INDEX temp.\(name)_source ON \(name) (source)")
            try store.execute("CREATE INDEX temp.\(name)_destination ON \(name) (destination)")
        }
    }

    private func assignKeys(_ entityPlan: EntityMappingPlan, _ name: String) throws {
        guard let source = entityPlan.source, let destination = entityPlan.destination,
            let table = plan.source.table(of: source.name), let new = plan.destination.table(of: destination.name)
        else { return }
        var used: Int64 = 0
        for other in plan.entityMappings {
            guard case .table(let filled) = other.association, other.number < entityPlan.number, !other.usesPolicy,
                other.destination.flatMap({ plan.destination.table(of: $0.name)?.name }) == new.name
            else { continue }
            used = max(used, try store.integer("SELECT max(destination) FROM temp.\(filled)") ?? 0)
        }
        let alias = EntityMappingPlan.rowAlias
        let conditions = try plan.conditions(entityPlan, alias: alias).joined(separator: " AND ")
        let number = plan.destination.numbers.number(of: destination.name)
        try store.execute(
            "INSERT INTO temp.\(name) SELECT \(alias).Z_PK, \(alias).Z_ENT, "
                + "\(used) + row_number() OVER (ORDER BY \(alias).Z_PK), \(number) "
                + "FROM source.\(table.name.sqlName) AS \(alias) NOT INDEXED WHERE \(conditions)")
    }

    func insert(_ entityPlan: EntityMappingPlan) throws {
        guard let destination = entityPlan.destination, let table = plan.destination.table(of: destination.name),
            entityPlan.source != nil
        else { return }
        var assignments = try plan.attributeAssignments(entityPlan)
        for relationship in try plan.relationshipPlans(entityPlan) {
            assignments += relationship.insertAssignments(leadsToObjects: try leadsToObjects(relationship))
        }
        var rows = try plan.rows(entityPlan)
        if entityPlan.countsExcludedObjects { excluded.count(of: entityPlan, &rows) }
        // SQLite copies each value once more unless the columns are all there, in the table's order.
        let assigned = Dictionary(assignments.map { ($0.column, $0.value) }, uniquingKeysWith: { first, _ in first })
        let ordered = table.orderedColumns.map(\.name)
        let columns = TableLayout.ownColumns + ordered.map(\.sqlName)
        let values = [rows.key, rows.entityNumber, "1"] + ordered.map { assigned[$0] ?? "NULL" }
        try store.execute(
            "INSERT INTO main.\(table.name.sqlName) (\(columns.joined(separator: ", "))) " + rows.query(values))
    }

    /// The number of different keys that are looked up one after another before all are read, for a table whose highest
    /// key is this: a small part of the work to read all of them.
    private static func maximumSkips(_ highest: Int64) -> Int64 { min(max(highest / 200, 20), 2000) }

    /// Returns true if each older object's reference is the key of a new object. An index has its different keys in
    /// order; to look each of them up takes far less than to do so for each object. False if there is no such index.
    private func leadsToObjects(_ relationship: RelationshipPlan) throws -> Bool {
        guard let (reference, targets) = relationship.keptReference else { return false }
        let table = try DatabaseSchema(store, in: "source", only: reference.table).table(reference.table)
        guard let table, table.isIndexed(by: reference.column) else { return false }
        let column = reference.column.sqlName
        let (source, row) = ("source.\(reference.table.sqlName)", EntityMappingPlan.rowAlias)
        let dangling =
            "SELECT 1 FROM (SELECT DISTINCT \(column) FROM \(source) WHERE \(column) IS NOT NULL) AS \(row) "
            + "WHERE NOT \(targets.exists()) LIMIT 1"
        // A condition may also depend on other columns of the object.
        guard store.compileError(of: dangling) == nil else { return false }
        // Many objects often refer to few: skip from each key to the next different one, as long as that isn't more
        // work than to read all of them. The last key is NULL.
        let highest = try store.integer("SELECT max(Z_PK) FROM \(source)") ?? 0
        let keys =
            "WITH RECURSIVE skips (key) AS (SELECT min(\(column)) FROM \(source) UNION ALL "
            + "SELECT (SELECT min(\(column)) FROM \(source) WHERE \(column) > key) FROM skips WHERE key IS NOT NULL "
            + "LIMIT \(Self.maximumSkips(highest)))"
        let found = try store.prepare(
            keys + " SELECT max(CASE WHEN \(row).\(column) IS NULL THEN 0 ELSE NOT \(targets.exists()) END), "
                + "max(\(row).\(column) IS NULL) FROM (SELECT key AS \(column) FROM skips) AS \(row)")
        guard try found.step(), found.integer(0) == 0 else { return false }
        return try found.integer(1) == 1 || store.integer(dangling) == nil
    }
}

extension DatabaseSchema.Table {
    /// True if an index of all rows begins with the column.
    fileprivate func isIndexed(by column: String) -> Bool {
        let key = DatabaseSchema.key(of: column)
        return indexes.contains { !$0.isPartial && $0.terms.first?.column.map(DatabaseSchema.key) == key }
    }
}

extension MappingPlan {
    /// Compiles all expressions once, so that a migration that can't finish doesn't start. Throws `MappingFault`.
    func check() throws(MappingFault) {
        for entityPlan in entityMappings where entityPlan.mapsObjects {
            _ = try rows(entityPlan)
            _ = try attributeAssignments(entityPlan)
            for relationship in try relationshipPlans(entityPlan)
            where relationship.policyCall != nil && !entityPlan.usesPolicy {
                throw MappingFault(
                    "$entityPolicy needs a policy, but the mapping names none", remedy: "name the policy's class",
                    element: entityPlan.mapping.name + "." + relationship.relationship.name)
            }
        }
    }
}
