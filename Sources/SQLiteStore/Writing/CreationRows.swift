/// The rows that come with a schema and are no data: what FTS5, R*Tree, Core Data and others put into tables of their own
/// when these are made.
///
/// A store that is wrongly taken for empty is displaced by another one. A table is known here by its name and its
/// columns, a virtual table's by the module as well, and each row that may be data is a row.
struct CreationRows {
    /// SQL that holds for the rows that may be data; nil where none may.
    let exception: String?
    let columns: [String]
    /// More rows than this are data.
    let most: Int64?

    private init(_ columns: [String], except exception: String? = nil, most: Int64? = nil) {
        self.columns = columns
        self.exception = exception
        self.most = most
    }

    /// Tables that say which version a schema or a store has, by their names.
    private static let bookkeeping: [String: CreationRows] = [
        "Z_METADATA": CreationRows(["Z_VERSION", "Z_UUID", "Z_PLIST"], most: 1),
        "Z_PRIMARYKEY": CreationRows(["Z_ENT", "Z_NAME", "Z_SUPER", "Z_MAX"]),
        "Z_MODELCACHE": CreationRows(["Z_CONTENT"], most: 1),
        "android_metadata": CreationRows(["locale"], most: 1),
        "room_master_table": CreationRows(["id", "identity_hash"], most: 1),
        "grdb_migrations": CreationRows(["identifier"]),
    ]

    /// Of each module that fills some of its tables when it makes them, these tables by what their names end in.
    ///
    /// FTS5: a row of averages and one of the structure (https://sqlite.org/fts5.html, §9). R*Tree: an empty root
    /// (https://sqlite.org/rtree.html, §2). FTS3 and FTS4 fill none.
    private static let shadows: [String: [String: CreationRows]] = {
        let tree = ["_node": CreationRows(["nodeno", "data"], except: "nodeno <> 1")]
        return [
            "fts5": [
                "_data": CreationRows(["id", "block"], except: "id NOT IN (1, 10)"),
                "_config": CreationRows(["k", "v"]),
            ],
            "rtree": tree, "rtree_i32": tree, "geopoly": tree,
        ]
    }()

    /// Nil for a table whose rows are all data. `modules`: of the store's virtual tables, by name.
    static func of(table name: String, modules: [(table: String, module: String)]) -> CreationRows? {
        // Swift takes two texts for equal that SQLite tells apart, "é" in one scalar and in two: bytes are compared.
        let bytes = Array(name.utf8)
        if let known = bookkeeping.first(where: { Array($0.key.utf8) == bytes }) { return known.value }
        for (table, module) in modules {
            for (suffix, rows) in shadows[module] ?? [:] where Array((table + suffix).utf8) == bytes { return rows }
        }
        return nil
    }
}

extension StoreReader {
    /// Which module each virtual table has.
    func virtualTableModules() throws -> [(table: String, module: String)] {
        let statement = try prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage = 0")
        var found: [(table: String, module: String)] = []
        while try statement.step() {
            guard let name = statement.text(0), let sql = statement.text(1),
                let module = VirtualTableModule.name(declaredIn: sql)
            else { continue }
            found.append((name, module))
        }
        return found
    }

    /// Whether the table has a row that did not come with the schema.
    func hasRows(_ table: StoreTable, besides made: CreationRows) throws -> Bool {
        guard try Set(columnNames(of: table)) == Set(made.columns.map { Array($0.utf8) }) else {
            return try hasRows(table)
        }
        if let most = made.most {
            return try integer("SELECT 1 FROM \(table.quotedName) NOT INDEXED LIMIT 1 OFFSET \(most)") != nil
        }
        guard let exception = made.exception else { return false }
        return try integer("SELECT 1 FROM \(table.quotedName) NOT INDEXED WHERE \(exception) LIMIT 1") != nil
    }

    private func columnNames(of table: StoreTable) throws -> [[UInt8]] {
        let information = try prepare("SELECT name FROM pragma_table_xinfo(?, 'main')", [.text(table.name)])
        var found: [[UInt8]] = []
        while try information.step() { found.append(Array((information.text(0) ?? "").utf8)) }
        return found
    }
}
