import CoreDataStore
import MappingModels
import SQLiteStore

/// What somebody else has made in a Core Data store, in a new store that a mapping fills: tables with all that they hold,
/// virtual ones too, and indexes, views and triggers where they still make sense; what is dropped is named.
package struct ForeignObjects {
    private let store: StoreWriter
    private let plan: MappingPlan
    private let objects: [StoreSchema.Object]
    private(set) var notes: [String] = []

    /// Reads what the older store, attached as `source`, has.
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
        let ofSpatial = Set(spatial.flatMap { [$0.name] + $0.shadowTables + $0.triggers.map(\.name) })
        objects = found.filter { !ofSpatial.contains($0.name) }
    }

    private static let histories: Set<String> = ["ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]
    private static let bookkeeping: Set<String> = ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"]

    private func isCoreDatas(_ table: String) -> Bool {
        isOfObjects(table) || Self.bookkeeping.contains(table) || isGoingWithoutAWord(table)
    }

    private func isOfObjects(_ table: String) -> Bool {
        plan.source.tables.contains { $0.name == table } || plan.source.joinTables.contains { $0.name == table }
    }

    /// Core Data makes these anew, with their indexes.
    private func isGoingWithoutAWord(_ table: String) -> Bool {
        Self.histories.contains(table) || table.hasPrefix("ANSCK")
    }

    private var tables: [StoreSchema.Object] { objects.filter { $0.kind == .table && !isCoreDatas($0.table) } }

    /// Throws `MigrationError` where a foreign table has a name that Core Data needs, or couldn't be copied as it is.
    func check() throws {
        for table in tables {
            let taken = "SELECT count(*) FROM main.sqlite_schema WHERE name = ? COLLATE NOCASE"
            guard try store.integer(taken, [.text(table.name)]) == 0 else {
                throw MigrationError(
                    CoreDataError.migration,
                    "the store has a table \(table.name) that isn't Core Data's, and the new model needs one",
                    remedy: "rename that table")
            }
            // Its index would be in another order than the store's programs think.
            let unknown = try store.text(
                "SELECT x.coll FROM pragma_index_list(?1, 'source') AS l, pragma_index_xinfo(l.name, 'source') AS x "
                    + "WHERE l.origin <> 'c' AND x.key = 1 AND upper(x.coll) NOT IN ('BINARY', 'NOCASE', 'RTRIM')",
                [.text(table.name)])
            guard let unknown else { continue }
            throw MigrationError(
                CoreDataError.migration,
                "the table \(table.name), which isn't Core Data's, has a key in the order of \(unknown), which isn't "
                    + "known here",
                remedy: "let the app that made it take it out before, and put it back afterwards")
        }
    }

    mutating func carryOver() throws {
        if objects.contains(where: { Self.histories.contains($0.name) }) {
            notes.append("persistent history is of the older model, and begins anew")
        }
        noteMirroring()
        try noteForeignColumns()
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

    /// What mirrors the store into CloudKit keeps records of the older objects: it makes them anew, and asks for each again.
    private mutating func noteMirroring() {
        let names = objects.filter { $0.kind == .table && $0.name.hasPrefix("ANSCK") }.map(\.name).sorted()
        guard !names.isEmpty else { return }
        notes.append("CloudKit's tables are of the older objects, and dropped: \(names.joined(separator: ", "))")
    }

    private mutating func noteForeignColumns() throws {
        for table in plan.source.tables {
            let known = Set(table.columnNames)
            let rows = try store.prepare("SELECT name FROM pragma_table_info(?, 'source')", [.text(table.name)])
            while try rows.step() {
                guard let column = rows.text(0), !known.contains(column) else { continue }
                notes.append("the column \(table.name).\(column), which is none of the model's, is dropped")
            }
        }
    }

    private mutating func carryOver(_ table: StoreSchema.Object, by copy: ForeignTableCopy) throws {
        if let refusal = try copy.copyVirtual(table) {
            notes.append("the virtual table \(table.name) is dropped: \(refusal)")
        } else if Set(SQLTokens(table.creation).map(\.text)).contains(where: isOfObjects) {
            notes.append(
                "the virtual table \(table.name) is as it was: what it says of objects may have changed with them")
        }
    }

    private mutating func carryOver(_ index: StoreSchema.Object) throws {
        if isGoingWithoutAWord(index.table) { return }
        if isOfObjects(index.table), CoreDataIndexName([plan.source, plan.destination]).matches(index.name) { return }
        guard let refusal = ForeignObjectCheck(store).refusal(ofIndex: index.creation) else {
            return try store.execute(index.creation)
        }
        notes.append("the index \(index.name) is dropped: \(refusal)")
    }
}
