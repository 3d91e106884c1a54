import PersistentHistory
import SQLiteStore

/// Reads the changed rows of one table, and writes their lines.
final class RowReading {
    let table: ReplicatedTable
    private let reader: StoreReader
    private let encoding: TextEncoding
    private var statements: [Set<Int>: SQLiteStatement] = [:]
    private var byRowid: SQLiteStatement?
    private var opening: [UInt8]
    private var hasDeletes = false
    private var hasRows = false
    /// The places of the key's columns among the table's.
    private let keyColumns: [Int32]

    /// The longest line, in bytes. SQLite's rows have at most 1,000,000,000 bytes.
    static let maxLineSize = 1 << 30

    init(_ table: ReplicatedTable, _ reader: StoreReader, encoding: TextEncoding) {
        (self.table, self.reader, self.encoding) = (table, reader, encoding)
        opening = Self.opening(table)
        let places = table.columns.enumerated().map { (Array($1.utf8), Int32($0)) }
        keyColumns = table.key.compactMap { name in places.first { $0.0 == Array(name.utf8) }?.1 }
    }

    /// The line before a table's rows.
    static func opening(_ table: ReplicatedTable, type: String = "table") -> [UInt8] {
        var line = Array("{\"type\":\"\(type)\",\"table\":".utf8)
        ValueJSON.append(string: table.name, to: &line)
        if let rowid = table.rowid {
            line += ",\"rowid\":".utf8
            ValueJSON.append(string: rowid, to: &line)
        }
        line += ",\"key\":".utf8
        append(table.key, to: &line)
        line += ",\"columns\":".utf8
        append(table.columns, to: &line)
        line += "}\n".utf8
        return line
    }

    private static func append(_ names: [String], to line: inout [UInt8]) {
        line.append(UInt8(ascii: "["))
        for (index, name) in names.enumerated() {
            if index > 0 { line.append(UInt8(ascii: ",")) }
            ValueJSON.append(string: name, to: &line)
        }
        line.append(UInt8(ascii: "]"))
    }

    /// Reads the row of a change (`table_id`, `key`), and appends its line to one of the two.
    func read(_ change: SQLiteStatement, deletes: inout [UInt8], rows: inout [UInt8]) throws {
        let statement: SQLiteStatement
        let key: [StoredValue]
        var quoted: [UInt8]?
        if table.rowid == nil {
            guard let text = change.textBytes(1) else { throw StoreHistory.Discontinuity.schema }
            key = ReplicatedTable.values(ofKey: text, encoding: encoding)
            guard key.count == table.key.count else { throw StoreHistory.Discontinuity.schema }
            // SQLite converts malformed UTF-16 when it quotes: different keys may have the same text.
            guard encoding == .utf8 || !key.contains(where: \.mayBeRepaired) else {
                throw StoreHistory.Discontinuity.gap
            }
            let reals = Set(key.indices.filter { key[$0].isReal })
            if !reals.isEmpty { quoted = text }
            statement = try prepared(reals)
            try statement.bind(key: key, quoted: text, reals: reals)
        } else {
            guard change.storageClass(1) == .integer else { throw StoreHistory.Discontinuity.schema }
            let number = change.integer(1)
            key = [.integer(number)]
            statement = try byRowid ?? reader.prepare(RowStatements.selection(table, reals: []))
            byRowid = statement
            try statement.bind(number, at: 1)
        }
        defer { statement.reset() }
        if try statement.step() {
            try append(key, statement, to: &rows)
        } else {
            if !hasDeletes { deletes += opening }
            hasDeletes = true
            deletes += "{\"type\":\"row\",\"op\":\"delete\",\"key\":".utf8
            append(key, to: &deletes)
            if let quoted {
                deletes += ",\"quoted\":".utf8
                ValueJSON.append(string: String(decoding: quoted, as: UTF8.self), to: &deletes)
            }
            deletes += "}\n".utf8
        }
    }

    private func prepared(_ reals: Set<Int>) throws -> SQLiteStatement {
        if let known = statements[reals] { return known }
        let statement = try reader.prepare(RowStatements.selection(table, reals: reals))
        statements[reals] = statement
        return statement
    }

    private func append(_ key: [StoredValue], _ row: SQLiteStatement, to rows: inout [UInt8]) throws {
        if !hasRows { rows += opening }
        hasRows = true
        let start = rows.count
        rows += "{\"type\":\"row\",\"key\":".utf8
        if table.rowid == nil {
            // The recorded text of a REAL may be rounded.
            if keyColumns.count > 1 { rows.append(UInt8(ascii: "[")) }
            for (index, column) in keyColumns.enumerated() {
                if index > 0 { rows.append(UInt8(ascii: ",")) }
                row.appendJSON(column, encoding: encoding, to: &rows)
            }
            if keyColumns.count > 1 { rows.append(UInt8(ascii: "]")) }
        } else {
            append(key, to: &rows)
        }
        rows += ",\"values\":[".utf8
        for column in 0..<Int32(table.columns.count) {
            if column > 0 { rows.append(UInt8(ascii: ",")) }
            row.appendJSON(column, encoding: encoding, to: &rows)
        }
        rows += "]}\n".utf8
        if rows.count - start > Self.maxLineSize {
            throw HistoryError.rowTooLarge(table: table.name, bytes: rows.count - start, reader.path)
        }
    }

    private func append(_ key: [StoredValue], to line: inout [UInt8]) {
        if key.count == 1 { return ValueJSON.append(key[0], to: &line) }
        line.append(UInt8(ascii: "["))
        for (index, value) in key.enumerated() {
            if index > 0 { line.append(UInt8(ascii: ",")) }
            ValueJSON.append(value, to: &line)
        }
        line.append(UInt8(ascii: "]"))
    }
}

extension StoredValue {
    var isReal: Bool { if case .real = self { true } else { false } }
}

extension SQLiteStatement {
    /// Binds the parameters of `RowStatements`' condition.
    func bind(key: [StoredValue], quoted: [UInt8], reals: Set<Int>) throws {
        try bind(stored: key)
        guard !reals.isEmpty else { return }
        try quoted.withUnsafeBytes { try bind(text: $0, at: Int32(key.count + 1)) }
        for (index, value) in key.enumerated() {
            guard case .real(let number) = value else { continue }
            try bind(number.nextDown.nextDown, at: Int32(key.count + 2 + 2 * index))
            try bind(number.nextUp.nextUp, at: Int32(key.count + 3 + 2 * index))
        }
    }
}
