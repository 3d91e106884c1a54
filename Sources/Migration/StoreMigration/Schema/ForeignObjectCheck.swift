import CoreDataStore
import SQLiteStore

/// Checks whether foreign indexes, triggers and views still work in a store whose tables have changed.
struct ForeignObjectCheck {
    private let store: StoreWriter

    init(_ store: StoreWriter) { self.store = store }

    /// Returns why an index can't be created; nil if it can. Only SQLite's own collations are available here: an index
    /// in another order would be corrupt.
    func refusal(ofIndex creation: String) -> String? {
        let names = creation.uppercased().split(whereSeparator: { !$0.isLetter && $0 != "_" })
        let collations = zip(names, names.dropFirst()).filter { $0.0 == "COLLATE" }.map(\.1)
        if let unknown = collations.first(where: { !["BINARY", "NOCASE", "RTRIM"].contains(String($0)) }) {
            return "the collation \(unknown) is not available to groupstore"
        }
        return store.compileError(of: creation).map { _ in "a table or column that it names no longer exists" }
    }

    /// Creates views, then drops those that don't work once all exist: a view may use another one that follows it.
    /// Returns what was dropped and why.
    func restore(views: [DatabaseSchema.Object]) throws -> [String] {
        var notes: [String] = []
        var created: [DatabaseSchema.Object] = []
        for view in views { if let note = try create(view) { notes.append(note) } else { created.append(view) } }
        while let (index, note) = try dropFirstBroken(of: created) {
            created.remove(at: index)
            notes.append(note)
        }
        return notes
    }

    private func dropFirstBroken(of views: [DatabaseSchema.Object]) throws -> (index: Int, note: String)? {
        for (index, view) in views.enumerated() {
            if let note = try dropIfBroken(view) { return (index, note) }
        }
        return nil
    }

    /// Creates triggers one at a time, so that SQLite's next refusal is due to the last one. Returns what was dropped
    /// and why.
    func restore(triggers: [DatabaseSchema.Object]) throws -> [String] {
        try triggers.compactMap { try create($0) ?? dropIfBroken($0) }
    }

    private func create(_ object: DatabaseSchema.Object) throws -> String? {
        do {
            try store.execute(object.creation)
            return nil
        } catch let error as StoreError where !error.isInterruption && !error.isFull {
            return "the \(object.kind.rawValue) \(object.name) is dropped: \(error.reason)"
        }
    }

    private func dropIfBroken(_ object: DatabaseSchema.Object) throws -> String? {
        guard let refusal = try refusal(of: object) else { return nil }
        try store.execute("DROP \(object.kind.rawValue) \(object.name.sqlName)")
        return "the \(object.kind.rawValue) \(object.name) is dropped: \(refusal)"
    }

    /// Returns SQLite's error for a statement that would use an existing trigger or view; nil if the statement would
    /// run. A function or module that only the store's programs provide doesn't count as an error.
    private func refusal(of object: DatabaseSchema.Object) throws -> String? {
        let statement: String
        if object.kind == .view {
            statement = "SELECT * FROM \(object.name.sqlName)"
        } else {
            guard let event = TriggerEvent(creation: object.creation) else { return nil }
            let columns = try DatabaseSchema.columns(of: object.table, in: store)
            // SQLite doesn't check the columns of `UPDATE OF` until one of them is set.
            let known = Set((columns.map(\.name) + DatabaseSchema.Table.rowidNames).map { $0.lowercased() })
            if let missing = event.columns.first(where: { !known.contains($0.lowercased()) }) {
                return "no such column: \(missing)"
            }
            let assignable = columns.filter(\.isAssignable).map(\.name)
            statement = self.statement(event, on: object.table.sqlName, assignable)
        }
        let refusal = store.compileError(of: statement)
        let isExtensionMissing = refusal.map { $0.contains("no such function") || $0.contains("no such module") }
        return isExtensionMissing == true ? nil : refusal
    }

    private func statement(_ event: TriggerEvent, on table: String, _ columns: [String]) -> String {
        switch event.operation {
        case .insert: return "INSERT INTO \(table) DEFAULT VALUES"
        case .delete: return "DELETE FROM \(table)"
        case .update:
            let named = event.columns.filter { name in
                (columns + DatabaseSchema.Table.rowidNames).contains { $0.lowercased() == name.lowercased() }
            }
            let names = named.isEmpty ? columns : named
            return "UPDATE \(table) SET " + names.map { "\($0.sqlName) = \($0.sqlName)" }.joined(separator: ", ")
        }
    }
}

/// Recognizes Core Data's index names, which derive from tables and entities: `ZNOTE_ZFOLDER_INDEX`, `Z_Note_byTitle`,
/// formerly `ZNOTE_ZTITLE`.
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
