import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The store that a mapping makes: empty as Core Data would make it, with the older one's identity and what the app has
/// put into its metadata.
package struct DestinationStore {
    private let store: StoreWriter
    private let plan: MappingPlan
    private var triggers: [String] = []
    private var foreign: ForeignObjects
    private(set) var notes: [String] = []

    package init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        self.plan = plan
        foreign = try ForeignObjects(store, plan)
    }

    /// The tables; indexes and triggers come when they are filled.
    mutating func create() throws {
        let row = try store.prepare("SELECT Z_UUID, Z_PLIST FROM source.Z_METADATA")
        guard try row.step() else {
            throw MigrationError(
                CoreDataError.incompatibleSchema, "the store's metadata has no row", remedy: "restore a backup")
        }
        let properties = row.bytes(1, limit: 64 << 20).flatMap(StoreProperties.init)
        let uuid = row.text(0)
        row.reset()
        try store.createStore(plan.destination, uuid: uuid, properties: properties)
        for index in plan.destination.indexes { try store.execute("DROP INDEX main.\(index.name.sqlName)") }
        let rows = try store.prepare("SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'")
        var names: [String] = []
        while try rows.step() {
            names.append(rows.text(0) ?? "")
            triggers.append(rows.text(1) ?? "")
        }
        rows.reset()
        for name in names { try store.execute("DROP TRIGGER main.\(name.sqlName)") }
        try foreign.check()
    }

    /// What Core Data computes, for the objects that it hasn't computed it for.
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
                        "\(name) is derived as “\(derivation.expression)”, which only Core Data "
                            + "computes: it has no value before an object is saved")
                    continue
                }
                try store.execute(
                    "UPDATE main.\(table.sqlName) AS t SET \(column.sqlName) = \(value) "
                        + "WHERE Z_ENT IN (\(numbers.joined(separator: ", ")))")
            }
        }
    }

    /// Nil for what can't be computed here.
    private static func value(
        _ derivation: AttributeDescription.Derivation, of entity: EntityDescription, _ layout: StoreLayout
    ) -> String? {
        guard derivation.filteringPredicate == nil,
            let expression = try? MappingExpression(format: derivation.expression)
        else { return nil }
        var compiler = ExpressionCompiler(layout, schema: "main").about(entity.name, as: "t")
        return try? compiler.value(expression).text
    }

    func createIndexes() throws {
        for index in plan.destination.indexes { try store.execute(index.creation) }
        for index in plan.destination.spatialIndexes { try store.execute(index.filling) }
    }

    /// The keys that were given out, the triggers, and tables that aren't Core Data's.
    mutating func finish() throws {
        for trigger in triggers { try store.execute(trigger) }
        for table in plan.destination.tables {
            let kept = try keysGivenOut(into: table)
            try store.execute(
                "UPDATE main.Z_PRIMARYKEY SET Z_MAX = max(?, (SELECT coalesce(max(Z_PK), 0) FROM main.\(table.name.sqlName))) "
                    + "WHERE Z_ENT = ?",
                [.integer(kept), .integer(plan.destination.numbers.number(of: table.rootEntity))])
        }
        try foreign.carryOver()
        notes += foreign.notes
    }

    /// The last key that the older table gave out, where its keys are kept: none is given out again.
    private func keysGivenOut(into table: TableLayout) throws -> Int64 {
        let family = plan.destination.numbers.family(of: table.rootEntity)
        let from = plan.entityMappings.first { one in
            one.keepsKeys && one.isRun && one.destination.map { family.contains($0.name) } ?? false
        }
        guard let source = from?.source else { return 0 }
        let root = plan.source.model.rootEntity(of: source).name
        return try store.integer(
            "SELECT Z_MAX FROM source.Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(plan.source.numbers.number(of: root))])
            ?? 0
    }
}
