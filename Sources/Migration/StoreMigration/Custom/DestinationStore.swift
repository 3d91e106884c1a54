import CoreDataStore
import ManagedObjectModels
import MappingModels
import PropertyLists
import SQLiteStore

/// The new store of a mapping. It starts empty, as Core Data would create it, with the older store's identity and the
/// app's own metadata.
package struct DestinationStore {
    private let store: StoreWriter
    private let plan: MappingPlan
    private var triggers: [String] = []
    private var foreign: ForeignObjects
    /// The tables that keep the pages of the indexes' roots free.
    private var placeholders: [String] = []
    private(set) var notes: [String] = []

    package init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        self.plan = plan
        foreign = try ForeignObjects(store, plan)
    }

    /// Creates the tables. Indexes and triggers follow once the tables are filled.
    mutating func create() throws {
        let row = try store.prepare("SELECT Z_UUID, Z_PLIST FROM source.Z_METADATA")
        guard try row.step() else {
            throw MigrationError(
                CoreDataError.incompatibleSchema, "the store's metadata has no row", remedy: "restore a backup")
        }
        let properties = row.bytes(1, limit: PropertyListValue.maximumSize).flatMap(StoreProperties.init)
        let uuid = row.text(0)
        row.reset()
        try store.createStore(plan.destination, uuid: uuid, properties: properties)
        for index in plan.destination.indexes { try store.execute("DROP INDEX main.\(index.name.sqlName)") }
        triggers = try store.dropTriggers()
        try foreign.check()
        try reserveIndexRoots()
    }

    /// Creates a table for each index, and so keeps a page free for its root. In this store, SQLite has the roots of
    /// B-trees before all other pages (https://sqlite.org/fileformat2.html, §1.8): a new one takes the place of a
    /// table's page, which moves, while another connection may read the table.
    private mutating func reserveIndexRoots() throws {
        for number in plan.destination.indexes.indices {
            let name = "gs_index_root_\(number)"
            try store.execute("CREATE TABLE main.\(name) (x)")
            placeholders.append(name)
        }
    }

    private mutating func releaseIndexRoots() throws {
        // The last root first, since SQLite moves the last one to a place that becomes free.
        for name in placeholders.reversed() { try store.execute("DROP TABLE main.\(name)") }
        placeholders = []
    }

    /// Computes derived attributes, as Core Data would when it saves the objects.
    mutating func deriveValues() throws {
        let layout = plan.destination
        try store.addCoreDataFunctions()
        let known = Dictionary(
            layout.derivedAttributeTriggers.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        for entity in layout.numbers.entities {
            let numbers = layout.numbers.family(of: entity.name).map { String(layout.numbers.number(of: $0)) }
            guard let table = layout.table(of: entity.name)?.name else { continue }
            for attribute in entity.attributes where !attribute.isTransient {
                guard let derivation = attribute.derivation,
                    let column = layout.column(of: attribute.name, of: entity.name)?.name
                else { continue }
                let name = entity.name + "." + attribute.name
                guard let value = known[name] ?? Self.value(derivation, of: entity, layout) else {
                    notes.append(
                        "\(name) is derived as “\(derivation.expression)”, which groupstore can't compute: it has no "
                            + "value until Core Data saves the object")
                    continue
                }
                try store.execute(
                    "UPDATE main.\(table.sqlName) AS t SET \(column.sqlName) = \(value) "
                        + "WHERE Z_ENT IN (\(numbers.joined(separator: ", ")))")
            }
        }
    }

    /// Returns the SQL expression of a derivation; nil if it can't be compiled.
    private static func value(
        _ derivation: AttributeDescription.Derivation, of entity: EntityDescription, _ layout: StoreLayout
    ) -> String? {
        guard derivation.filteringPredicate == nil,
            let expression = try? MappingExpression(format: derivation.expression)
        else { return nil }
        var compiler = ExpressionCompiler(layout, schema: "main").scoped(to: entity.name, as: "t")
        return try? compiler.value(expression).text
    }

    mutating func createIndexes() throws {
        try releaseIndexRoots()
        for index in plan.destination.indexes { try store.execute(index.creation) }
        for index in plan.destination.spatialIndexes { try store.execute(index.populateStatement) }
    }

    /// Creates the triggers, records the highest keys, and copies foreign objects.
    mutating func finish() throws {
        for trigger in triggers { try store.execute(trigger) }
        for table in plan.destination.tables {
            let highest = try highestSourceKey(of: table)
            try store.execute(
                "UPDATE main.Z_PRIMARYKEY SET Z_MAX = max(?, (SELECT coalesce(max(Z_PK), 0) FROM main.\(table.name.sqlName))) "
                    + "WHERE Z_ENT = ?",
                [.integer(highest), .integer(plan.destination.numbers.number(of: table.rootEntity))])
        }
        try foreign.carryOver()
        notes += foreign.notes
    }

    /// Returns the highest key that the older table has ever assigned, if its keys are kept, so that no key is reused.
    private func highestSourceKey(of table: TableLayout) throws -> Int64 {
        let family = plan.destination.numbers.family(of: table.rootEntity)
        let from = plan.entityMappings.first { entityPlan in
            entityPlan.keepsKeys && entityPlan.mapsObjects
                && entityPlan.destination.map { family.contains($0.name) } ?? false
        }
        guard let source = from?.source else { return 0 }
        let root = plan.source.model.rootEntity(of: source).name
        return try store.integer(
            "SELECT Z_MAX FROM source.Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(plan.source.numbers.number(of: root))])
            ?? 0
    }
}
