import CSQLite
import SQLiteFormat

/// A value exactly as a store holds it. `SQLiteValue` repairs text that isn't valid in the store's encoding; this type
/// keeps its bytes. Texts are equal if SQLite's BINARY collation takes them as equal: byte by byte.
package enum StoredValue: Hashable, Sendable {
    case null
    case integer(Int64)
    case real(Double)
    case text(String)
    /// The bytes of a text that isn't valid in the store's encoding.
    case malformedText([UInt8])
    case blob([UInt8])
}

/// A store's text encoding (https://sqlite.org/pragma.html#pragma_encoding).
package enum TextEncoding: String, Sendable {
    case utf8 = "UTF-8"
    case utf16le = "UTF-16le"
    case utf16be = "UTF-16be"

    /// Reads the encoding of the connection's store.
    package init(_ database: SQLiteConnection) throws {
        self = try database.text("PRAGMA encoding").flatMap(TextEncoding.init(rawValue:)) ?? .utf8
    }

    /// The encoding that a database's header names.
    package init(_ encoding: PageFormat.Encoding) {
        self =
            switch encoding {
            case .utf8: .utf8
            case .utf16LittleEndian: .utf16le
            case .utf16BigEndian: .utf16be
            }
    }

    /// Decodes text; returns nil if the bytes aren't valid.
    package func decoded(_ bytes: [UInt8]) -> String? {
        guard self != .utf8 else { return String(validating: bytes, as: UTF8.self) }
        guard bytes.count.isMultiple(of: 2) else { return nil }
        let high = self == .utf16be ? 0 : 1
        let units = stride(from: 0, to: bytes.count, by: 2).map { index in
            UInt16(bytes[index + high]) << 8 | UInt16(bytes[index + 1 - high])
        }
        return String(validating: units, as: UTF16.self)
    }
}

extension SQLiteStatement {
    /// Returns the value as stored.
    package func storedValue(_ column: Int32, encoding: TextEncoding) -> StoredValue {
        switch sqlite3_column_type(handle, column) {
        case SQLITE_INTEGER: return .integer(integer(column))
        case SQLITE_FLOAT: return .real(real(column))
        case SQLITE_TEXT:
            // Reading as a blob avoids a conversion, which repairs.
            let bytes = bytes(column, limit: .max) ?? []
            return encoding.decoded(bytes).map { .text($0) } ?? .malformedText(bytes)
        case SQLITE_BLOB: return .blob(bytes(column, limit: .max) ?? [])
        default: return .null
        }
    }

    /// Returns the bytes of the text in UTF-8, or nil for NULL. Text of a UTF-8 store is not repaired.
    package func textBytes(_ column: Int32) -> [UInt8]? {
        guard let text = sqlite3_column_text(handle, column) else { return nil }
        return Array(UnsafeBufferPointer(start: text, count: Int(sqlite3_column_bytes(handle, column))))
    }

    /// Binds the values, starting at the first parameter. The bytes of malformed text are taken for UTF-8.
    package func bind(stored values: [StoredValue]) throws {
        for (position, value) in zip(Int32(1)..., values) {
            switch value {
            case .null: try bindNull(at: position)
            case .integer(let number): try bind(number, at: position)
            case .real(let number): try bind(number, at: position)
            case .text(let text): try bind(text, at: position)
            case .malformedText(let bytes): try bytes.withUnsafeBytes { try bind(text: $0, at: position) }
            case .blob(let bytes): try bytes.withUnsafeBytes { try bind(blob: $0, at: position) }
            }
        }
    }
}

extension StoredValue {
    package static func == (one: StoredValue, other: StoredValue) -> Bool {
        switch (one, other) {
        case (.null, .null): true
        case (.integer(let first), .integer(let second)): first == second
        case (.real(let first), .real(let second)): first == second
        case (.text(let first), .text(let second)): first.hasSameBytes(as: second)
        case (.malformedText(let first), .malformedText(let second)): first == second
        case (.blob(let first), .blob(let second)): first == second
        case (.null, _), (.integer, _), (.real, _), (.text, _), (.malformedText, _), (.blob, _): false
        }
    }

    package func hash(into hasher: inout Hasher) {
        switch self {
        case .null: hasher.combine(0)
        case .integer(let number): hasher.combine(number)
        case .real(let number): hasher.combine(number)
        case .text(let text): hasher.combine(bytesOf: text)
        case .malformedText(let bytes), .blob(let bytes): hasher.combine(bytes)
        }
    }

    /// True if SQL can't tell the values apart.
    package func isIdentical(to other: StoredValue) -> Bool {
        switch (self, other) {
        case (.real(let first), .real(let second)): first.bitPattern == second.bitPattern
        default: self == other
        }
    }
}
