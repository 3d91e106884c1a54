import CSQLite
import Glibc
import SQLiteFormat
import SystemPackage

/// A value of one of SQLite's storage classes. Texts are equal if their bytes are.
package enum SQLiteValue: Equatable, Sendable {
    case null
    case integer(Int64)
    case real(Double)
    case text(String)
    case blob([UInt8])

    package static func == (one: SQLiteValue, other: SQLiteValue) -> Bool {
        switch (one, other) {
        case (.null, .null): true
        case (.integer(let first), .integer(let second)): first == second
        case (.real(let first), .real(let second)): first == second
        case (.text(let first), .text(let second)): first.hasSameBytes(as: second)
        case (.blob(let first), .blob(let second)): first == second
        case (.null, _), (.integer, _), (.real, _), (.text, _), (.blob, _): false
        }
    }
}

extension SQLiteValue: Hashable {
    package func hash(into hasher: inout Hasher) {
        switch self {
        case .null: hasher.combine(0)
        case .integer(let value): hasher.combine(value)
        case .real(let value): hasher.combine(value)
        case .text(var value): value.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        case .blob(let value): hasher.combine(value)
        }
    }
}

/// A prepared statement, stepped through row by row. Confined to one thread.
package final class SQLiteStatement {
    let handle: OpaquePointer
    /// Keeps the connection open for the life of the statement.
    let connection: SQLiteConnection

    /// The key under which the connection keeps the statement afterwards; nil if it doesn't.
    private let key: [UInt8]?

    init(_ handle: OpaquePointer, connection: SQLiteConnection, key: [UInt8]? = nil) {
        self.handle = handle
        self.connection = connection
        self.key = key
    }

    deinit {
        if let key, let kept = connection.statementCache { kept.put(handle, key) } else { sqlite3_finalize(handle) }
    }

    /// Rewinds the statement. Its parameters stay bound.
    package func reset() { sqlite3_reset(handle) }

    /// Binds the parameters, starting at the first.
    package func bind(_ values: [SQLiteValue]) throws {
        for (position, value) in zip(Int32(1)..., values) {
            switch value {
            case .null: try bindNull(at: position)
            case .integer(let number): try bind(number, at: position)
            case .real(let number): try bind(number, at: position)
            case .text(let text): try bind(text, at: position)
            case .blob(let bytes): try bytes.withUnsafeBytes { try bind(blob: $0, at: position) }
            }
        }
    }

    /// Advances to the next row. Returns false at the end.
    package func step() throws -> Bool {
        try connection.checkTransaction()
        let code = sqlite3_step(handle)
        switch code {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        default: throw connection.error(code)
        }
    }

    package var columnCount: Int32 { sqlite3_column_count(handle) }

    package func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }

    /// Returns the value as stored. Invalid UTF-8 in text is repaired.
    package func value(_ column: Int32) -> SQLiteValue {
        switch sqlite3_column_type(handle, column) {
        case SQLITE_INTEGER: .integer(integer(column))
        case SQLITE_FLOAT: .real(sqlite3_column_double(handle, column))
        case SQLITE_TEXT: .text(text(column) ?? "")
        case SQLITE_BLOB: .blob(bytes(column, limit: .max) ?? [])
        default: .null
        }
    }

    package func real(_ column: Int32) -> Double { sqlite3_column_double(handle, column) }

    package func isNull(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_NULL }

    /// Returns the text, or nil for NULL. Invalid UTF-8 is repaired.
    package func text(_ column: Int32) -> String? {
        guard let text = sqlite3_column_text(handle, column) else { return nil }
        let count = Int(sqlite3_column_bytes(handle, column))
        return String(decoding: UnsafeBufferPointer(start: text, count: count), as: UTF8.self)
    }

    /// Returns the value's bytes, with text in the database's encoding. Returns nil for NULL and for more than `limit`
    /// bytes.
    package func bytes(_ column: Int32, limit: Int) -> [UInt8]? {
        let blob = sqlite3_column_blob(handle, column)
        let count = Int(sqlite3_column_bytes(handle, column))
        guard !isNull(column), count <= limit else { return nil }
        return Array(UnsafeRawBufferPointer(start: blob, count: count))
    }

    /// Returns the first column whose value differs in type or bytes from the other statement's current row. Both must
    /// have the same number of columns.
    func firstDifference(from other: SQLiteStatement) -> Int32? {
        (0..<columnCount).first { !holdsSameValue(as: other, $0) }
    }

    /// True for a value that is neither NULL nor an empty text or BLOB.
    func hasContent(_ column: Int32) -> Bool {
        switch sqlite3_column_type(handle, column) {
        case SQLITE_NULL: false
        case SQLITE_TEXT, SQLITE_BLOB: sqlite3_column_bytes(handle, column) > 0
        default: true
        }
    }

    private func holdsSameValue(as other: SQLiteStatement, _ column: Int32) -> Bool {
        let type = sqlite3_column_type(handle, column)
        guard type == sqlite3_column_type(other.handle, column) else { return false }
        switch type {
        case SQLITE_NULL: return true
        case SQLITE_INTEGER: return integer(column) == other.integer(column)
        case SQLITE_FLOAT:
            return sqlite3_column_double(handle, column).bitPattern
                == sqlite3_column_double(other.handle, column).bitPattern
        default:
            // Reading as blobs avoids conversion, so even invalid text is compared as it is.
            let one = sqlite3_column_blob(handle, column)
            let another = sqlite3_column_blob(other.handle, column)
            let count = sqlite3_column_bytes(handle, column)
            guard count == sqlite3_column_bytes(other.handle, column) else { return false }
            guard let one, let another else { return count == 0 }
            return memcmp(one, another, Int(count)) == 0
        }
    }
}
