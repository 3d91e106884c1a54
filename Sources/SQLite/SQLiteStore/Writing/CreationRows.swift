/// The rows that a schema's creation inserts and that are not user data: those that FTS5, R*Tree, Core Data and others
/// put into tables of their own.
///
/// A store wrongly considered empty would be replaced by another one. So a table counts as one of these only by its
/// name and columns, and by its module if it belongs to a virtual table. Any row that may be user data counts as data.
struct CreationRows {
    /// An SQL condition for the rows that may be user data, or nil if none may be.
    let dataCondition: String?
    let columns: [String]
    /// The number of rows beyond which they are user data.
    let limit: Int64?

    private init(_ columns: [String], dataIf dataCondition: String? = nil, limit: Int64? = nil) {
        self.columns = columns
        self.dataCondition = dataCondition
        self.limit = limit
    }

    /// Tables that record a schema's or store's version, by name.
    private static let bookkeeping: [String: CreationRows] = [
        "Z_METADATA": CreationRows(["Z_VERSION", "Z_UUID", "Z_PLIST"], limit: 1),
        "Z_PRIMARYKEY": CreationRows(["Z_ENT", "Z_NAME", "Z_SUPER", "Z_MAX"]),
        "Z_MODELCACHE": CreationRows(["Z_CONTENT"], limit: 1),
        "android_metadata": CreationRows(["locale"], limit: 1),
        "room_master_table": CreationRows(["id", "identity_hash"], limit: 1),
        "grdb_migrations": CreationRows(["identifier"]),
    ]

    /// The tables that a module fills on creation, by module and by the suffix of their names.
    ///
    /// FTS5 inserts a row of averages and one for the structure (https://sqlite.org/fts5.html, §9). R*Tree inserts an
    /// empty root (https://sqlite.org/rtree.html, §2). FTS3 and FTS4 insert none.
    private static let shadows: [String: [String: CreationRows]] = {
        let tree = ["_node": CreationRows(["nodeno", "data"], dataIf: "nodeno <> 1")]
        return [
            "fts5": [
                "_data": CreationRows(["id", "block"], dataIf: "id NOT IN (1, 10)"),
                "_config": CreationRows(["k", "v"]),
            ],
            "rtree": tree, "rtree_i32": tree, "geopoly": tree,
        ]
    }()

    /// Returns nil for a table whose rows are all user data. `modules` lists the modules of the store's virtual tables.
    static func of(table name: String, modules: [(table: String, module: String)]) -> CreationRows? {
        // Compares bytes, because Swift considers strings equal that SQLite distinguishes, such as "é" as one scalar
        // and as two.
        let bytes = Array(name.utf8)
        if let known = bookkeeping.first(where: { Array($0.key.utf8) == bytes }) { return known.value }
        for (table, module) in modules {
            for (suffix, rows) in shadows[module] ?? [:] where Array((table + suffix).utf8) == bytes { return rows }
        }
        return nil
    }
}

extension StoreReader {
    /// True if the table has a row that its creation did not insert.
    func hasRows(_ table: DatabaseSchema.Table, besides creationRows: CreationRows) throws -> Bool {
        guard Set(table.columns.map { Array($0.name.utf8) }) == Set(creationRows.columns.map { Array($0.utf8) }) else {
            return try hasRows(table)
        }
        if let limit = creationRows.limit {
            return try integer("SELECT 1 FROM \(table.name.sqlName) NOT INDEXED LIMIT 1 OFFSET \(limit)") != nil
        }
        guard let dataCondition = creationRows.dataCondition else { return false }
        return try integer("SELECT 1 FROM \(table.name.sqlName) NOT INDEXED WHERE \(dataCondition) LIMIT 1") != nil
    }
}
