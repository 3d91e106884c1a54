import PersistentHistory
import SQLiteStore

/// A virtual table of a store, and how a replica gets its content. No trigger sees what is written to it.
struct ReplicatedVirtualTable: Equatable {
    enum Content: Equatable {
        /// The table keeps its rows itself: a batch has all of them if one has changed.
        case own(ReplicatedTable)
        /// A full-text index of another table or view, rebuilt from it.
        case external(String)
        /// The table shows the content of other tables.
        case derived
    }

    let name: String
    let module: String
    /// The way to get its content; nil if a replica can't have it.
    let content: Content?
    /// The reason why a replica can't have it; nil if it can.
    let refusal: String?

    /// Reads the virtual tables of a store.
    static func all(_ schema: DatabaseSchema, _ database: SQLiteConnection) throws -> [ReplicatedVirtualTable] {
        try schema.tablesByName.filter { $0.kind == .virtual }.map { table in
            let (name, module) = (table.name, table.module ?? "?")
            let arguments = VirtualTableModule.arguments(declaredIn: table.creation)
            do {
                let content = try content(of: name, module, arguments, database)
                return ReplicatedVirtualTable(name: name, module: module, content: content, refusal: nil)
            } catch let refused as Refusal {
                return ReplicatedVirtualTable(name: name, module: module, content: nil, refusal: refused.reason)
            }
        }
    }

    private struct Refusal: Error {
        let reason: String
    }

    private static func content(
        of name: String, _ module: String, _ arguments: [String], _ database: SQLiteConnection
    ) throws -> Content {
        switch module {
        case "fts5vocab", "fts4aux": return .derived
        case "rtree", "rtree_i32": return try .own(table(name, hasKeyColumn: true, database))
        case "fts3": return try .own(table(name, hasKeyColumn: false, database))
        case "fts4", "fts5":
            for option in ["compress", "uncompress", "languageid"]
            where VirtualTableModule.value(of: option, in: arguments) != nil {
                throw Refusal(reason: "a batch doesn't carry a table with the option \(option)")
            }
            guard let source = VirtualTableModule.value(of: "content", in: arguments) else {
                return try .own(table(name, hasKeyColumn: false, database))
            }
            guard !source.isEmpty else { throw Refusal(reason: "an index without content can't be made again") }
            let exists = try database.integer(
                "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE)", [.text(source)])
            guard exists == 1 else { throw Refusal(reason: "the table of its content, \(source), is gone") }
            return .external(source)
        default: throw Refusal(reason: "a batch doesn't carry tables of the module \(module)")
        }
    }

    private static func table(
        _ name: String, hasKeyColumn: Bool, _ database: SQLiteConnection
    ) throws -> ReplicatedTable {
        let columns = try DatabaseSchema.columns(of: name, in: database).filter(\.isAssignable).map(\.name)
        guard !columns.isEmpty else { throw Refusal(reason: "SQLite can't read it") }
        return ReplicatedTable(
            number: 0, name: name, rowid: "rowid", key: hasKeyColumn ? [columns[0]] : [], columns: columns)
    }
}
