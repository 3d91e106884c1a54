import SQLiteStore

/// An index of a store, with the columns that it depends on.
struct StoreIndex {
    let name: String
    let table: String
    let creation: String
    /// The column names in lower case; nil for a partial index or one of expressions, which may name any column.
    let columns: Set<String>?

    static func all(_ schema: DatabaseSchema) -> [StoreIndex] {
        schema.tables.flatMap { table in
            table.indexes.compactMap { index in
                index.creation.map { creation in
                    let columns = index.terms.compactMap { $0.column?.lowercased() }
                    return StoreIndex(
                        name: index.name, table: table.name, creation: creation,
                        columns: index.isPartial || columns.count < index.terms.count ? nil : Set(columns))
                }
            }
        }
    }

    /// True if the index must be rebuilt when these columns are written. A renamed column needs no rebuild: SQLite
    /// renames it in the index itself.
    func isAffected(by written: Set<String>) -> Bool { columns.map { !$0.isDisjoint(with: written) } ?? true }

    /// Returns a statement as it compares with others that create the same index. SQLite quotes names that it has
    /// changed.
    static func comparable(_ statement: String) -> String { statement.replacing("\"", with: "") }
}
