import SQLiteStore

/// The tables of one of the two databases. The audit reads them itself, not as a `DatabaseSchema`: whatever that
/// misreads, the migration has misread too.
struct AuditSchema: CustomStringConvertible {
    struct Column {
        let name: String
        let type: String
        /// The default value as SQL; nil for none.
        let defaultValue: String?
    }

    struct Table {
        let name: String
        /// The root page of the table's B-tree; 0 for a virtual table.
        let rootPage: Int64
        let sql: String
        let isWithoutRowID: Bool
        let isVirtual: Bool
        /// The columns in the order of the rows.
        let columns: [Column]
        /// The columns' places by their names, since a table may have a thousand columns.
        private let places: [String: Int]

        init(
            name: String, rootPage: Int64, sql: String, isWithoutRowID: Bool, isVirtual: Bool, columns: [Column]
        ) {
            self.name = name
            self.rootPage = rootPage
            self.sql = sql
            self.isWithoutRowID = isWithoutRowID
            self.isVirtual = isVirtual
            self.columns = columns
            places = Dictionary(
                columns.enumerated().map { (nameKey($1.name), $0) }, uniquingKeysWith: { first, _ in first })
        }

        func index(of column: String) -> Int? { places[nameKey(column)] }
        func column(_ name: String) -> Column? { index(of: name).map { columns[$0] } }
    }

    /// The name of the database: `was` or `main`.
    let database: String
    private let tables: [String: Table]
    var description: String { database == "was" ? "the store" : "the migrated copy" }

    init(_ reader: ComparisonReader, _ database: String) throws {
        self.database = database
        var tables: [String: Table] = [:]
        var kinds: [String: (isVirtual: Bool, isWithoutRowID: Bool)] = [:]
        let list = try reader.prepare("PRAGMA \(database).table_list")
        while try list.step() {
            guard list.text(0) == database else { continue }
            kinds[nameKey(list.text(1) ?? "")] = (list.text(2) == "virtual", list.integer(4) != 0)
        }
        let rows = try reader.prepare("SELECT name, rootpage, sql FROM \(database).sqlite_schema WHERE type = 'table'")
        while try rows.step() {
            let name = rows.text(0) ?? ""
            let kind = kinds[nameKey(name)]
            tables[nameKey(name)] = Table(
                name: name, rootPage: rows.integer(1), sql: rows.text(2) ?? "",
                isWithoutRowID: kind?.isWithoutRowID ?? false, isVirtual: kind?.isVirtual ?? (rows.integer(1) == 0),
                columns: rows.integer(1) == 0 ? [] : try Self.columns(of: name, reader, database))
        }
        self.tables = tables
    }

    private static func columns(of table: String, _ reader: ComparisonReader, _ database: String) throws -> [Column] {
        // Generated columns are excluded. They have no position in the rows, and follow from the others.
        let rows = try reader.prepare(
            "SELECT name, type, dflt_value FROM pragma_table_xinfo(?1, ?2) WHERE hidden = 0 ORDER BY cid",
            [.text(table), .text(database)])
        var found: [Column] = []
        while try rows.step() {
            found.append(Column(name: rows.text(0) ?? "", type: rows.text(1) ?? "", defaultValue: rows.text(2)))
        }
        return found
    }

    func table(_ name: String) -> Table? { tables[nameKey(name)] }
    var all: [Table] { tables.values.sorted { $0.name < $1.name } }
    var names: Set<String> { Set(tables.values.map(\.name)) }

    /// Returns the table's name as SQL, with that of the database.
    func qualified(_ table: String) -> String { "\(database).\(quoted(self.table(table)?.name ?? table))" }
}

/// Returns true if SQLite considers two names equal: byte by byte, without regard to the case of ASCII letters.
func sameName(_ lhs: String, _ rhs: String) -> Bool { nameKey(lhs) == nameKey(rhs) }

/// Returns a key that is equal for equal names.
func nameKey(_ name: String) -> String { DatabaseSchema.key(of: name) }

func quoted(_ name: String) -> String { "\"" + name.replacing("\"", with: "\"\"") + "\"" }

/// Returns a list of numbers as SQL.
func sqlList(_ numbers: some Sequence<Int64>) -> String { "(" + numbers.map(String.init).joined(separator: ", ") + ")" }

/// Returns the conjunction of conditions. It is grouped so that the expression doesn't become deep.
func conjunction(_ conditions: [String]) -> String {
    guard conditions.count > 50 else {
        return conditions.isEmpty ? "1" : "(" + conditions.joined(separator: " AND ") + ")"
    }
    let groups = stride(from: 0, to: conditions.count, by: 50).map {
        "(" + conditions[$0..<min($0 + 50, conditions.count)].joined(separator: " AND ") + ")"
    }
    return conjunction(groups)
}
