import PersistentHistory
import SQLiteStore

/// The line with the home's `GS_TABLE`.
struct HistoryTablesLine {
    private let rows: [[StoredValue]]

    init(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"history_tables\",\"rows\":[")
        rows = try line.rows(width: 5)
    }

    /// Makes the replica's table equal. Throws `BatchRefusal` if the home's triggers differ from the replica's.
    func write(_ database: ReplicaConnection) throws {
        let row = try database.prepare(
            "SELECT id, name, key_columns, columns, installed FROM main.GS_TABLE ORDER BY id")
        let encoding = try TextEncoding(database)
        var own: [[StoredValue]] = []
        while try row.step() { own.append((0..<5).map { row.storedValue($0, encoding: encoding) }) }
        guard own != rows else { return }
        let isInstalled = { (row: [StoredValue]) in row[4] == .integer(1) }
        guard own.filter(isInstalled) == rows.filter(isInstalled) else { throw BatchRefusal(outcome: .schemaChanged) }
        try database.execute("DELETE FROM main.GS_TABLE")
        let insertion = try database.prepare(
            "INSERT INTO main.GS_TABLE (id, name, key_columns, columns, installed) VALUES (?1, ?2, ?3, ?4, ?5)")
        for row in rows { try insertion.run(row) }
    }
}

/// The line with `sqlite_sequence`.
struct SequenceLine {
    private let rows: [[StoredValue]]

    init(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"sequence\",\"rows\":[")
        rows = try line.rows(width: 2)
    }

    /// Makes the replica's table equal.
    func write(_ database: ReplicaConnection) throws {
        let row = try database.prepare("SELECT name, seq FROM main.sqlite_sequence ORDER BY rowid")
        let encoding = try TextEncoding(database)
        var own: [[StoredValue]] = []
        while try row.step() { own.append((0..<2).map { row.storedValue($0, encoding: encoding) }) }
        guard own != rows else { return }
        try database.execute("DELETE FROM main.sqlite_sequence")
        let insertion = try database.prepare("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?1, ?2)")
        for row in rows { try insertion.run(row) }
    }
}

extension SQLiteStatement {
    fileprivate func run(_ values: [StoredValue]) throws {
        defer { reset() }
        try bind(stored: values)
        _ = try step()
    }
}

extension LineScanner {
    /// Reads the rest of a line with rows of so many values.
    fileprivate mutating func rows(width: Int) throws -> [[StoredValue]] {
        var rows: [[StoredValue]] = []
        if take("]}") {
            try end()
            return rows
        }
        repeat {
            var sink = CollectingSink(encoding: .utf8)
            for index in 0..<width {
                try expect(index == 0 ? "[" : ",")
                try value(into: &sink)
            }
            try expect("]")
            guard sink.kept.isEmpty else { throw malformed("a text isn't valid") }
            rows.append(sink.values)
        } while take(",")
        try expect("]}")
        try end()
        return rows
    }
}
