/// A row as a b-tree stores it (https://sqlite.org/fileformat2.html, §2.1), parsed in place.
///
/// The fields are the stored ones. Which columns they are, only the table's definition tells: the alias of a rowid is
/// stored as NULL, a virtual column isn't stored, a column that was added later is missing at the end, and a whole
/// number in a column of REAL affinity is stored as an integer.
package struct RowRecord {
    /// A field of a record.
    package enum Field {
        case null
        case integer(Int64)
        case real(Double)
        /// The bytes of a text in the database's encoding.
        case text(UnsafeRawBufferPointer)
        case blob(UnsafeRawBufferPointer)
    }

    /// The fields, whose bytes are those that the record was parsed from.
    package let fields: [Field]

    /// Parses a whole record. Returns nil if it is malformed, or longer or shorter than its header says.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        guard let (fields, isWhole) = Self.fields(bytes, limit: .max), isWhole else { return nil }
        self.fields = fields
    }

    /// Parses a record's first fields. Returns nil if it is malformed, or if the bytes end before those fields do.
    package init?(_ bytes: UnsafeRawBufferPointer, first count: Int) {
        guard let (fields, _) = Self.fields(bytes, limit: count), fields.count == count else { return nil }
        self.fields = fields
    }

    /// Returns the fields, but not more than `limit`, and true if nothing follows them.
    private static func fields(_ bytes: UnsafeRawBufferPointer, limit: Int) -> (fields: [Field], isWhole: Bool)? {
        guard let (length, first) = bytes.varint(0, end: bytes.count), length <= UInt64(bytes.count) else { return nil }
        let end = Int(length)
        var (header, body) = (first, end)
        var fields: [Field] = []
        // Each takes a byte of the header, or more. A malformed header may be of any length.
        fields.reserveCapacity(max(0, min(limit, end - header, 64)))
        while header < end, fields.count < limit {
            // SQLite reserves two of the types.
            guard let (serial, next) = bytes.varint(header, end: end), serial <= 0xFFFF_FFFF, serial != 10, serial != 11
            else { return nil }
            let size = Int(UnsafeRawBufferPointer.length(ofSerial: serial))
            guard body + size <= bytes.count else { return nil }
            header = next
            fields.append(field(serial, UnsafeRawBufferPointer(rebasing: bytes[body..<body + size])))
            body += size
        }
        return (fields, header == end && body == bytes.count)
    }

    private static func field(_ serial: UInt64, _ bytes: UnsafeRawBufferPointer) -> Field {
        switch serial {
        case 0: .null
        case 7: .real(Double(bitPattern: UInt64(bitPattern: integer(bytes))))
        case 8: .integer(0)
        case 9: .integer(1)
        case 1...6: .integer(integer(bytes))
        default: serial.isMultiple(of: 2) ? .blob(bytes) : .text(bytes)
        }
    }

    private static func integer(_ bytes: UnsafeRawBufferPointer) -> Int64 {
        var value = Int64(Int8(bitPattern: bytes[0]))
        for index in 1..<bytes.count { value = value << 8 | Int64(bytes[index]) }
        return value
    }
}

extension RowRecord.Field: Hashable {
    /// True if both have the same type and the same bytes.
    package static func == (first: Self, second: Self) -> Bool {
        switch (first, second) {
        case (.null, .null): true
        case (.integer(let one), .integer(let other)): one == other
        case (.real(let one), .real(let other)): one.bitPattern == other.bitPattern
        case (.text(let one), .text(let other)), (.blob(let one), .blob(let other)): one.hasSameBytes(as: other)
        default: false
        }
    }

    package func hash(into hasher: inout Hasher) {
        switch self {
        case .null: hasher.combine(0)
        case .integer(let number): hasher.combine(number)
        case .real(let number): hasher.combine(number.bitPattern)
        case .text(let bytes), .blob(let bytes): hasher.combine(bytes: bytes)
        }
    }
}
