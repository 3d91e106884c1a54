import SQLiteStore

/// Any process that may write to a store decides what its tables hold, also those of history and of the schema.
extension SQLiteStatement {
    /// Returns the number in a column, or nil if it holds something else. A fraction is cut off.
    func decodedInteger(_ column: Int32) -> Int64? {
        switch value(column) {
        case .integer(let number): number
        case .real(let number): Int64(exactly: number.rounded(.towardZero))
        case .null, .text, .blob: nil
        }
    }

    /// Returns the text in a column, or nil if it holds something else. Like a name in SQLite, it ends before a NUL.
    func decodedText(_ column: Int32) -> String? {
        switch value(column) {
        case .text(let text): text.endingBeforeNUL
        case .blob(let bytes): String(validating: bytes, as: UTF8.self)
        case .null, .integer, .real: nil
        }
    }
}

extension SQLiteConnection {
    /// Returns the first column of the first row as a number, or nil if there is no row or the value is NULL.
    func firstInteger(_ sql: String, _ parameters: [SQLiteValue] = []) throws -> Int64? {
        let row = try prepare(sql, parameters)
        return try row.step() && !row.isNull(0) ? row.integer(0) : nil
    }

    /// Returns what `decode` makes of each row.
    func rows<Element>(
        _ sql: String, _ parameters: [SQLiteValue] = [], _ decode: (SQLiteStatement) throws -> Element
    ) throws -> [Element] {
        let row = try prepare(sql, parameters)
        var found: [Element] = []
        while try row.step() { found.append(try decode(row)) }
        return found
    }
}

extension String {
    fileprivate var endingBeforeNUL: String { utf8.contains(0) ? String(prefix { $0 != "\0" }) : self }
}
