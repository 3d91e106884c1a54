import PersistentHistory
import SQLiteStore

/// Writes a batch's rows of one table. The SQL consists of names in the replica's own schema, never of names from a
/// batch.
final class RowWriter {
    let table: ReplicatedTable
    private let database: ReplicaConnection
    private let encoding: TextEncoding
    private let texts: BoundValueTable
    private let insertion: SQLiteStatement
    private let hasHiddenKey: Bool
    /// The parameter of the column that is the rowid.
    private let alias: Int32?
    private var deletion: SQLiteStatement?
    /// Statements for keys and values that are rare.
    private var others: [String: SQLiteStatement] = [:]

    init(_ table: ReplicatedTable, _ database: ReplicaConnection, encoding: TextEncoding) throws {
        (self.table, self.database, self.encoding) = (table, database, encoding)
        texts = BoundValueTable(database)
        insertion = try database.prepare(RowStatements.insertion(table))
        hasHiddenKey = RowStatements.hasHiddenKey(table)
        let name = table.rowid == nil ? nil : table.key.first.map { Array($0.utf8) }
        alias = table.columns.firstIndex { Array($0.utf8) == name }.map { Int32($0 + 1) }
    }

    /// Reads the rest of a line behind `{"type":"row"`, and writes the row. Throws `MalformedLine`, `StoreError`.
    func apply(_ line: inout LineScanner) throws {
        if line.take(",\"op\":\"delete\",\"key\":") { return try delete(&line) }
        try line.expect(",\"key\":")
        let start = line.position
        do {
            var sink = BindingSink(insertion, convertsText: encoding != .utf8)
            try readKey(&line, into: &sink)
            try readValues(&line, into: &sink)
            guard alias == nil || sink.hasNumber else { throw line.malformed("a row has two numbers") }
            let count = table.columns.count + (hasHiddenKey ? 1 : 0)
            guard sink.position == count else { throw line.malformed("\(count) values were expected") }
            try run(insertion)
        } catch is UnbindableValue {
            line.rewind(to: start)
            try applyUnbindable(&line)
        }
    }

    /// Writes a row over any existing one, with its key, a rowid or that of a table WITHOUT ROWID, and all its values.
    func write(_ key: [StoredValue], _ values: [StoredValue]) throws {
        let all = hasHiddenKey ? key + values : values
        do {
            var sink = BindingSink(insertion, convertsText: encoding != .utf8)
            for value in all { try value.pass(to: &sink) }
            try run(insertion)
        } catch is UnbindableValue {
            var sink = CollectingSink(encoding: encoding)
            for value in all { try value.pass(to: &sink) }
            try insert(sink)
        }
    }

    /// Deletes the row with exactly this key.
    func delete(_ key: [StoredValue]) throws {
        if table.rowid != nil, case .integer(let number)? = key.first { return try delete(number) }
        var sink = CollectingSink(encoding: encoding)
        for value in key { try value.pass(to: &sink) }
        try delete(sink, quoted: [])
    }

    private func run(_ statement: SQLiteStatement) throws {
        defer { statement.reset() }
        _ = try statement.step()
    }

    private func readKey(_ line: inout LineScanner, into sink: inout BindingSink) throws {
        guard table.rowid != nil else { return try skipKey(&line) }
        if hasHiddenKey { return try sink.integer(line.anyInteger()) }
        if let alias { sink.alias = (alias, try line.anyInteger()) }
    }

    private func skipKey(_ line: inout LineScanner) throws {
        var skipped = SkippingSink()
        try readKey(&line, into: &skipped)
    }

    /// Reads the key of a WITHOUT ROWID table's row.
    private func readKey(_ line: inout LineScanner, into sink: inout some ValueSink) throws {
        guard table.key.count > 1 else { return try line.value(into: &sink) }
        for index in table.key.indices {
            try line.expect(index == 0 ? "[" : ",")
            try line.value(into: &sink)
        }
        try line.expect("]")
    }

    private func readValues(_ line: inout LineScanner, into sink: inout some ValueSink) throws {
        try line.expect(",\"values\":[")
        for index in table.columns.indices {
            if index > 0 { try line.expect(",") }
            try line.value(into: &sink)
        }
        try line.expect("]}")
        try line.end()
    }

    // MARK: The rare cases

    /// Writes a row with values that can't be bound as they are.
    private func applyUnbindable(_ line: inout LineScanner) throws {
        var sink = CollectingSink(encoding: encoding)
        if table.rowid != nil {
            let number = try line.anyInteger()
            if hasHiddenKey { sink.integer(number) }
        } else {
            try skipKey(&line)
        }
        try readValues(&line, into: &sink)
        try insert(sink)
    }

    private func insert(_ sink: CollectingSink) throws {
        let values = try texts.keep(sink)
        let statement = try other(RowStatements.insertion(table, kept: sink.kept))
        try statement.bind(stored: values)
        try run(statement)
    }

    private func delete(_ line: inout LineScanner) throws {
        if table.rowid != nil {
            let number = try line.anyInteger()
            try line.expect("}")
            try line.end()
            return try delete(number)
        }
        var sink = CollectingSink(encoding: encoding)
        try readKey(&line, into: &sink)
        let quoted = try line.take(",\"quoted\":") ? Array(line.string().utf8) : []
        try line.expect("}")
        try line.end()
        try delete(sink, quoted: quoted)
    }

    private func delete(_ number: Int64) throws {
        let statement = try deletion ?? database.prepare(RowStatements.deletion(table, reals: []))
        deletion = statement
        try statement.bind(number, at: 1)
        try run(statement)
    }

    private func delete(_ sink: CollectingSink, quoted: [UInt8]) throws {
        let reals = Set(sink.values.indices.filter { sink.values[$0].isReal })
        let values = try texts.keep(sink)
        let statement = try other(RowStatements.deletion(table, reals: reals, kept: sink.kept))
        try statement.bind(key: values, quoted: quoted, reals: reals)
        try run(statement)
    }

    private func other(_ sql: String) throws -> SQLiteStatement {
        if let known = others[sql] { return known }
        // As many as there are combinations of columns, in the worst case.
        if others.count > 64 { others = [:] }
        let statement = try database.prepare(sql)
        others[sql] = statement
        return statement
    }
}
