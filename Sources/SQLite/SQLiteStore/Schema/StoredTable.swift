import SQLiteFormat

/// A table as its records are stored: which field of a record is which column, and what SQL shows for it
/// (https://sqlite.org/fileformat2.html, §2.3 and §2.4).
///
/// SQLite itself interprets the definition, in a database in memory.
package final class StoredTable {
    /// A column that a statement can assign.
    private struct Column {
        /// The field of the record.
        let field: Int
        let isRowid: Bool
        /// True if a whole number is stored as an integer.
        let isReal: Bool
        /// The value in records that were written before the column was added.
        let missing: StoredValue

        /// True if the two have the same value in each record.
        func isRead(as other: Column) -> Bool {
            field == other.field && isRowid == other.isRowid && isReal == other.isReal
                && missing.isIdentical(to: other.missing)
        }
    }

    package let table: DatabaseSchema.Table
    /// The names of the columns that a statement can assign, in their order.
    package let columns: [String]
    /// The names of the key's columns: those of a table WITHOUT ROWID, or the one that is the rowid.
    package let key: [String]
    /// For each field of a record that belongs to the key of a table WITHOUT ROWID, true if its column has REAL
    /// affinity. Nil for another table. A key may have a column twice, with different collations.
    package let keyIsReal: [Bool]?
    private let stored: [Column]
    /// The number of fields of a whole record.
    private let fieldCount: Int
    private let keyPlaces: [Int]
    private let encoding: TextEncoding

    /// Interprets the definition of a table. Throws `StoreError` if SQLite doesn't accept it,
    /// and for a virtual table, which has no records.
    package init(name: String, creation: String, encoding: TextEncoding) throws {
        let reader = try DefinitionReader(creation)
        guard let table = try DatabaseSchema(reader).tables.first, table.kind != .virtual else {
            throw StoreError(code: 1, message: "\(name) has no records", path: reader.path)
        }
        self.table = table
        self.encoding = encoding
        let isStrict = try reader.integer("SELECT strict FROM pragma_table_list(?1)", [.text(table.name)]) == 1
        let alias = table.rowidAlias
        let (places, keyColumns) = try Self.fields(of: table, reader)
        var stored: [Column] = []
        for (place, column) in table.columns.enumerated() where column.isAssignable {
            stored.append(
                Column(
                    field: places[place] ?? Int.max, isRowid: alias?.hasSameBytes(as: column.name) == true,
                    isReal: Self.isReal(column.type, isStrict: isStrict),
                    missing: try Self.defaultValue(of: column, isStrict: isStrict)))
        }
        self.stored = stored
        fieldCount = places.count
        let columns = table.assignableColumns.map(\.name)
        self.columns = columns
        let key = table.kind == .withoutRowid ? table.primaryKey.map(\.name) : alias.map { [$0] } ?? []
        self.key = key
        keyPlaces = key.compactMap { columns.firstIndex(ofExact: $0) }
        let keyIsReal = keyColumns.map { Self.isReal(table.columns[$0].type, isStrict: isStrict) }
        self.keyIsReal = keyIsReal.isEmpty ? nil : keyIsReal
    }

    /// Returns the field of each column, by the column's place; and the columns that the first fields of a table
    /// WITHOUT ROWID have, which are its key. A virtual column has no field.
    private static func fields(
        of table: DatabaseSchema.Table, _ reader: DefinitionReader
    ) throws -> (places: [Int: Int], keyColumns: [Int]) {
        var order = Array(table.columns.indices)
        var keyColumns: [Int] = []
        if table.kind == .withoutRowid {
            let row = try reader.prepare(
                "SELECT x.cid, x.key FROM pragma_index_list(?1) AS l CROSS JOIN pragma_index_xinfo(l.name) AS x "
                    + "WHERE l.origin = 'pk' ORDER BY x.seqno", [.text(table.name)])
            order = []
            while try row.step() {
                let column = Int(row.integer(0))
                guard table.columns.indices.contains(column) else { continue }
                order.append(column)
                if row.integer(1) == 1 { keyColumns.append(column) }
            }
        }
        let stored = order.filter { table.columns[$0].storage != .virtual }
        return (Dictionary(zip(stored, stored.indices), uniquingKeysWith: { first, _ in first }), keyColumns)
    }

    /// True for a column of REAL affinity (https://sqlite.org/datatype3.html, §3.1).
    private static func isReal(_ type: String, isStrict: Bool) -> Bool {
        let type = type.uppercased()
        if ["INT", "CHAR", "CLOB", "TEXT", "BLOB"].contains(where: type.contains) { return false }
        return !(isStrict && type == "ANY") && ["REAL", "FLOA", "DOUB"].contains(where: type.contains)
    }

    /// The value that SQLite reads in a record from before the column was added. It isn't always the one that a new row
    /// gets: text keeps the literal's digits, such as those of 1.10.
    private static func defaultValue(of column: DatabaseSchema.Column, isStrict: Bool) throws -> StoredValue {
        guard let value = column.defaultValue else { return .null }
        // The affinities are those of the types' names, but for one of strict tables.
        let type = isStrict && column.type.uppercased() == "ANY" ? "" : column.type
        // The schema has lost the parentheses of an expression. A name without them is a text.
        for value in [value, "(\(value))"] {
            let reader = try DefinitionReader("CREATE TABLE d (e INT)")
            try reader.execute("INSERT INTO d VALUES (1)")
            do {
                try reader.execute("ALTER TABLE d ADD COLUMN c \(type) DEFAULT \(value)")
                let row = try reader.prepare("SELECT c FROM d")
                return try row.step() ? row.storedValue(0, encoding: .utf8) : .null
            } catch is StoreError {}
        }
        // Not a constant: no row has it from before.
        return .null
    }

    // MARK: - Rows

    /// Returns the values of `columns` in a record, as SQL shows them. Returns nil if the record is malformed.
    package func values(rowid: Int64, _ record: [UInt8]) -> [StoredValue]? {
        record.withUnsafeBytes { bytes in
            guard let fields = RowRecord(bytes)?.fields else { return nil }
            return stored.map { column in
                if column.isRowid { return .integer(rowid) }
                guard column.field < fields.count else { return column.missing }
                if column.isReal, case .integer(let number) = fields[column.field] { return .real(Double(number)) }
                return value(fields[column.field])
            }
        }
    }

    /// Returns true if a record that is the same under a former definition has here the values that follow from the
    /// columns alone: a column keeps its values under its name; one of a new name has those of the former column at its
    /// place, or its default if there was none.
    package func keepsValues(of former: StoredTable) -> Bool {
        zip(columns, stored).enumerated().allSatisfy { place, column in
            if let source = former.columns.firstIndex(ofExact: column.0), source != place { return false }
            guard place < former.stored.count else { return column.1.field >= former.fieldCount }
            return column.1.isRead(as: former.stored[place])
        }
    }

    /// Returns the key of a row with these values: the rowid, or the values of the key's columns.
    package func key(rowid: Int64, _ values: [StoredValue]) -> [StoredValue] {
        table.kind == .withoutRowid ? keyPlaces.map { values[$0] } : [.integer(rowid)]
    }

    private func value(_ field: RowRecord.Field) -> StoredValue {
        switch field {
        case .null: return .null
        case .integer(let number): return .integer(number)
        case .real(let number): return .real(number)
        case .blob(let bytes): return .blob(Array(bytes))
        case .text(let bytes):
            if encoding == .utf8, let text = String(validating: bytes, as: UTF8.self) { return .text(text) }
            let bytes = Array(bytes)
            return encoding.decoded(bytes).map { .text($0) } ?? .malformedText(bytes)
        }
    }
}
