import CoreDataStore
import MappingModels
import SQLiteStore

/// Copies foreign objects, which the app or another program created, to the new store of a mapping. Tables are copied
/// with their content, including virtual ones; indexes, views and triggers are copied if they still work. Everything
/// that is dropped is reported.
package struct ForeignObjects {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let objects: [StoreSchema.Object]
    private(set) var notes: [String] = []

    /// Reads the schema of the older store, which is attached as `source`.
    init(_ store: StoreWriter, _ plan: MappingPlan) throws {
        self.store = store
        self.plan = plan
        var found: [StoreSchema.Object] = []
        let rows = try store.prepare(
            "SELECT type, name, tbl_name, sql FROM source.sqlite_schema WHERE sql IS NOT NULL "
                + "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid")
        while try rows.step() {
            guard let kind = rows.text(0).flatMap(StoreSchema.Object.Kind.init) else { continue }
            found.append(
                StoreSchema.Object(
                    kind: kind, name: rows.text(1) ?? "", table: rows.text(2) ?? "", creation: rows.text(3) ?? ""))
        }
        let spatial = plan.source.spatialIndexes
        let spatialNames = Set(spatial.flatMap { [$0.name] + $0.shadowTables + $0.triggers.map(\.name) })
        objects = found.filter { !spatialNames.contains($0.name) }
    }

    private func isCoreDataTable(_ table: String) -> Bool {
        isObjectTable(table) || FrameworkTables.contains(table)
    }

    /// True for the tables of entities and many-to-many relationships.
    private func isObjectTable(_ table: String) -> Bool {
        plan.source.tables.contains { $0.name == table } || plan.source.joinTables.contains { $0.name == table }
    }

    /// True for tables that Core Data recreates, with their indexes.
    private func isRecreated(_ table: String) -> Bool {
        FrameworkTables.history.contains(table) || FrameworkTables.isMirroring(table)
    }

    private var tables: [StoreSchema.Object] { objects.filter { $0.kind == .table && !isCoreDataTable($0.table) } }

    /// Throws `MigrationError` if a foreign table has a name that Core Data needs, or can't be copied unchanged.
    func check() throws {
        for table in tables {
            let taken = "SELECT count(*) FROM main.sqlite_schema WHERE name = ? COLLATE NOCASE"
            guard try store.integer(taken, [.text(table.name)]) == 0 else {
                throw MigrationError(
                    CoreDataError.migration,
                    "the store has a table \(table.name) that isn't Core Data's, but the new model needs that name",
                    remedy: "rename that table")
            }
            // An index with an unknown collation would have another order than the store's programs expect.
            let unknown = try store.text(
                "SELECT x.coll FROM pragma_index_list(?1, 'source') AS l, pragma_index_xinfo(l.name, 'source') AS x "
                    + "WHERE l.origin <> 'c' AND x.key = 1 AND upper(x.coll) NOT IN ('BINARY', 'NOCASE', 'RTRIM')",
                [.text(table.name)])
            guard let unknown else { continue }
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
        try noteForeignColumns()
        try noteSuspects()
        try store.addCoreDataFunctions()
        let copy = ForeignTableCopy(store)
        let virtual = tables.filter { ForeignTableCopy.isVirtual($0) }
        for table in tables where !ForeignTableCopy.isVirtual(table) { try copy.copy(table) }
        for table in virtual { try carryOver(table, by: copy) }
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
        let mirroring = objects.filter {
            $0.kind == .table && FrameworkTables.isMirroring($0.name) && !ForeignTableCopy.isVirtual($0)
        }
        let names = try mirroring.map(\.name).sorted().map { name in
            let count = try store.integer("SELECT count(*) FROM source.\(name.sqlName)") ?? 0
            return count == 0 ? name : "\(name) (\(count) \(count == 1 ? "row" : "rows"))"
        }
        guard !names.isEmpty else { return }
        notes.append("CloudKit's tables describe the older objects, and are dropped: \(names.joined(separator: ", "))")
    }

    /// Reports foreign tables that are copied unchanged and may refer to objects by entity number and key.
    private mutating func noteSuspects() throws {
        var found: [String] = []
        for table in tables where !ForeignTableCopy.isVirtual(table) {
            let rows = try store.prepare("SELECT name FROM pragma_table_info(?, 'source')", [.text(table.name)])
            while try rows.step() {
                guard let column = rows.text(0), FrameworkTables.isSuspect(column) else { continue }
                found.append("\(table.name).\(column)")
            }
        }
        guard !found.isEmpty else { return }
        notes.append(
            "these columns of tables that aren't Core Data's may hold the older objects' entity numbers, and are copied "
                + "unchanged: \(found.joined(separator: ", "))")
    }

    private mutating func noteForeignColumns() throws {
        for table in plan.source.tables {
            let known = Set(table.columnNames)
            let rows = try store.prepare("SELECT name FROM pragma_table_info(?, 'source')", [.text(table.name)])
            while try rows.step() {
                guard let column = rows.text(0), !known.contains(column) else { continue }
                notes.append("the column \(table.name).\(column), which is not in the model, is dropped")
            }
        }
    }

    private mutating func carryOver(_ table: StoreSchema.Object, by copy: ForeignTableCopy) throws {
        if let refusal = try copy.copyVirtual(table) {
            notes.append("the virtual table \(table.name) is dropped: \(refusal)")
        } else if Set(SQLTokens(table.creation).map(\.text)).contains(where: isObjectTable) {
            notes.append(
                "the virtual table \(table.name) is copied unchanged: its content may no longer match the objects")
        }
    }

    private mutating func carryOver(_ index: StoreSchema.Object) throws {
        if isRecreated(index.table) { return }
        if isObjectTable(index.table), CoreDataIndexName([plan.source, plan.destination]).matches(index.name) {
            return
        }
        guard let refusal = ForeignObjectCheck(store).refusal(ofIndex: index.creation) else {
            return try store.execute(index.creation)
        }
        notes.append("the index \(index.name) is dropped: \(refusal)")
    }
}
