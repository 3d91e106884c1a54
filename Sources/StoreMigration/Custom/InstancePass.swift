import CoreDataStore
import MappingModels
import SQLiteStore

/// The first pass, for entity mappings without a policy: one statement per mapping creates all its objects.
struct InstancePass {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let progress: MigrationProgress

    init(_ store: StoreWriter, _ plan: MappingPlan, progress: MigrationProgress) throws {
        self.store = store
        self.plan = plan
        self.progress = progress
    }

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
        for relationship in try plan.relationshipPlans(entityPlan) { assignments += relationship.insertAssignments }
        let rows = try plan.rows(entityPlan)
        let columns = TableLayout.ownColumns + assignments.map(\.column.sqlName)
        let values = [rows.key, rows.entityNumber, "1"] + assignments.map(\.value)
        try store.execute(
            "INSERT INTO main.\(table.name.sqlName) (\(columns.joined(separator: ", "))) " + rows.query(values))
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
