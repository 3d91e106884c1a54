import LinuxSystem
import SQLiteStore
import StoreRelocation

/// A table whose rows are compared with those of the common base.
struct BaseSubject {
    enum Side: String {
        case main, legacy, base
    }

    /// A column, by its name on each side.
    struct Column {
        let name: String
        let legacyName: String
        let baseName: String

        func name(_ side: Side) -> String {
            switch side {
            case .main: name
            case .legacy: legacyName
            case .base: baseName
            }
        }
    }

    let name: String
    let legacyName: String
    let baseName: String
    /// What tells a row from the others in SQL: the row's number, or the primary key of a WITHOUT ROWID table.
    let identity: [Column]
    /// The columns by which a row is the same one on all sides.
    let key: [Column]
    /// All that the merge compares.
    let columns: [Column]
    /// True for a full-text table with content of its own.
    let isFullText: Bool
    /// True if the compared columns have the identity.
    var identityIsColumn: Bool { identity.allSatisfy { one in columns.contains { $0.name == one.name } } }

    func isNamed(_ other: String) -> Bool { DatabaseSchema.key(of: name) == DatabaseSchema.key(of: other) }

    /// Returns the name that a column of the group's store has on a side.
    func name(ofColumn name: String, _ side: Side) -> String {
        (identity + key + columns).first { DatabaseSchema.key(of: $0.name) == DatabaseSchema.key(of: name) }?
            .name(side) ?? name
    }

    func table(_ side: Side) -> String {
        let name =
            switch side {
            case .main: name
            case .legacy: legacyName
            case .base: baseName
            }
        return "\(side.rawValue).\(MergeSession.quote(name))"
    }

    /// The SQL of a row of one side.
    struct Names {
        let source: String
        let identity: [String]
        let key: [String]
        let columns: [String]

        /// Returns a condition: both rows have the same complete key.
        func hasKey(of other: Names) -> String {
            zip(key, other.key).map { "\($0) = \($1)" }.joined(separator: " AND ")
        }

        /// Returns a condition: both rows have the same values, of the same types, in all that is compared. SQL takes 1
        /// for 1.0, and 0.0 for -0.0.
        func equals(_ other: Names) -> String {
            let equal = zip(columns, other.columns).map {
                "\($0) COLLATE BINARY IS \($1) AND typeof(\($0)) = typeof(\($1)) "
                    + "AND (typeof(\($0)) <> 'real' OR \($0) IS NOT 0 OR gs_is_negative(\($0)) = gs_is_negative(\($1)))"
            }
            return (["TRUE"] + equal).joined(separator: " AND ")
        }
    }

    func names(_ row: String, _ side: Side) -> Names {
        func sql(_ columns: [Column]) -> [String] { columns.map { "\(row).\(MergeSession.quote($0.name(side)))" } }
        return Names(
            source: "\(table(side)) AS \(row)", identity: sql(identity), key: sql(key), columns: sql(columns))
    }

    /// Returns the tables of which a base can be used, and the others that have rows, with the reasons.
    ///
    /// A row must have a key, and mean the same by its values on each side: numbers of rows that may differ between the
    /// stores don't.
    static func find(
        _ store: StoreWriter, _ schema: MergeSchema
    ) throws -> (subjects: [BaseSubject], unusable: [(table: String, reason: String)]) {
        let base = try DatabaseSchema(store, in: "base")
        let referenced = Set(schema.tables.flatMap { $0.columns.compactMap(\.reference) })
        var (subjects, unusable): ([BaseSubject], [(table: String, reason: String)]) = ([], [])
        for (index, table) in schema.tables.enumerated() {
            let translated = table.columns.compactMap(\.reference) + (referenced.contains(index) ? [index] : [])
            let reason: String
            if table.rules.count != 1 || table.entities.contains(where: \.comparesWholeRows) {
                reason = "its rows have no key"
            } else if table.isCoreData || translated.contains(where: schema.translates) {
                reason = "rows refer to others by numbers that may differ"
            } else if let subject = BaseSubject(table, table.rules[0], base) {
                if try subject.hasUniqueKeys(store) {
                    subjects.append(subject)
                    continue
                }
                reason = "rows have the same key"
            } else {
                reason = "the base has no such table, or other columns"
            }
            let hasRows = try store.integer(
                "SELECT EXISTS (SELECT 1 FROM main.\(MergeSession.quote(table.name))) "
                    + "OR EXISTS (SELECT 1 FROM legacy.\(MergeSession.quote(table.legacyName)))")
            if hasRows == 1 { unusable.append((table.name, reason)) }
        }
        for table in schema.virtualTables where table.treatment == .content {
            let number = Column(name: "rowid", legacyName: "rowid", baseName: "rowid")
            let columns = table.columns.map { Column(name: $0, legacyName: $0, baseName: $0) }
            let selected = (["rowid"] + table.columns.map(MergeSession.quote)).joined(separator: ", ")
            guard let other = base.table(table.name), other.module == table.module,
                (try? store.prepare("SELECT \(selected) FROM base.\(MergeSession.quote(other.name)) LIMIT 0")) != nil
            else {
                unusable.append((table.name, "the base has no such table, or other columns"))
                continue
            }
            subjects.append(
                BaseSubject(
                    name: table.name, legacyName: table.name, baseName: other.name, identity: [number],
                    key: [number], columns: columns, isFullText: true))
        }
        return (subjects, unusable)
    }

    /// True if a row of a side has a null in its key.
    func hasRowsWithoutKey(_ store: StoreWriter) throws -> Bool {
        try [Side.main, .legacy, .base].contains { side in
            let names = names("t", side)
            let isPartial = names.key.map { "\($0) IS NULL" }.joined(separator: " OR ")
            return try store.integer("SELECT 1 FROM \(names.source) WHERE \(isPartial) LIMIT 1") != nil
        }
    }

    /// True if no two rows of a side have the same key.
    private func hasUniqueKeys(_ store: StoreWriter) throws -> Bool {
        for side in [Side.main, .legacy, .base] {
            let names = names("t", side)
            let columns = names.key.joined(separator: ", ")
            let isComplete = names.key.map { "\($0) IS NOT NULL" }.joined(separator: " AND ")
            let repeated = try store.prepare(
                "SELECT 1 FROM \(names.source) WHERE \(isComplete) GROUP BY \(columns) HAVING count(*) > 1 LIMIT 1")
            if try repeated.step() { return false }
        }
        return true
    }
}

extension BaseSubject {
    /// Returns nil if the base has no such table, or another one.
    private init?(_ table: MergeTable, _ rule: MergeTable.Rule, _ base: DatabaseSchema) {
        guard let other = base.table(table.name), (other.kind == .withoutRowid) == table.isWithoutRowid,
            other.assignableColumns.count == table.columns.count
        else { return nil }
        func column(_ column: MergeTable.Column) -> Column? {
            guard let found = other.column(column.name), found.isAssignable else { return nil }
            return Column(name: column.name, legacyName: column.legacyName, baseName: found.name)
        }
        func columns(_ names: [String]) -> [Column] { names.compactMap { table.column($0).flatMap(column) } }
        let all = table.columns.compactMap(column)
        let key = columns(rule.columns)
        guard all.count == table.columns.count, key.count == rule.columns.count, !key.isEmpty else { return nil }
        let compared = table.columns.filter(\.isCompared).compactMap(column)
        if table.isWithoutRowid {
            let identity = columns(table.primaryKey)
            guard !identity.isEmpty, identity.count == table.primaryKey.count else { return nil }
            self.init(
                name: table.name, legacyName: table.legacyName, baseName: other.name, identity: identity,
                key: key, columns: compared, isFullText: false)
        } else {
            guard let number = table.number, let legacyNumber = table.legacyNumber,
                let baseNumber = other.rowidAlias ?? other.rowid
            else { return nil }
            let identity = [Column(name: number, legacyName: legacyNumber, baseName: baseNumber)]
            self.init(
                name: table.name, legacyName: table.legacyName, baseName: other.name, identity: identity,
                key: key, columns: compared, isFullText: false)
        }
    }
}

extension MergeSchema {
    /// True if numbers of the table's rows may differ between the stores.
    func translates(_ index: Int) -> Bool { !tables[index].keyIsNumber || tables[index].numberReference != nil }
}
