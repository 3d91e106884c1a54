import CoreDataStore
import SQLiteStore

/// An index of a store, with the columns that it depends on.
struct StoreIndex {
    let name: String
    let table: String
    let creation: String
    /// The column names in lower case; nil for a partial index or one of expressions, which may name any column.
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

    /// True if the index must be rebuilt when these columns are written. A renamed column needs no rebuild: SQLite
    /// renames it in the index itself.
    func isAffected(by written: Set<String>) -> Bool { columns.map { !$0.isDisjoint(with: written) } ?? true }

    /// Returns a statement as it compares with others that create the same index. SQLite quotes names that it has
    /// changed.
    static func comparable(_ statement: String) -> String { statement.replacing("\"", with: "") }
}
