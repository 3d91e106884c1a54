import SQLiteStore

/// The tables of one of the two databases, as SQLite has them.
struct AuditSchema: CustomStringConvertible {
    struct Column {
        let name: String
        let type: String
        /// SQL; nil when there is no default.
        let defaultValue: String?
    }

    struct Table {
        let name: String
        /// The first page of its tree; 0 for a virtual one.
        let rootPage: Int64
        let sql: String
        let isWithoutRowID: Bool
        let isVirtual: Bool
        /// In the order in which rows hold them.
        let columns: [Column]

        func index(of column: String) -> Int? { columns.firstIndex { sameName($0.name, column) } }
        func column(_ name: String) -> Column? { index(of: name).map { columns[$0] } }
    }

    /// `was` or `main`.
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
            kinds[key(list.text(1) ?? "")] = (list.text(2) == "virtual", list.integer(4) != 0)
        }
        let rows = try reader.prepare("SELECT name, rootpage, sql FROM \(database).sqlite_schema WHERE type = 'table'")
        while try rows.step() {
            let name = rows.text(0) ?? ""
            let kind = kinds[key(name)]
            tables[key(name)] = Table(
                name: name, rootPage: rows.integer(1), sql: rows.text(2) ?? "",
                isWithoutRowID: kind?.isWithoutRowID ?? false, isVirtual: kind?.isVirtual ?? (rows.integer(1) == 0),
                columns: rows.integer(1) == 0 ? [] : try Self.columns(of: name, reader, database))
        }
        self.tables = tables
    }

    private static func columns(of table: String, _ reader: ComparisonReader, _ database: String) throws -> [Column] {
        // Generated columns are not in the rows' place of their own, and follow from the others.
        let rows = try reader.prepare(
            "SELECT name, type, dflt_value FROM pragma_table_xinfo(?1, ?2) WHERE hidden = 0 ORDER BY cid",
            [.text(table), .text(database)])
        var found: [Column] = []
        while try rows.step() {
            found.append(Column(name: rows.text(0) ?? "", type: rows.text(1) ?? "", defaultValue: rows.text(2)))
        }
        return found
    }

    func table(_ name: String) -> Table? { tables[key(name)] }
    var all: [Table] { tables.values.sorted { $0.name < $1.name } }
    var names: Set<String> { Set(tables.values.map(\.name)) }

    /// The table's name as SQL, with the database's.
    func qualified(_ table: String) -> String { "\(database).\(quoted(self.table(table)?.name ?? table))" }
}

/// As SQLite compares names: byte by byte, without regard to the case of ASCII letters.
func sameName(_ one: String, _ other: String) -> Bool { key(one) == key(other) }

func key(_ name: String) -> String { TableWrites.key(name) }

func quoted(_ name: String) -> String { "\"" + name.replacing("\"", with: "\"\"") + "\"" }

/// A list of numbers as SQL.
func list(_ numbers: some Sequence<Int64>) -> String { "(" + numbers.map(String.init).joined(separator: ", ") + ")" }
