import CSQLite

/// A value exactly as a store holds it. `SQLiteValue` repairs text that isn't valid in the store's encoding; this type
/// keeps its bytes.
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
        let transient = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        for (position, value) in zip(Int32(1)..., values) {
            let code =
                switch value {
                case .null: sqlite3_bind_null(handle, position)
                case .integer(let number): sqlite3_bind_int64(handle, position, number)
                case .real(let number): sqlite3_bind_double(handle, position, number)
                case .text(let text): bind(text: Array(text.utf8), position, transient)
                case .malformedText(let bytes): bind(text: bytes, position, transient)
                case .blob(let bytes):
                    // A null pointer would bind NULL.
                    bytes.isEmpty
                        ? sqlite3_bind_zeroblob(handle, position, 0)
                        : sqlite3_bind_blob64(handle, position, bytes, UInt64(bytes.count), transient)
                }
            if code != SQLITE_OK { throw connection.error(code) }
        }
    }

    private func bind(text bytes: [UInt8], _ position: Int32, _ destructor: sqlite3_destructor_type?) -> Int32 {
        (bytes + [0]).withUnsafeBytes { buffer in
            let start = buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
            return sqlite3_bind_text64(handle, position, start, UInt64(bytes.count), destructor, UInt8(SQLITE_UTF8))
        }
    }
}
