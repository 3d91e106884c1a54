import SQLiteStore

/// The tables of a store as SQLite describes them.
struct SchemaFacts {
    struct Column: Equatable {
        let name: String
        let type: String
        let isMandatory: Bool
        /// The column's place in the primary key, from 1; 0 if it isn't part of it.
        let keyPlace: Int64
        let isGenerated: Bool

        /// True if both are declared the same, whatever their order.
        func isDeclared(as other: Column) -> Bool {
            TableWrites.key(name) == TableWrites.key(other.name) && type.uppercased() == other.type.uppercased()
                && isMandatory == other.isMandatory && keyPlace == other.keyPlace && isGenerated == other.isGenerated
        }
    }

    struct ForeignKey {
        let column: String
        let table: String
        /// Nil for the primary key of the other table.
        let target: String?
        let place: Int
    }

    struct Table {
        enum Kind { case rowid, withoutRowid, virtual, shadow }

        let name: String
        let kind: Kind
        let creation: String
        let columns: [Column]
        var foreignKeys: [ForeignKey]
        /// True if the primary key is the row's number.
        let keyIsRowNumber: Bool

        var storedColumns: [Column] { columns.filter { !$0.isGenerated } }
        var primaryKey: [Column] { columns.filter { $0.keyPlace > 0 }.sorted { $0.keyPlace < $1.keyPlace } }
        var rowNumberColumn: String? { keyIsRowNumber ? primaryKey.first?.name : nil }
        var isAutoincrement: Bool { keyIsRowNumber && creation.uppercased().contains("AUTOINCREMENT") }

        func column(_ name: String) -> Column? {
            columns.first { TableWrites.key($0.name) == TableWrites.key(name) }
        }

        /// A name of the row's number that no column has; nil if there is none.
        var rowNumberName: String? {
            rowNumberColumn
                ?? ["rowid", "_rowid_", "oid"].first { name in column(name) == nil }
        }
    }

    var tables: [Table]
    let encoding: String
    let userVersion: Int64
    let applicationID: Int64

    init(_ store: SQLiteConnection) throws {
        encoding = try store.text("PRAGMA main.encoding") ?? ""
        userVersion = try store.integer("PRAGMA main.user_version") ?? 0
        applicationID = try store.integer("PRAGMA main.application_id") ?? 0
        var found: [Table] = []
        let rows = try store.prepare(
            """
            SELECT s.name, s.rootpage, l.wr, l.type, s.sql FROM main.sqlite_schema AS s
            LEFT JOIN pragma_table_list AS l ON l.schema = 'main' AND l.name = s.name
            WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY s.rowid
            """)
        while try rows.step() {
            let name = rows.text(0) ?? ""
            let kind: Table.Kind =
                rows.integer(1) == 0
                ? .virtual : rows.text(3) == "shadow" ? .shadow : rows.integer(2) == 1 ? .withoutRowid : .rowid
            found.append(try Self.table(name, kind, rows.text(4) ?? "", in: store))
        }
        tables = found
    }

    func table(_ name: String) -> Table? { tables.first { TableWrites.key($0.name) == TableWrites.key(name) } }

    private static func table(
        _ name: String, _ kind: Table.Kind, _ creation: String, in store: SQLiteConnection
    ) throws -> Table {
        guard kind != .virtual else {
            return Table(
                name: name, kind: kind, creation: creation, columns: [], foreignKeys: [], keyIsRowNumber: false)
        }
        var columns: [Column] = []
        let rows = try store.prepare(
            "SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1, 'main') ORDER BY cid",
            [.text(name)])
        while try rows.step() {
            columns.append(
                Column(
                    name: rows.text(0) ?? "", type: rows.text(1) ?? "", isMandatory: rows.integer(2) != 0,
                    keyPlace: rows.integer(3), isGenerated: rows.integer(4) != 0))
        }
        var keys: [ForeignKey] = []
        let references = try store.prepare(
            "SELECT \"from\", \"table\", \"to\", seq FROM pragma_foreign_key_list(?1, 'main') ORDER BY id, seq",
            [.text(name)])
        while try references.step() {
            keys.append(
                ForeignKey(
                    column: references.text(0) ?? "", table: references.text(1) ?? "", target: references.text(2),
                    place: Int(references.integer(3))))
        }
        let key = columns.filter { $0.keyPlace > 0 }
        // A primary key that has an index of its own isn't the row's number (https://sqlite.org/lang_createtable.html).
        let hasKeyIndex =
            try store.integer(
                "SELECT count(*) FROM pragma_index_list(?1, 'main') WHERE origin = 'pk'", [.text(name)]) ?? 0
        let isRowNumber =
            kind != .withoutRowid && key.count == 1 && key[0].type.uppercased() == "INTEGER" && hasKeyIndex == 0
        return Table(
            name: name, kind: kind, creation: creation, columns: columns, foreignKeys: keys, keyIsRowNumber: isRowNumber
        )
    }
}
