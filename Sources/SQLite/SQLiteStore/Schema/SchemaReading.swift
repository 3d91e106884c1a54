extension DatabaseSchema {
    /// Reads the schema of a connection's database. Throws `StoreError`, but not for a table that only the store's own
    /// program can use.
    ///
    /// - Parameters:
    ///   - database: The name under which the database is attached.
    ///   - table: The only table to read, with its indexes and triggers; nil for all.
    package init(_ store: SQLiteConnection, in database: String = "main", only table: String? = nil) throws {
        let queries = SchemaQueries(store: store, database: database, table: table)
        let kinds = try queries.tableList()
        var (objects, tables): ([Object], [Table]) = ([], [])
        var (places, rows): ([String: Int], [Int64: Int]) = ([:], [:])
        var indexes: [String: String] = [:]
        try queries.forEachObject { row in
            guard let kind = Object.Kind(rawValue: row.name(1)), !row.isNull(4) else { return }
            let object = Object(kind: kind, name: row.name(2), table: row.name(3), creation: row.name(4))
            objects.append(object)
            let key = Self.key(of: object.name)
            if kind == .index { indexes[key] = object.creation }
            guard kind == .table, !key.hasPrefix("sqlite_") else { return }
            (rows[row.integer(0)], places[key]) = (tables.count, tables.count)
            // A virtual table has no page of its own (https://sqlite.org/schematab.html). pragma_table_list can't tell,
            // because it reports a table of an unavailable module as an ordinary one.
            tables.append(
                Table(
                    name: object.name,
                    kind: row.integer(5) == 0 ? .virtual : kinds[key]?.hasRowid == false ? .withoutRowid : .rowid,
                    isShadow: kinds[key]?.type == "shadow", creation: object.creation))
        }
        /// Adds what a query says of each table.
        func add(_ columns: String, _ pragmas: String..., body: (inout Table, SQLiteStatement) -> Void) throws {
            try queries.forEachTable(columns, pragmas) { row in
                if let place = rows[row.integer(0)] { body(&tables[place], row) }
            }
        }
        try add(Column.selection, "table_xinfo(s.name") { $0.columns.append(Column($1, from: 1)) }
        try add(
            "x0.name, x0.origin, x0.\"unique\", x0.partial, x1.name, x1.cid, x1.coll, x1.key",
            "index_list(s.name", "index_xinfo(x0.name"
        ) { table, row in
            if table.indexes.last?.name != row.name(1) { table.indexes.append(Index(row, indexes)) }
            if row.integer(8) == 1 { table.indexes[table.indexes.count - 1].terms.append(Index.Term(row)) }
        }
        try add("x0.\"from\", x0.\"table\", x0.\"to\", x0.seq, x0.on_update, x0.on_delete", "foreign_key_list(s.name") {
            $0.foreignKeys.append(ForeignKey($1))
        }
        (self.objects, self.tables, self.places) = (objects, tables, places)
    }

    /// Returns the names of the tables, by name, without shadow tables and SQLite's own. It costs less than a schema.
    package static func tableNames(in store: SQLiteConnection) throws -> [String] {
        let row = try store.prepare(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') "
                + "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")
        var names: [String] = []
        while try row.step() { names.append(row.name(0)) }
        return names
    }

    /// Returns the columns of one table, also of a view or a virtual table: SQLite compiles the view's statement or
    /// asks the module. Returns none if nothing has that name. Throws `StoreError`.
    package static func columns(of name: String, in store: SQLiteConnection) throws -> [Column] {
        let row = try store.prepare(
            "SELECT \(Column.selection) FROM pragma_table_xinfo(?1, 'main') AS x0", [.text(name)])
        var columns: [Column] = []
        while try row.step() { columns.append(Column(row, from: 0)) }
        return columns
    }
}

extension SQLiteConnection {
    /// Returns true if the database has all of these tables, with exactly these names.
    package func hasTables(_ names: String..., in database: String = "main") throws -> Bool {
        try names.allSatisfy { name in
            try integer(
                "SELECT 1 FROM \(database.sqlName).sqlite_schema WHERE type = 'table' AND name = ?1", [.text(name)])
                != nil
        }
    }
}

/// The queries of one database's schema. Each reads `sqlite_schema` once: a query for each table would read all of it
/// each time, and so would a join with `pragma_table_list`.
private struct SchemaQueries {
    let store: SQLiteConnection
    let database: String
    let table: String?

    private var parameter: [SQLiteValue] { [table.map(SQLiteValue.text) ?? .null] }
    private var source: String { "\(database.sqlName).sqlite_schema AS s" }

    /// Returns the tables' types and whether their rows have a rowid, by `DatabaseSchema.key(of:)`.
    func tableList() throws -> [String: (type: String, hasRowid: Bool)] {
        var found: [String: (type: String, hasRowid: Bool)] = [:]
        let row = try store.prepare(
            "SELECT name, type, wr FROM pragma_table_list(?1) WHERE schema = \(database.sqlText)", parameter)
        while try row.step() { found[DatabaseSchema.key(of: row.name(0))] = (row.name(1), row.integer(2) == 0) }
        return found
    }

    func forEachObject(_ body: (SQLiteStatement) -> Void) throws {
        let row = try store.prepare(
            "SELECT s.rowid, s.type, s.name, s.tbl_name, s.sql, s.rootpage FROM \(source) "
                + "WHERE ?1 IS NULL OR s.tbl_name = ?1 COLLATE NOCASE ORDER BY s.rowid", parameter)
        while try row.step() { body(row) }
    }

    /// Calls `body` with the row number in `sqlite_schema` and these columns of the pragmas, for each row that the
    /// pragmas have for a table. Virtual tables are left out, because their modules may be unavailable.
    func forEachTable(_ columns: String, _ pragmas: [String], _ body: (SQLiteStatement) -> Void) throws {
        let joined = pragmas.enumerated().map { " CROSS JOIN pragma_\($1), \(database.sqlText)) AS x\($0)" }.joined()
        let row = try store.prepare(
            "SELECT s.rowid, \(columns) FROM \(source)\(joined) "
                + "WHERE s.type = 'table' AND s.rootpage > 0 AND (?1 IS NULL OR s.name = ?1 COLLATE NOCASE)", parameter)
        while try row.step() { body(row) }
    }
}

extension DatabaseSchema.Column {
    fileprivate static let selection = "x0.name, x0.type, x0.\"notnull\", x0.dflt_value, x0.pk, x0.hidden"

    fileprivate init(_ row: SQLiteStatement, from first: Int32) {
        name = row.name(first)
        type = row.name(first + 1)
        isMandatory = row.integer(first + 2) != 0
        defaultValue = row.isNull(first + 3) ? nil : row.name(first + 3)
        keyPlace = row.integer(first + 4)
        storage = Storage(rawValue: row.integer(first + 5)) ?? .ordinary
    }
}

extension DatabaseSchema.Index {
    /// - Parameter statements: By `DatabaseSchema.key(of:)` of the index.
    fileprivate init(_ row: SQLiteStatement, _ statements: [String: String]) {
        name = row.name(1)
        creation = statements[DatabaseSchema.key(of: name)]
        origin = Origin(rawValue: row.name(2)) ?? .statement
        isUnique = row.integer(3) == 1
        isPartial = row.integer(4) != 0
    }
}

extension DatabaseSchema.Index.Term {
    fileprivate init(_ row: SQLiteStatement) {
        column = row.isNull(5) ? nil : row.name(5)
        // The number of an expression, as of the rowid -1.
        isExpression = row.integer(6) == -2
        collation = row.isNull(7) ? nil : row.name(7)
    }
}

extension DatabaseSchema.ForeignKey {
    fileprivate init(_ row: SQLiteStatement) {
        self.init(
            column: row.name(1), table: row.name(2), target: row.isNull(3) ? nil : row.name(3),
            place: Int(row.integer(4)), hasAction: row.name(5) != "NO ACTION" || row.name(6) != "NO ACTION")
    }
}

extension SQLiteStatement {
    /// Returns a text of a schema. As for SQLite, it ends before a NUL.
    fileprivate func name(_ column: Int32) -> String {
        let text = text(column) ?? ""
        return text.utf8.contains(0) ? String(decoding: text.utf8.prefix { $0 != 0 }, as: UTF8.self) : text
    }
}
