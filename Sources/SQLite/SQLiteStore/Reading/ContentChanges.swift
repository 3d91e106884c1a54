import SQLiteFormat

/// How a store that has been written to differs from an earlier copy of it: its rows by table, and its schema.
package struct ContentChanges: Equatable, Sendable {
    /// The rows of one table that the copy or the store has.
    package struct Table: Equatable, Sendable {
        package let name: String
        /// The number of rows in the copy.
        package let before: Int64
        /// The number of rows in the store.
        package let after: Int64
        /// The number of rows that only the store has, by their keys.
        package let came: Int64
        /// The number of rows that only the copy has.
        package let went: Int64
        /// The number of rows that both have, with different values.
        package let changed: Int64
        /// A phrase on why the rows can't be compared one by one: `has no table note`; nil if they can.
        package let obstacle: String?

        package var isSame: Bool { came == 0 && went == 0 && changed == 0 && obstacle == nil }

        /// True if rows went, or if the store no longer has the table or all of its columns.
        package var isLoss: Bool { went > 0 || obstacle?.hasPrefix("has no") == true }
    }

    /// An entry of the schema that was created, dropped or defined otherwise.
    package struct SchemaChange: Equatable, Sendable {
        package enum Kind: String, Sendable {
            case created, dropped, changed
        }

        package let kind: Kind
        /// `table`, `index`, `view` or `trigger`.
        package let type: String
        package let name: String
    }

    /// The tables that either has, by name, without virtual tables and those that keep the content of one.
    package let tables: [Table]
    package let schema: [SchemaChange]
}

extension StoreContent {
    /// Compares this copy with what became of the store: each row with the one that has its primary key, or else its
    /// row identifier. Both readers must be valid. Throws `StoreError`.
    package func changes(to later: StoreContent) throws -> ContentChanges {
        let mine = tables.filter { $0.kind != .virtual && !$0.isShadow }
        let theirs = later.tables.filter { $0.kind != .virtual && !$0.isShadow }
        let names = Set((mine + theirs).map { ExactName($0.name) }).map(\.text)
        return ContentChanges(
            tables: try names.sorted().map { name in
                let kept = try mine.first { $0.name.hasSameBytes(as: name) }.flatMap { table in
                    // SQLite permits any number of rows whose key is NULL.
                    let isUnique = try !reader.hasNullKeys(table) && !later.reader.hasNullKeys(table)
                    return try retention(of: table, in: later, pairing: isUnique ? .primaryKey : .rowid)
                }
                let present = theirs.first { $0.name.hasSameBytes(as: name) }
                let after = try present.map { try later.reader.rowCount($0) } ?? 0
                return ContentChanges.Table(name, kept, after: after, isMissing: present == nil)
            }, schema: try schemaChanges(to: later))
    }
}

extension StoreReader {
    /// True if a row has NULL in a column of the table's declared primary key. False also if this store has no such
    /// columns: then its keys are others.
    fileprivate func hasNullKeys(_ table: DatabaseSchema.Table) throws -> Bool {
        let key = table.primaryKey.map(\.name)
        let mine = try DatabaseSchema(self).tablesByName.first { $0.name.hasSameBytes(as: table.name) }
        guard !key.isEmpty, mine?.primaryKey.map(\.name).hasSameBytes(as: key) == true else { return false }
        let isNull = key.map { "\($0.sqlName) IS NULL" }.joined(separator: " OR ")
        return try prepare("SELECT 1 FROM \(table.name.sqlName) WHERE \(isNull) LIMIT 1").step()
    }
}

extension ContentChanges.Table {
    fileprivate init(_ name: String, _ kept: ContentRetention.Table?, after: Int64, isMissing: Bool) {
        let before = kept?.rows ?? 0
        let obstacle = isMissing ? "has no table \(name)" : after == 0 ? nil : kept?.obstacle
        // Rows that can't be compared one by one may all have changed, and are counted.
        let went = obstacle == nil ? kept?.missing ?? 0 : max(0, before - after)
        self.init(
            name: name, before: before, after: after, came: after - (before - went), went: went,
            changed: obstacle == nil ? kept?.changed ?? 0 : before - went, obstacle: obstacle)
    }
}
