import CoreDataStore
import SQLiteStore

/// An index that a store has, and what it depends on.
struct StoreIndex {
    let name: String
    let table: String
    let creation: String
    /// In lower case; nil where it is of some rows only or of expressions: those may name any.
    let columns: Set<String>?

    static func all(_ store: SQLiteConnection, _ schema: StoreSchema) throws -> [StoreIndex] {
        try schema.objects.filter { $0.kind == .index }.map { index in
            StoreIndex(
                name: index.name, table: index.table, creation: index.creation,
                columns: try columns(of: index, store))
        }
    }

    private static func columns(of index: StoreSchema.Object, _ store: SQLiteConnection) throws -> Set<String>? {
        let isPartial = try store.integer(
            "SELECT partial FROM pragma_index_list(?) WHERE name = ?", [.text(index.table), .text(index.name)])
        guard isPartial == 0 else { return nil }
        let rows = try store.prepare("SELECT name FROM pragma_index_info(?)", [.text(index.name)])
        var names: Set<String> = []
        while try rows.step() {
            guard let name = rows.text(0) else { return nil }
            names.insert(name.lowercased())
        }
        return names
    }

    /// Whether rows of which these columns are written must be indexed anew. SQLite gives a column its new name in the
    /// index itself.
    func isTouched(by written: Set<String>) -> Bool { columns.map { !$0.isDisjoint(with: written) } ?? true }

    /// Whether this is what the statement would make. SQLite quotes names that it has changed.
    func isMade(by statement: String) -> Bool {
        creation.replacing("\"", with: "") == statement.replacing("\"", with: "")
    }
}
