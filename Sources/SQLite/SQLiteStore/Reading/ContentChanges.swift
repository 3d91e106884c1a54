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
        /// True if the changed rows were found by their row identifiers alone: one that another row has now counts as
        /// changed, too.
        package var isUncertain = false

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

    /// The tables that either has, by name, without those that keep the content of a virtual one.
    package let tables: [Table]
    package let schema: [SchemaChange]
}

extension StoreContent {
    /// Compares this copy with what became of the store: each row with the one that has its primary key, or else its
    /// row identifier, or its values if the rows have other identifiers now; of a virtual table, the rows are counted.
    /// Tables and columns correspond by the names that SQLite
    /// takes for the same. Both readers must be valid. Throws `StoreError`.
    package func changes(to later: StoreContent) throws -> ContentChanges {
        let mine = tables.filter { !$0.isShadow }
        let known = Set(mine.map { DatabaseSchema.key(of: $0.name) })
        let created = later.tables.filter { !$0.isShadow && !known.contains(DatabaseSchema.key(of: $0.name)) }
        let found =
            try mine.map { table in
                if table.kind == .virtual { return try counts(of: table, in: later) }
                // SQLite permits any number of rows whose key is NULL.
                let isUnique = try !hasNullKeys(table) && !later.hasNullKeys(table)
                let kept = try retention(of: table, in: later, pairing: isUnique ? .primaryKey : .rowid)
                guard let present = later.schema.table(table.name) else {
                    return ContentChanges.Table(missing: table.name, before: kept?.rows ?? 0)
                }
                if present.kind == .virtual {
                    return ContentChanges.Table(virtual: present.name, kept, after: try later.reader.count(present))
                }
                let isKeyed = isUnique && !table.primaryKey.isEmpty
                if !isKeyed, let found = try renumbered(table, kept, in: later) { return found }
                let column = try missingColumn(of: table, in: later, present)
                var found = ContentChanges.Table(
                    present.name, kept, after: try later.reader.rowCount(present), missing: column)
                found.isUncertain = !isKeyed && found.changed > 0
                return found
            } + created.map { ContentChanges.Table($0.name, nil, after: try later.reader.count($0) ?? 0, missing: nil) }
        return ContentChanges(tables: found.sorted { $0.name < $1.name }, schema: try schemaChanges(to: later))
    }

    /// Returns the rows that came and went by their values, if the rows of a table without a key have other row
    /// identifiers than before, as after VACUUM or if the table was made anew; nil if they don't.
    private func renumbered(
        _ table: DatabaseSchema.Table, _ kept: ContentRetention.Table?, in later: StoreContent
    ) throws -> ContentChanges.Table? {
        guard let kept, kept.obstacle == nil, !kept.isComplete else { return nil }
        let common = try commonRows(of: table, in: later)
        guard common > kept.kept else { return nil }
        let after = try later.reader.rowCount(table)
        return ContentChanges.Table(
            name: table.name, before: kept.rows, after: after, came: after - common, went: kept.rows - common,
            changed: 0, obstacle: nil)
    }

    /// A phrase on the first column of a table that the later one lacks; nil if there is none.
    private func missingColumn(
        of table: DatabaseSchema.Table, in later: StoreContent, _ present: DatabaseSchema.Table
    ) throws -> String? {
        let theirs = try Set(later.columns(of: present))
        let missing = try columns(of: table).first { !theirs.contains($0) }
        return missing.map { "has no column \($0) in \(present.name)" }
    }

    /// Compares the numbers of a virtual table's rows: only its module knows which of them are the same. All are if the
    /// tables that keep them are the same.
    private func counts(of table: DatabaseSchema.Table, in later: StoreContent) throws -> ContentChanges.Table {
        let before = try reader.count(table)
        guard let present = later.schema.table(table.name) else {
            return ContentChanges.Table(missing: table.name, before: before ?? 0)
        }
        guard let before, let after = try later.reader.count(present) else {
            return ContentChanges.Table(uncounted: present.name)
        }
        if let obstacle = try missingColumn(of: table, in: later, present) {
            return ContentChanges.Table(counted: present.name, before: before, after: after, obstacle: obstacle)
        }
        let shadows = schema.shadowTables(of: table)
        // A full-text table may show another table's rows as its own, or a view's, which come from anywhere.
        let arguments = VirtualTableModule.arguments(declaredIn: table.creation)
        let external = VirtualTableModule.value(of: "content", in: arguments).flatMap { $0.isEmpty ? nil : $0 }
        let parts = shadows.map(\.name) + [external].compactMap(\.self)
        let isSame =
            try present.kind == .virtual && !shadows.isEmpty
            && parts.allSatisfy { name in
                guard let part = schema.table(name), later.schema.table(name)?.creation == part.creation else {
                    return false
                }
                return try difference(in: part, from: later) == nil
            }
        let obstacle = "has rows in \(present.name) that are counted, and not compared"
        return ContentChanges.Table(
            counted: present.name, before: before, after: after, obstacle: isSame ? nil : obstacle)
    }

    /// The names of a table's columns, as SQLite takes them for the same.
    private func columns(of table: DatabaseSchema.Table) throws -> [String] {
        try DatabaseSchema.columns(of: table.name, in: reader).filter { $0.storage != .hidden }
            .map { DatabaseSchema.key(of: $0.name) }
    }

    /// True if a row has NULL in a column of the table's declared primary key. False also if this store has no such
    /// columns: then its keys are others.
    private func hasNullKeys(_ table: DatabaseSchema.Table) throws -> Bool {
        let key = table.primaryKey.map(\.name)
        guard !key.isEmpty, let own = schema.table(table.name), own.kind != .virtual,
            own.primaryKey.map({ DatabaseSchema.key(of: $0.name) }) == key.map(DatabaseSchema.key)
        else { return false }
        let isNull = key.map { "\($0.sqlName) IS NULL" }.joined(separator: " OR ")
        return try reader.prepare("SELECT 1 FROM \(table.name.sqlName) WHERE \(isNull) LIMIT 1").step()
    }
}

extension ContentChanges.Table {
    fileprivate init(missing name: String, before: Int64) {
        self.init(
            name: name, before: before, after: 0, came: 0, went: before, changed: 0, obstacle: "has no table \(name)")
    }

    /// A table has become a virtual one: fewer rows are a loss, and the others neither lost nor kept.
    fileprivate init(virtual name: String, _ kept: ContentRetention.Table?, after: Int64?) {
        let before = kept?.rows ?? 0
        let went = max(0, before - (after ?? before))
        self.init(
            name: name, before: before, after: after ?? 0, came: 0, went: went, changed: before - went,
            obstacle: kept?.obstacle)
    }

    fileprivate init(counted name: String, before: Int64, after: Int64, obstacle: String?) {
        self.init(
            name: name, before: before, after: after, came: max(0, after - before), went: max(0, before - after),
            changed: 0, obstacle: obstacle)
    }

    /// SQLite lacks the module of a virtual table, or it fails.
    fileprivate init(uncounted name: String) {
        self.init(
            name: name, before: 0, after: 0, came: 0, went: 0, changed: 0,
            obstacle: "has a virtual table \(name), whose rows SQLite can't count here")
    }

    /// - Parameter column: A phrase on a column that the store lacks.
    fileprivate init(_ name: String, _ kept: ContentRetention.Table?, after: Int64, missing column: String?) {
        let before = kept?.rows ?? 0
        let obstacle = column ?? (after == 0 ? nil : kept?.obstacle)
        // Rows that can't be compared one by one may all have changed, and are counted. So are two rows whose keys
        // are one key to the store, by another collation.
        let went = max(obstacle == nil ? kept?.missing ?? 0 : 0, before - after)
        self.init(
            name: name, before: before, after: after, came: after - (before - went), went: went,
            changed: obstacle == nil ? min(kept?.changed ?? 0, before - went) : before - went, obstacle: obstacle)
    }
}
