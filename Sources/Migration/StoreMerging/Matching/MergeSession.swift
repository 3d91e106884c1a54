import LinuxSystem
import SQLiteStore
import StoreRelocation

/// The connection of a merge: the copy of the group's store as `main`, the private copy of the legacy store attached as
/// `legacy`, and the matches of rows in temporary tables. Confined to one thread.
///
/// For the table with index 3, the view `gs_g3` has the rows of the group's store and `gs_l3` those of the legacy
/// store, both with the group's names of columns and the row's number as `gs_id`. `gs_m3` maps each legacy row (`lid`)
/// to its row in the result (`gid`); `s` is its `State`, `e` its entity, and `w` is 1 if
/// whole rows were compared.
struct MergeSession {
    enum State: Int64 {
        /// There is no such row in the group's store.
        case added = 0
        case equal = 1
        case keepsGroup = 2
        case takesLegacy = 3
        case undecided = 4
    }

    let store: StoreWriter
    let schema: MergeSchema
    let options: MergeOptions
    let encoding: TextEncoding

    init(_ store: StoreWriter, _ schema: MergeSchema, _ options: MergeOptions) throws {
        self.store = store
        self.schema = schema
        self.options = options
        encoding = try TextEncoding(store)
    }

    static func quote(_ name: String) -> String { name.sqlName }

    func map(_ index: Int) -> String { "temp.gs_m\(index)" }
    func groupView(_ index: Int) -> String { "temp.gs_g\(index)" }
    func legacyView(_ index: Int) -> String { "temp.gs_l\(index)" }

    /// True if numbers of the table's rows may differ between the stores.
    func translates(_ index: Int) -> Bool { schema.translates(index) }

    /// Returns the SQL of a legacy row's value as it is in the result. `row` is the row's name in the statement.
    func translated(_ column: MergeTable.Column, _ row: String = "l") -> String {
        let value = "\(row).\(Self.quote(column.name))"
        guard let target = column.reference, translates(target) else { return value }
        return "(SELECT gid FROM \(map(target)) WHERE lid = \(value))"
    }

    /// Returns an SQL condition: the rows `g` of the group and `l` of the legacy store agree in a column of the key.
    func hasKeyValue(_ column: MergeTable.Column) -> String {
        guard let target = column.reference, translates(target) else {
            return "g.\(Self.quote(column.name)) = l.\(Self.quote(column.name))"
        }
        return refersAlike(column, target, by: "=")
    }

    /// Returns an SQL condition: the reference of the group's row `g` is that of the legacy store's row `l`. Both lead
    /// to matched rows, or both to nothing, by the same value.
    ///
    /// - Parameter comparison: SQL's `=`, which applies the column's collation, or `COLLATE BINARY IS`.
    func refersAlike(_ column: MergeTable.Column, _ target: Int, by comparison: String) -> String {
        let (legacy, group) = ("l.\(Self.quote(column.name))", "g.\(Self.quote(column.name))")
        let otherLeads = "EXISTS (SELECT 1 FROM \(groupView(target)) WHERE gs_id = \(group))"
        // One comparison with the value: SQLite can use an index for it.
        return "(\(group) \(comparison) coalesce(\(translated(column)), \(legacy)) AND (\(legacy) IS NULL "
            + "OR \(translated(column)) IS NOT NULL OR NOT \(otherLeads)))"
    }

    // MARK: Views

    func makeViews() throws {
        for (index, table) in schema.tables.enumerated() {
            try makeView("gs_g\(index)", of: table, in: "main", number: table.number, named: table.name) { $0.name }
            try makeView(
                "gs_l\(index)", of: table, in: "legacy", number: table.legacyNumber, named: table.legacyName
            ) { $0.legacyName }
            try store.execute(
                "CREATE TEMP TABLE gs_m\(index) "
                    + "(lid INTEGER PRIMARY KEY, gid INTEGER NOT NULL, s INTEGER NOT NULL, e INTEGER NOT NULL, "
                    + "w INTEGER NOT NULL DEFAULT 0)")
        }
    }

    private func makeView(
        _ view: String, of table: MergeTable, in database: String, number: String?, named name: String,
        _ source: (MergeTable.Column) -> String
    ) throws {
        let columns = table.columns.map { "t.\(Self.quote(source($0))) AS \(Self.quote($0.name))" }
        let from = "\(database).\(Self.quote(name)) AS t"
        if let number {
            let all = ["t.\(Self.quote(number)) AS gs_id"] + columns
            try store.execute("CREATE TEMP VIEW \(view) AS SELECT \(all.joined(separator: ", ")) FROM \(from)")
            return
        }
        // The rows of a WITHOUT ROWID table get numbers for the time of the merge.
        let keys = table.primaryKey.compactMap(table.column)
        let selected = keys.enumerated().map { "\(Self.quote(source($1))) AS k\($0)" }.joined(separator: ", ")
        let order = keys.indices.map { "k\($0)" }.joined(separator: ", ")
        try store.execute(
            "CREATE TEMP TABLE \(view)n AS SELECT row_number() OVER () AS gs_id, * FROM "
                + "(SELECT \(selected) FROM \(from) ORDER BY \(order))")
        try store.execute("CREATE UNIQUE INDEX temp.\(view)i ON \(view)n (gs_id)")
        let equal = keys.enumerated().map { "t.\(Self.quote(source($1))) = n.k\($0)" }.joined(separator: " AND ")
        let all = ["n.gs_id AS gs_id"] + columns
        try store.execute(
            "CREATE TEMP VIEW \(view) AS SELECT \(all.joined(separator: ", ")) FROM temp.\(view)n AS n CROSS JOIN \(from) "
                + "ON \(equal)")
    }

    /// Returns an SQL condition that selects the rows of some entities.
    func condition(_ row: String, _ entities: [Int64]?, of table: MergeTable) -> String {
        guard let entities, let column = table.entityColumn else { return "TRUE" }
        return "\(row).\(Self.quote(column)) IN (\(entities.map(String.init).joined(separator: ", ")))"
    }

    /// Returns the SQL of a row's entity; 0 for a table without a model.
    func entity(_ row: String, of table: MergeTable) -> String {
        table.entityColumn.map { "\(row).\(Self.quote($0))" } ?? "0"
    }

    // MARK: Reading

    func value(_ statement: SQLiteStatement, _ column: Int32) -> StoredValue {
        statement.storedValue(column, encoding: encoding)
    }

    /// Returns a row's values in the columns of its key: the first rule without a missing value, else the row's number.
    func key(of row: Int64, in index: Int, entity number: Int64, fromLegacy: Bool) throws -> [MergeReport.NamedValue] {
        let table = schema.tables[index]
        let view = fromLegacy ? legacyView(index) : groupView(index)
        for rule in table.entities.first(where: { $0.number == number })?.rules ?? [] {
            let columns = rule.columns.map(Self.quote).joined(separator: ", ")
            let found = try store.prepare("SELECT \(columns) FROM \(view) WHERE gs_id = ?1", [.integer(row)])
            guard try found.step() else { continue }
            let values = rule.properties.indices.map { value(found, Int32($0)) }
            guard !values.contains(.null) else { continue }
            return zip(rule.properties, values).map { MergeReport.NamedValue(name: $0, value: $1) }
        }
        return [MergeReport.NamedValue(name: table.number ?? "row", value: .integer(row))]
    }

    /// Returns a key for a message.
    func text(ofKey key: [MergeReport.NamedValue]) -> String {
        key.map { "\($0.name) \(MergeText.value($0.value))" }.joined(separator: ", ")
    }
}

/// Values in messages for people.
package enum MergeText {
    package static func value(_ value: StoredValue) -> String {
        switch value {
        case .null: "NULL"
        case .integer(let number): String(number)
        case .real(let number): number.description
        case .text(let text): "“\(PrintableText(shortened(text)))”"
        case .malformedText(let bytes): "a text of \(bytes.count) bytes that isn't valid"
        case .blob(let bytes) where bytes.count <= 16: "x'" + bytes.map { hexadecimal($0) }.joined() + "'"
        case .blob(let bytes): "\(bytes.count) bytes"
        }
    }

    private static func hexadecimal(_ byte: UInt8) -> String { (byte < 16 ? "0" : "") + String(byte, radix: 16) }

    private static func shortened(_ text: String) -> String {
        let limit = 60
        return text.count > limit ? text.prefix(limit) + "…" : text
    }
}
