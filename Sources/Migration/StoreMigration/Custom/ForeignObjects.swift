import CoreDataStore
import MappingModels
import SQLiteStore

/// Copies foreign objects, which the app or another program created, to the new store of a mapping. Tables are copied
/// with their content, including virtual ones; indexes, views and triggers are copied if they still work. Everything
/// that is dropped is reported.
package struct ForeignObjects {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let schema: DatabaseSchema
    private let objects: [DatabaseSchema.Object]
    /// The tables that aren't Core Data's.
    private let tables: [DatabaseSchema.Table]
    private(set) var notes: [String] = []

    /// Reads the schema of the older store, which is attached as `source`.
    init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        self.plan = plan
        schema = try DatabaseSchema(store, in: "source")
        let spatial = plan.source.spatialIndexes
        let spatialNames = Set(spatial.flatMap { [$0.name] + $0.shadowTables + $0.triggers.map(\.name) })
        objects = schema.objects.filter { !spatialNames.contains($0.name) }
        tables = schema.tables.filter { table in
            !spatialNames.contains(table.name) && !FrameworkTables.contains(table.name)
                && !Self.isObjectTable(table.name, plan)
        }
    }

    /// True for the tables of entities and many-to-many relationships.
    private static func isObjectTable(_ table: String, _ plan: MappingPlan) -> Bool {
        plan.source.tables.contains { $0.name == table } || plan.source.joinTables.contains { $0.name == table }
    }

    /// True for tables that Core Data recreates, with their indexes.
    private func isRecreated(_ table: String) -> Bool {
        FrameworkTables.history.contains(table) || FrameworkTables.isMirroring(table)
    }

    /// Throws `MigrationError` if a foreign table has a name that Core Data needs, or can't be copied unchanged.
    func check() throws {
        let taken = Set(try DatabaseSchema(store).objects.map { DatabaseSchema.key(of: $0.name) })
        for table in tables {
            guard !taken.contains(DatabaseSchema.key(of: table.name)) else {
                throw MigrationError(
                    CoreDataError.migration,
                    "the store has a table \(table.name) that isn't Core Data's, but the new model needs that name",
                    remedy: "rename that table")
            }
            // An index with an unknown collation would have another order than the store's programs expect.
            let constraints = table.indexes.filter { $0.origin != .statement }
            guard let unknown = constraints.lazy.compactMap(\.unknownCollation).first else { continue }
            throw MigrationError(
                CoreDataError.migration,
                "the table \(table.name), which isn't Core Data's, has a key with the collation \(unknown), which isn't "
                    + "available to groupstore",
                remedy: "let the app that created the table remove it before the migration, and restore it afterwards")
        }
    }

    mutating func carryOver() throws {
        if objects.contains(where: { FrameworkTables.history.contains($0.name) }) {
            notes.append("persistent history belongs to the older model, and starts again")
        }
        try noteMirroring()
        noteForeignColumns()
        noteSuspects()
        try store.addCoreDataFunctions()
        let copy = ForeignTableCopy(store, schema)
        for table in tables where table.kind != .virtual { try copy.copy(table) }
        for table in tables where table.kind == .virtual { try carryOver(table, by: copy) }
        for index in objects where index.kind == .index { try carryOver(index) }
        let check = ForeignObjectCheck(store)
        notes += try check.restore(views: objects.filter { $0.kind == .view })
        notes += try check.restore(triggers: objects.filter { $0.kind == .trigger && !$0.name.hasPrefix("Z_DA_") })
        for setting in ["user_version", "application_id"] {
            let value = try store.integer("PRAGMA source.\(setting)") ?? 0
            try store.execute("PRAGMA main.\(setting) = \(value)")
        }
    }

    /// Reports CloudKit's tables, which describe the older objects. The mirroring recreates them, and fetches each
    /// record again.
    private mutating func noteMirroring() throws {
        let mirroring = schema.tables.filter { FrameworkTables.isMirroring($0.name) && $0.kind != .virtual }
        let names = try mirroring.map(\.name).sorted().map { name in
            let count = try store.integer("SELECT count(*) FROM source.\(name.sqlName)") ?? 0
            return count == 0 ? name : "\(name) (\(count) \(count == 1 ? "row" : "rows"))"
        }
        guard !names.isEmpty else { return }
        notes.append("CloudKit's tables describe the older objects, and are dropped: \(names.joined(separator: ", "))")
    }

    /// Reports foreign tables that are copied unchanged and may refer to objects by entity number and key.
    private mutating func noteSuspects() {
        var found: [String] = []
        for table in tables {
            found += schema.columnNames(of: table.name).filter(FrameworkTables.isSuspect).map { "\(table.name).\($0)" }
        }
        guard !found.isEmpty else { return }
        notes.append(
            "these columns of tables that aren't Core Data's may hold the older objects' entity numbers, and are copied "
                + "unchanged: \(found.joined(separator: ", "))")
    }

    private mutating func noteForeignColumns() {
        for table in plan.source.tables {
            let known = Set(table.columnNames)
            for column in schema.columnNames(of: table.name) where !known.contains(column) {
                notes.append("the column \(table.name).\(column), which is not in the model, is dropped")
            }
        }
    }

    private mutating func carryOver(_ table: DatabaseSchema.Table, by copy: ForeignTableCopy) throws {
        if let refusal = try copy.copyVirtual(table) {
            notes.append("the virtual table \(table.name) is dropped: \(refusal)")
        } else if Set(SQLTokens(table.creation).map(\.text)).contains(where: { Self.isObjectTable($0, plan) }) {
            notes.append(
                "the virtual table \(table.name) is copied unchanged: its content may no longer match the objects")
        }
    }

    private mutating func carryOver(_ index: DatabaseSchema.Object) throws {
        if isRecreated(index.table) { return }
        if Self.isObjectTable(index.table, plan),
            CoreDataIndexName([plan.source, plan.destination]).matches(index.name)
        {
            return
        }
        guard let refusal = ForeignObjectCheck(store).refusal(ofIndex: index.creation) else {
            return try store.execute(index.creation)
        }
        notes.append("the index \(index.name) is dropped: \(refusal)")
    }
}
