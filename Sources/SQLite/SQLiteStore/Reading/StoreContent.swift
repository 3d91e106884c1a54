import SQLiteFormat

/// A store's content, independent of its layout on disk. `VACUUM`, the journal mode, the page size and free pages don't
/// affect it.
package struct StoreContent {
    let reader: StoreReader
    let schema: DatabaseSchema
    /// The tables by name, without views and SQLite's own tables.
    package let tables: [DatabaseSchema.Table]

    /// Creates the content as seen by `reader`. It is valid while the reader is.
    package init(_ reader: StoreReader) throws {
        self.reader = reader
        schema = try DatabaseSchema(reader)
        tables = schema.tablesByName
    }

    /// Returns the number of rows by table, without virtual tables.
    package func rowCounts() throws -> [(table: String, rows: Int64)] {
        try tables.filter { $0.kind != .virtual }.map { ($0.name, try reader.rowCount($0)) }
    }

    /// True if no table has a row, apart from those that the schema's creation inserts.
    package func isEmptyOrSchemaOnly() throws -> Bool {
        let modules = tables.compactMap { table in table.module.map { (table.name, $0) } }
        return try tables.filter { $0.kind != .virtual }.allSatisfy { table in
            guard let creationRows = CreationRows.of(table: table.name, modules: modules) else {
                return try !reader.hasRows(table)
            }
            return try !reader.hasRows(table, besides: creationRows)
        }
    }
}

/// The first difference found between two stores' contents.
package enum ContentDifference: Equatable, Sendable {
    /// A setting that a program may rely on, such as `user_version`.
    case setting(String)
    /// A table, index, view or trigger that only one store has, or that is defined differently.
    case schema(type: String, name: String)
    /// A row that only one store has. `row` counts from 1.
    case missingRow(table: String, row: Int64)
    case value(table: String, column: String, row: Int64)
}

extension ContentDifference: CustomStringConvertible {
    package var description: String {
        switch self {
        case .setting(let name): "\(name) differs"
        case .schema(let type, let name): "the \(type) \(name) differs"
        case .missingRow(let table, let row): "table \(table) differs from row \(row) on: only one store has it"
        case .value(let table, let column, let row): "table \(table) differs in row \(row), column \(column)"
        }
    }
}

extension StoreContent {
    /// Compares the schema, the settings and each row of each table: its identifier, and its values with their types.
    /// Returns nil if all are equal. It reads the rows of both stores in step, so its memory use doesn't grow with the
    /// stores.
    ///
    /// A virtual table is compared by the tables that store its rows. Stores with equivalent content may compare as
    /// different, for example by implicit row identifiers or by the segments of a full-text index. Stores with
    /// different content never compare as equal.
    package func difference(from other: StoreContent) throws -> ContentDifference? {
        for setting in ["encoding", "user_version", "application_id"] {
            let sql = "PRAGMA \(setting)"
            if try reader.text(sql) != other.reader.text(sql) { return .setting(setting) }
        }
        if let change = try schemaChanges(to: other).first { return .schema(type: change.type, name: change.name) }
        for table in tables where table.kind != .virtual {
            if let difference = try difference(in: table, from: other) { return difference }
        }
        return try sequenceDifference(from: other)
    }

    /// Returns what differs in the schemas, by type and name, without what SQLite makes for constraints. An entry whose
    /// name has changed in case only is the same one to SQLite, and a change.
    func schemaChanges(to later: StoreContent) throws -> [ContentChanges.SchemaChange] {
        let (mine, theirs) = (try definitions(), try later.definitions())
        let changes: [ContentChanges.SchemaChange] = Set(mine.keys).union(theirs.keys).compactMap { entry in
            let (former, present) = (mine[entry], theirs[entry])
            guard former?.definition != present?.definition else { return nil }
            let kind: ContentChanges.SchemaChange.Kind =
                former == nil ? .created : present == nil ? .dropped : .changed
            return .init(kind: kind, type: entry.type, name: present?.name ?? former?.name ?? "")
        }
        return changes.sorted { ($0.type, $0.name) < ($1.type, $1.name) }
    }

    private struct SchemaEntry: Hashable {
        let type: String
        /// `DatabaseSchema.key(of:)` its name.
        let key: String
    }

    /// Returns each entry's name, and its name, table and statement as they are stored.
    private func definitions() throws -> [SchemaEntry: (name: String, definition: [[UInt8]?])] {
        let rows = try reader.prepare(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
        var found: [SchemaEntry: (name: String, definition: [[UInt8]?])] = [:]
        while try rows.step() {
            let name = rows.text(1) ?? ""
            let entry = SchemaEntry(type: rows.text(0) ?? "", key: DatabaseSchema.key(of: name))
            found[entry, default: (name, [])].definition += (1...3).map { rows.bytes($0, limit: .max) }
        }
        return found
    }

    /// Both stores declare the table the same.
    func difference(in table: DatabaseSchema.Table, from other: StoreContent) throws -> ContentDifference? {
        try difference(
            between: reader.rows(of: table), and: other.reader.rows(of: table), table: table.name,
            columns: table.readColumns)
    }

    private func difference(
        between mine: SQLiteStatement, and theirs: SQLiteStatement, table: String, columns: [String]
    ) throws -> ContentDifference? {
        var row: Int64 = 0
        while true {
            row += 1
            let hasMine = try mine.step()
            guard try theirs.step() == hasMine else { return .missingRow(table: table, row: row) }
            guard hasMine else { return nil }
            if let column = mine.firstDifference(from: theirs) {
                return .value(table: table, column: columns[Int(column)], row: row)
            }
        }
    }

    /// Compares AUTOINCREMENT's counters (https://sqlite.org/fileformat2.html, §2.6.2): an identifier must not be
    /// reused.
    private func sequenceDifference(from other: StoreContent) throws -> ContentDifference? {
        let hasMine = try reader.hasTables("sqlite_sequence")
        guard try hasMine == other.reader.hasTables("sqlite_sequence") else {
            return .schema(type: "table", name: "sqlite_sequence")
        }
        guard hasMine else { return nil }
        let sql = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq"
        return try difference(
            between: reader.prepare(sql), and: other.reader.prepare(sql), table: "sqlite_sequence",
            columns: ["name", "seq"])
    }
}
