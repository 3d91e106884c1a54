import CSQLite

/// Values without a copy in between, for statements that run a million times.
extension SQLiteStatement {
    package enum StorageClass: Sendable {
        case null, integer, real, text, blob
    }

    package func storageClass(_ column: Int32) -> StorageClass {
        switch sqlite3_column_type(handle, column) {
        case SQLITE_INTEGER: .integer
        case SQLITE_FLOAT: .real
        case SQLITE_TEXT: .text
        case SQLITE_BLOB: .blob
        default: .null
        }
    }

    /// Passes the bytes of a text, in the store's encoding, or of a BLOB.
    package func withBytes<Success>(
        _ column: Int32, _ body: (UnsafeRawBufferPointer) throws -> Success
    ) rethrows -> Success {
        let start = sqlite3_column_blob(handle, column)
        return try body(UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(handle, column))))
    }

    package func bindNull(at position: Int32) throws { try check(sqlite3_bind_null(handle, position)) }

    package func bind(_ number: Int64, at position: Int32) throws {
        try check(sqlite3_bind_int64(handle, position, number))
    }

    package func bind(_ number: Double, at position: Int32) throws {
        try check(sqlite3_bind_double(handle, position, number))
    }

    package func bind(_ text: String, at position: Int32) throws {
        var text = text
        try text.withUTF8 { try bind(text: UnsafeRawBufferPointer($0), at: position) }
    }

    package func bind(blob bytes: UnsafeRawBufferPointer, at position: Int32) throws {
        // A null pointer would bind NULL.
        try check(
            bytes.isEmpty
                ? sqlite3_bind_zeroblob(handle, position, 0)
                : sqlite3_bind_blob64(handle, position, bytes.baseAddress, UInt64(bytes.count), Self.transient))
    }

    /// Binds a text, given in UTF-8.
    package func bind(text bytes: UnsafeRawBufferPointer, at position: Int32) throws {
        if let start = bytes.baseAddress {
            try check(
                sqlite3_bind_text64(
                    handle, position, start.assumingMemoryBound(to: CChar.self), UInt64(bytes.count), Self.transient,
                    UInt8(SQLITE_UTF8)))
        } else {
            try check(sqlite3_bind_text64(handle, position, "", 0, Self.transient, UInt8(SQLITE_UTF8)))
        }
    }

    private static var transient: sqlite3_destructor_type { unsafeBitCast(-1, to: sqlite3_destructor_type.self) }

    private func check(_ code: Int32) throws { if code != SQLITE_OK { throw connection.error(code) } }
}
