import CoreDataStore
import MappingModels
import SQLiteStore

/// The first pass, for entity mappings without a policy: one statement makes all objects of one.
struct InstancePass {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let progress: MigrationProgress

    init(_ store: StoreWriter, _ plan: MappingPlan, _ progress: MigrationProgress) throws {
        self.store = store
        self.plan = plan
        self.progress = progress
    }

    /// About how many rows of the source's table the mapping may be about, from the highest key: to count them would take a
    /// part of the time that the mapping takes.
    func rows(of one: EntityMappingPlan) throws -> Int64 {
        guard let source = one.source else { return 0 }
        let root = plan.source.model.rootEntity(of: source).name
        return try store.integer(
            "SELECT Z_MAX FROM source.Z_PRIMARYKEY WHERE Z_ENT = ?",
            [.integer(plan.source.numbers.number(of: root))]) ?? 0
    }

    /// Gives out the new keys where objects don't keep theirs, so that each relationship can be looked up.
    func associate() throws {
        for one in plan.entityMappings {
            guard case .table(let name) = one.association else { continue }
            try store.execute(
                "CREATE TEMP TABLE \(name) (source INTEGER, source_entity INTEGER, destination INTEGER, "
                    + "destination_entity INTEGER)")
            if one.isRun, !one.usesPolicy { try giveKeys(one, name) }
            try store.execute("CREATE INDEX temp.\(name)_source ON \(name) (source)")
            try store.execute("CREATE INDEX temp.\(name)_destination ON \(name) (destination)")
        }
    }

    private func giveKeys(_ one: EntityMappingPlan, _ name: String) throws {
        guard let source = one.source, let destination = one.destination,
            let table = plan.source.table(of: source.name), let new = plan.destination.table(of: destination.name)
        else { return }
        var used: Int64 = 0
        for other in plan.entityMappings {
            guard case .table(let filled) = other.association, other.number < one.number, !other.usesPolicy,
                other.destination.flatMap({ plan.destination.table(of: $0.name)?.name }) == new.name
            else { continue }
            used = max(used, try store.integer("SELECT max(destination) FROM temp.\(filled)") ?? 0)
        }
        let alias = EntityMappingPlan.rowAlias
        let conditions = try plan.conditions(one, alias: alias).joined(separator: " AND ")
        let number = plan.destination.numbers.number(of: destination.name)
        try store.execute(
            "INSERT INTO temp.\(name) SELECT \(alias).Z_PK, \(alias).Z_ENT, "
                + "\(used) + row_number() OVER (ORDER BY \(alias).Z_PK), \(number) "
                + "FROM source.\(table.name.sqlName) AS \(alias) NOT INDEXED WHERE \(conditions)")
    }

    func insert(_ one: EntityMappingPlan) throws {
        guard let destination = one.destination, let table = plan.destination.table(of: destination.name),
            one.source != nil
        else { return }
        var assignments = try plan.attributeAssignments(one)
        for relationship in try plan.relationshipPlans(one) { assignments += relationship.earlyAssignments }
        let rows = try plan.rows(one)
        let columns = TableLayout.ownColumns + assignments.map(\.column.sqlName)
        let values = [rows.key, rows.entityNumber, "1"] + assignments.map(\.value)
        try store.execute(
            "INSERT INTO main.\(table.name.sqlName) (\(columns.joined(separator: ", "))) " + rows.query(values))
    }
}

extension MappingPlan {
    /// Compiles everything once, so that nothing is begun that can't be finished. Throws `MappingFault`.
    func check() throws(MappingFault) {
        for one in entityMappings where one.isRun {
            _ = try rows(one)
            _ = try attributeAssignments(one)
            for relationship in try relationshipPlans(one) where relationship.policyCall != nil && !one.usesPolicy {
                throw MappingFault(
                    "$entityPolicy stands for a policy, and the mapping names none", remedy: "name the policy's class",
                    element: one.mapping.name + "." + relationship.relationship.name)
            }
        }
    }
}
