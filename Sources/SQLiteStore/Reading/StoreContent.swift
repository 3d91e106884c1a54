/// What a store holds, apart from how it lies on the disk: `VACUUM`, journal mode, page size and free pages change
/// nothing of it.
package struct StoreContent {
    private let reader: StoreReader
    /// Views and SQLite's own tables left out.
    package let tables: [StoreTable]

    /// The content that `reader` sees; worth something as long as it reads.
    package init(_ reader: StoreReader) throws {
        self.reader = reader
        tables = try reader.tables()
    }

    /// Rows by table, virtual tables left out.
    package func rowCounts() throws -> [(table: String, rows: Int64)] {
        try tables.filter { $0.kind != .virtual }.map { ($0.name, try reader.rowCount($0)) }
    }

    /// Whether no table has a row, those left out that come with the schema.
    package func isEmptyOrSchemaOnly() throws -> Bool {
        let modules = try reader.virtualTableModules()
        return try tables.filter { $0.kind != .virtual }.allSatisfy { table in
            guard let made = CreationRows.of(table: table.name, modules: modules) else {
                return try !reader.hasRows(table)
            }
            return try !reader.hasRows(table, besides: made)
        }
    }
}

/// The first thing found in which two stores' contents differ.
package enum ContentDifference: Equatable, Sendable {
    /// A setting that a program may rely on, such as `user_version`.
    case setting(String)
    /// A table, index, view or trigger that only one has, or that is defined otherwise.
    case schema(type: String, name: String)
    /// Only one has a row at this place; `row` counts from 1.
    case missingRow(table: String, row: Int64)
    case value(table: String, column: String, row: Int64)
}

extension ContentDifference: CustomStringConvertible {
    package var description: String {
        switch self {
        case .setting(let name): "\(name) differs"
        case .schema(let type, let name): "the \(type) \(name) differs"
        case .missingRow(let table, let row): "table \(table) differs from row \(row) on: only one has it"
        case .value(let table, let column, let row): "table \(table) differs in row \(row), column \(column)"
        }
    }
}

extension StoreContent {
    /// Compares schema, settings and each row of each table: identifier, and values with their types. Nil when all
    /// is equal. Rows are read side by side, so that memory doesn't grow with the stores.
    ///
    /// A virtual table is compared by the tables that it keeps its rows in. Two stores that are equal in what they
    /// mean may be told apart (a row's implicit identifier, the segments of a full-text index); different ones are
    /// never taken for equal.
    package func difference(from other: StoreContent) throws -> ContentDifference? {
        for setting in ["encoding", "user_version", "application_id"] {
            let sql = "PRAGMA \(setting)"
            if try reader.text(sql) != other.reader.text(sql) { return .setting(setting) }
        }
        if let difference = try schemaDifference(from: other) { return difference }
        for table in tables where table.kind != .virtual {
            if let difference = try difference(in: table, from: other) { return difference }
        }
        return try sequenceDifference(from: other)
    }

    private func schemaDifference(from other: StoreContent) throws -> ContentDifference? {
        let sql = """
            SELECT type, name, tbl_name, sql FROM sqlite_schema
            WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name, tbl_name, sql
            """
        let mine = try reader.prepare(sql)
        let theirs = try other.reader.prepare(sql)
        while true {
            let isMine = try mine.step()
            let isTheirs = try theirs.step()
            guard isMine || isTheirs else { return nil }
            if isMine && isTheirs && mine.firstDifference(from: theirs) == nil { continue }
            // Both are sorted: the first of two different names is one that only one of them has.
            let names = [isMine ? mine : nil, isTheirs ? theirs : nil].compactMap { statement in
                statement.map { (type: $0.text(0) ?? "", name: $0.text(1) ?? "") }
            }
            return names.min(by: <).map { .schema(type: $0.type, name: $0.name) }
        }
    }

    private func difference(in table: StoreTable, from other: StoreContent) throws -> ContentDifference? {
        let (mine, columns) = try reader.rows(of: table)
        let (theirs, _) = try other.reader.rows(of: table)
        return try difference(mine, theirs, table.name, columns)
    }

    private func difference(
        _ mine: SQLiteStatement, _ theirs: SQLiteStatement, _ table: String, _ columns: [String]
    ) throws -> ContentDifference? {
        var row: Int64 = 0
        while true {
            row += 1
            let isMine = try mine.step()
            guard try theirs.step() == isMine else { return .missingRow(table: table, row: row) }
            guard isMine else { return nil }
            if let column = mine.firstDifference(from: theirs) {
                return .value(table: table, column: columns[Int(column)], row: row)
            }
        }
    }

    /// AUTOINCREMENT's memory (https://sqlite.org/fileformat2.html, §2.6.2): an identifier must not be given twice.
    private func sequenceDifference(from other: StoreContent) throws -> ContentDifference? {
        let isMine = try reader.hasSequences()
        guard try isMine == other.reader.hasSequences() else { return .schema(type: "table", name: "sqlite_sequence") }
        guard isMine else { return nil }
        let sql = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq"
        return try difference(reader.prepare(sql), other.reader.prepare(sql), "sqlite_sequence", ["name", "seq"])
    }
}

extension StoreReader {
    fileprivate func hasSequences() throws -> Bool {
        try integer("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'") != nil
    }
}
