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

    package init(type: String, name: String, table: String, root: UInt32, sql: String) {
        self.type = type
        self.name = name
        self.table = table
        self.root = root
        self.sql = sql
    }

    package static func == (one: SchemaEntry, other: SchemaEntry) -> Bool {
        one.root == other.root && one.type == other.type && one.name.hasSameBytes(as: other.name)
            && one.table.hasSameBytes(as: other.table) && one.sql.hasSameBytes(as: other.sql)
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(root)
        for text in [type, name, table] { hasher.combine(bytesOf: text) }
    }

    /// Parses a record of five columns (https://sqlite.org/fileformat2.html, §2.1 and §2.6). Returns nil if it is
    /// malformed.
    package init?(record: UnsafeRawBufferPointer, _ encoding: PageFormat.Encoding) {
        guard let fields = RowRecord(record)?.fields, fields.count == 5 else { return nil }
        let root: UInt32
        switch fields[3] {
        case .null: root = 0
        case .integer(let value):
            guard let page = UInt32(exactly: value) else { return nil }
            root = page
        default: return nil
        }
        func text(_ field: RowRecord.Field) -> String {
            if case .text(let bytes) = field { Self.text(bytes, encoding) } else { "" }
        }
        self.init(
            type: text(fields[0]), name: text(fields[1]), table: text(fields[2]), root: root, sql: text(fields[4]))
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
