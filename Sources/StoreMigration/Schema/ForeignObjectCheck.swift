import CoreDataStore
import SQLiteStore

/// Whether an index, a trigger or a view that somebody else has made still makes sense in a store whose tables are others.
struct ForeignObjectCheck {
    private let store: StoreWriter

    init(_ store: StoreWriter) { self.store = store }

    /// Why an index can't be made; nil when it can. Only SQLite's own collations are known here: an index in another order
    /// would be a damaged one.
    func refusal(ofIndex creation: String) -> String? {
        let names = creation.uppercased().split(whereSeparator: { !$0.isLetter && $0 != "_" })
        let collations = zip(names, names.dropFirst()).filter { $0.0 == "COLLATE" }.map(\.1)
        if let unknown = collations.first(where: { !["BINARY", "NOCASE", "RTRIM"].contains(String($0)) }) {
            return "the collation \(unknown) is not known here"
        }
        return store.refusal(of: creation).map { _ in "what it is of is not there any more" }
    }

    /// Makes views, and takes back those that don't work when all are there: one may be made of another one that comes
    /// later. Returns what was dropped and why.
    func restore(views: [StoreSchema.Object]) throws -> [String] {
        var notes: [String] = []
        var left: [StoreSchema.Object] = []
        for view in views { if let note = try make(view) { notes.append(note) } else { left.append(view) } }
        while let (index, note) = try firstDropped(of: left) {
            left.remove(at: index)
            notes.append(note)
        }
        return notes
    }

    private func firstDropped(of views: [StoreSchema.Object]) throws -> (index: Int, note: String)? {
        for (index, view) in views.enumerated() {
            if let note = try drop(view) { return (index, note) }
        }
        return nil
    }

    /// Makes triggers one by one: what SQLite then refuses is the last one's fault.
    func restore(triggers: [StoreSchema.Object]) throws -> [String] {
        try triggers.compactMap { try make($0) ?? drop($0) }
    }

    private func make(_ object: StoreSchema.Object) throws -> String? {
        do {
            try store.execute(object.creation)
            return nil
        } catch let error as StoreError where !error.isInterruption && !error.isFull {
            return "the \(object.kind.rawValue) \(object.name) is dropped: \(error.reason)"
        }
    }

    private func drop(_ object: StoreSchema.Object) throws -> String? {
        guard let refusal = try refusal(of: object) else { return nil }
        try store.execute("DROP \(object.kind.rawValue) \(object.name.sqlName)")
        return "the \(object.kind.rawValue) \(object.name) is dropped: \(refusal)"
    }

    /// What SQLite says to a statement that would use a trigger or a view that is there; nil when it would run. A function
    /// or a module that only the store's programs have is no reason.
    private func refusal(of object: StoreSchema.Object) throws -> String? {
        let statement: String
        if object.kind == .view {
            statement = "SELECT * FROM \(object.name.sqlName)"
        } else {
            guard let event = TriggerEvent(creation: object.creation) else { return nil }
            let columns = try self.columns(of: object.table)
            // SQLite doesn't look at these before one of them is set.
            let known = Set((columns.map(\.name) + Self.rowNumbers).map { $0.lowercased() })
            if let gone = event.columns.first(where: { !known.contains($0.lowercased()) }) {
                return "no such column: \(gone)"
            }
            let assignable = columns.filter { !$0.isGenerated }.map(\.name)
            statement = self.statement(event, on: object.table.sqlName, assignable)
        }
        let refusal = store.refusal(of: statement)
        let isOfThePrograms = refusal.map { $0.contains("no such function") || $0.contains("no such module") }
        return isOfThePrograms == true ? nil : refusal
    }

    private static let rowNumbers = ["rowid", "_rowid_", "oid"]

    /// Also of a view.
    private func columns(of table: String) throws -> [(name: String, isGenerated: Bool)] {
        let rows = try store.prepare("SELECT name, hidden FROM pragma_table_xinfo(?)", [.text(table)])
        var found: [(name: String, isGenerated: Bool)] = []
        while try rows.step() { found.append((rows.text(0) ?? "", rows.integer(1) != 0)) }
        return found
    }

    private func statement(_ event: TriggerEvent, on table: String, _ columns: [String]) -> String {
        switch event.operation {
        case .insert: return "INSERT INTO \(table) DEFAULT VALUES"
        case .delete: return "DELETE FROM \(table)"
        case .update:
            let named = event.columns.filter { name in
                (columns + Self.rowNumbers).contains { $0.lowercased() == name.lowercased() }
            }
            let names = named.isEmpty ? columns : named
            return "UPDATE \(table) SET " + names.map { "\($0.sqlName) = \($0.sqlName)" }.joined(separator: ", ")
        }
    }
}

/// Core Data names its indexes after tables and entities: `ZNOTE_ZFOLDER_INDEX`, `Z_Note_byTitle`, once `ZNOTE_ZTITLE`.
struct CoreDataIndexName {
    private let tables: [String]
    private let entities: [String]

    init(_ layouts: [StoreLayout]) {
        tables = layouts.flatMap { $0.tables.map(\.name) + $0.joinTables.map(\.name) }
        entities = layouts.flatMap { $0.model.entities.map(\.name) }
    }

    func matches(_ name: String) -> Bool {
        tables.contains { name.hasPrefix($0 + "_Z") || name == $0 + "_REFLEXIVE_INDEX" }
            || entities.contains { name.hasPrefix("Z_" + $0 + "_") }
    }
}
