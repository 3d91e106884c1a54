import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// Tables and what belongs to them that somebody else has made in a Core Data store: carried over, or named as dropped.
struct ForeignObjects {
    private let store: StoreWriter
    private let plan: MappingPlan
    private(set) var notes: [String] = []

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
    }

    private static let histories: Set<String> = ["ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]
    private static let bookkeeping: Set<String> = ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"]

    mutating func carryOver() throws {
        let spatial = plan.source.spatialIndexes
        let ofSpatial = Set(spatial.flatMap { [$0.name] + $0.shadowTables + $0.triggers.map(\.name) })
        let objects = try all().filter { !ofSpatial.contains($0.name) }
        let own = Set(plan.source.tables.map(\.name) + plan.source.joinTables.map(\.name)).union(Self.bookkeeping)
        if objects.contains(where: { Self.histories.contains($0.name) }) {
            notes.append("persistent history is of the older model, and begins anew")
        }
        let isCoreDatas = { (table: String) in
            own.contains(table) || Self.histories.contains(table) || table.hasPrefix("ANSCK")
        }
        var carried: Set<String> = []
        for object in objects where object.kind == "table" && !isCoreDatas(object.table) {
            guard try copy(object) else { continue }
            carried.insert(object.name)
        }
        for object in objects where object.kind != "table" && !isNamedByCoreData(object) {
            if carried.contains(object.table) || object.kind == "view" || object.kind == "trigger" {
                try create(object)
            } else if !isCoreDatas(object.table) {
                drop(object, "its table is not carried over")
            }
        }
    }

    private struct Object {
        let kind: String
        let name: String
        let table: String
        let creation: String
    }

    private func all() throws -> [Object] {
        var found: [Object] = []
        let rows = try store.prepare(
            "SELECT type, name, tbl_name, sql FROM source.sqlite_schema WHERE sql IS NOT NULL "
                + "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type = 'trigger', type = 'view', rowid")
        while try rows.step() {
            found.append(
                Object(
                    kind: rows.text(0) ?? "", name: rows.text(1) ?? "", table: rows.text(2) ?? "",
                    creation: rows.text(3) ?? ""))
        }
        return found
    }

    private func isNamedByCoreData(_ object: Object) -> Bool { object.name.hasPrefix("Z_DA_") }

    private mutating func drop(_ object: Object, _ why: String) {
        notes.append("the \(object.kind) \(object.name) is dropped: \(why)")
    }

    /// False when it is dropped.
    private mutating func copy(_ object: Object) throws -> Bool {
        guard !object.creation.uppercased().hasPrefix("CREATE VIRTUAL") else {
            drop(object, "a virtual table is not carried over")
            return false
        }
        // The shadow tables of a virtual one are made with it.
        guard try store.integer("SELECT count(*) FROM main.sqlite_schema WHERE name = ?", [.text(object.name)]) == 0
        else {
            drop(object, "the new store has a table of this name")
            return false
        }
        try store.execute(object.creation)
        try store.execute("INSERT INTO main.\(object.name.sqlName) SELECT * FROM source.\(object.name.sqlName)")
        return true
    }

    private mutating func create(_ object: Object) throws {
        if let refusal = store.refusal(of: object.creation) { return drop(object, refusal) }
        do { try store.execute(object.creation) } catch let error as StoreError where !error.isInterruption {
            drop(object, "\(error)")
        }
    }
}
