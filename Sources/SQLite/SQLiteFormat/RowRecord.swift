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
        guard let (length, first) = bytes.varint(0, end: bytes.count), length <= UInt64(bytes.count) else { return nil }
        let end = Int(length)
        var (header, body) = (first, end)
        var fields: [Field] = []
        while header < end {
            // SQLite reserves two of the types.
            guard let (serial, next) = bytes.varint(header, end: end), serial <= 0xFFFF_FFFF, serial != 10, serial != 11
            else { return nil }
            let size = Int(UnsafeRawBufferPointer.length(ofSerial: serial))
            guard body + size <= bytes.count else { return nil }
            header = next
            fields.append(Self.field(serial, UnsafeRawBufferPointer(rebasing: bytes[body..<body + size])))
            body += size
        }
        guard header == end, body == bytes.count else { return nil }
        self.fields = fields
    }

    /// Returns the ranges of a record's bytes that its first fields have: their types in the header, and their values.
    /// Returns nil if the bytes end before those values do.
    package static func prefix(
        _ bytes: UnsafeRawBufferPointer, fields count: Int
    ) -> (types: Range<Int>, values: Range<Int>)? {
        guard let (length, first) = bytes.varint(0, end: bytes.count), length <= UInt64(bytes.count) else { return nil }
        let end = Int(length)
        var (header, body) = (first, end)
        for _ in 0..<count {
            guard let (serial, next) = bytes.varint(header, end: end), serial <= 0xFFFF_FFFF else { return nil }
            header = next
            body += Int(UnsafeRawBufferPointer.length(ofSerial: serial))
        }
        return body <= bytes.count ? (first..<header, end..<body) : nil
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
        bytes.dropFirst().reduce(Int64(Int8(bitPattern: bytes[0]))) { $0 << 8 | Int64($1) }
    }
}
