/// A row of `sqlite_schema`.
package struct SchemaEntry: Hashable, Sendable {
    /// The kind of object: `table`, `index`, `view` or `trigger`.
    package let type: String
    package let name: String
    /// The table that the object belongs to.
    package let table: String
    /// The root page, or 0 for a view, trigger or virtual table, which has no b-tree.
    package let root: UInt32
    /// The SQL that created the object, or an empty string.
    package let sql: String

    init(type: String, name: String, table: String, root: UInt32, sql: String) {
        self.type = type
        self.name = name
        self.table = table
        self.root = root
        self.sql = sql
    }

    /// Parses a record of five columns (https://sqlite.org/fileformat2.html, §2.1 and §2.6). Returns nil if it is
    /// malformed.
    package init?(record: UnsafeRawBufferPointer, _ encoding: PageFormat.Encoding) {
        guard let (length, first) = record.varint(0, end: record.count), length <= record.count else { return nil }
        var header = first
        var body = Int(length)
        var texts: [String] = []
        var root: UInt32 = 0
        for column in 0..<5 {
            guard let (serial, next) = record.varint(header, end: Int(length)), serial <= 0xFFFF_FFFF else {
                return nil
            }
            header = next
            let size = Int(UnsafeRawBufferPointer.length(ofSerial: serial))
            guard body + size <= record.count else { return nil }
            let value = UnsafeRawBufferPointer(rebasing: record[body..<body + size])
            body += size
            if column == 3 {
                guard let page = Self.integer(value, serial: Int(serial)) else { return nil }
                root = page
            } else {
                texts.append(serial >= 13 && serial % 2 == 1 ? Self.text(value, encoding) : "")
            }
        }
        self.init(type: texts[0], name: texts[1], table: texts[2], root: root, sql: texts[3])
    }

    /// Returns a page number, or 0 for NULL.
    private static func integer(_ value: UnsafeRawBufferPointer, serial: Int) -> UInt32? {
        switch serial {
        case 0, 8: 0
        case 9: 1
        case 1...6: UInt32(exactly: value.reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
        default: nil
        }
    }

    private static func text(_ value: UnsafeRawBufferPointer, _ encoding: PageFormat.Encoding) -> String {
        if encoding == .utf8 { return String(decoding: value, as: UTF8.self) }
        let units = (0..<value.count / 2).map { index in
            let unit = value.loadUnaligned(fromByteOffset: 2 * index, as: UInt16.self)
            return encoding == .utf16LittleEndian ? UInt16(littleEndian: unit) : UInt16(bigEndian: unit)
        }
        return String(decoding: units, as: UTF16.self)
    }
}
