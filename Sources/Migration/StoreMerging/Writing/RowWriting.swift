import LinuxSystem
import SQLiteStore
import StoreRelocation

/// Writes the legacy store's rows into the group's tables, row by row, so that a violated constraint can name the row.
///
/// The values never leave SQLite: text that isn't valid stays as it is. Each statement says `OR ABORT`, which
/// overrides a constraint's own `ON CONFLICT IGNORE` or `REPLACE`: no row is left out, removed or changed in silence.
struct RowWriting {
    let session: MergeSession
    private var store: StoreWriter { session.store }

    init(_ session: MergeSession) { self.session = session }

    /// Afterwards `gs_moved` names the rows whose ordered reference came from the legacy store, and `gs_updated` the
    /// rows and columns that have its values.
    func run() throws {
        try store.execute("CREATE TEMP TABLE gs_moved (t INTEGER, c TEXT, gid INTEGER, PRIMARY KEY (t, c, gid))")
        try store.execute("CREATE TEMP TABLE gs_updated (t INTEGER, gid INTEGER, columns TEXT, PRIMARY KEY (t, gid))")
        for index in session.schema.tables.indices { try update(index) }
        for index in session.schema.tables.indices { try insert(index) }
    }

    /// The SQL of a column's value, read from the legacy row `l`.
    private func value(_ column: MergeTable.Column) -> String {
        guard column.role == .external else { return session.translated(column) }
        let name = "l.\(MergeSession.quote(column.name))"
        return "coalesce((SELECT n FROM temp.gs_files WHERE o = \(name)), \(name))"
    }

    // MARK: Updates

    private struct Update {
        let legacy: Int64
        let group: Int64
        /// The columns to write.
        let columns: [Int]
    }

    private func update(_ index: Int) throws {
        let table = session.schema.tables[index]
        let compared = table.columns.indices.filter { table.columns[$0].isCompared }
        // A kept row is kept as a whole: an equal number of another type is written too.
        let flags = compared.map { place in
            let column = table.columns[place]
            let name = MergeSession.quote(column.name)
            let isThere = RowComparison.hasResult(column, session)
            return column.role == .value ? "(\(isThere) AND typeof(l.\(name)) = typeof(g.\(name)))" : isThere
        }
        let rows = try store.prepare(
            "SELECT m.lid, m.gid\(flags.map { ", " + $0 }.joined()) FROM \(session.map(index)) AS m "
                + "CROSS JOIN \(session.legacyView(index)) AS l ON l.gs_id = m.lid "
                + "CROSS JOIN \(session.groupView(index)) AS g ON g.gs_id = m.gid "
                + "WHERE m.s = \(MergeSession.State.takesLegacy.rawValue) ORDER BY m.gid")
        var updates: [Update] = []
        while try rows.step() {
            let differing = compared.enumerated().filter { rows.integer(Int32($0.offset + 2)) == 0 }.map(\.element)
            updates.append(
                Update(
                    legacy: rows.integer(0), group: rows.integer(1), columns: columns(toWrite: differing, of: table)))
        }
        rows.reset()
        try perform(updates, index, table)
    }

    /// Returns the columns that differ, and those that follow from them.
    private func columns(toWrite differing: [Int], of table: MergeTable) -> [Int] {
        let names = Set(differing.map { DatabaseSchema.key(of: table.columns[$0].name) })
        return table.columns.indices.filter { place in
            let column = table.columns[place]
            switch column.role {
            case .number, .entity: return false
            case .version: return true
            case .derived: return true
            case .order(let reference): return names.contains(DatabaseSchema.key(of: reference))
            case .value, .external, .reference:
                return differing.contains(place) && !table.isVisibleNumber(column)
            }
        }
    }

    private func perform(_ updates: [Update], _ index: Int, _ table: MergeTable) throws {
        var statements: [[Int]: SQLiteStatement] = [:]
        var rest = updates
        // Values may change places between rows. A row that is in another one's way is tried again.
        while !rest.isEmpty {
            var failed: [Update] = []
            for update in rest {
                guard !update.columns.isEmpty else { continue }
                let statement = try statements[update.columns] ?? prepareUpdate(update.columns, index, table)
                statements[update.columns] = statement
                do {
                    try execute(statement, [.integer(update.legacy), .integer(update.group)])
                } catch let error as StoreError where error.isConstraint {
                    statement.reset()
                    failed.append(update)
                }
            }
            guard failed.count < rest.count else { break }
            rest = failed
        }
        if !rest.isEmpty { try replace(rest, index, table) }
        for update in updates { try note(update, index, table) }
    }

    private func prepareUpdate(_ columns: [Int], _ index: Int, _ table: MergeTable) throws -> SQLiteStatement {
        let targets = columns.map { MergeSession.quote(table.columns[$0].name) }.joined(separator: ", ")
        let values = columns.map { place -> String in
            let column = table.columns[place]
            return column.role == .version
                ? "main.\(MergeSession.quote(table.name)).\(MergeSession.quote(column.name)) + 1" : value(column)
        }
        return try store.prepare(
            "UPDATE OR ABORT main.\(MergeSession.quote(table.name)) SET (\(targets)) = (SELECT \(values.joined(separator: ", ")) "
                + "FROM \(session.legacyView(index)) AS l WHERE l.gs_id = ?1) WHERE \(identity(index, table, "?2"))")
    }

    /// Returns an SQL condition for the row with a number in the group's store.
    private func identity(_ index: Int, _ table: MergeTable, _ number: String) -> String {
        if let name = table.number { return "\(MergeSession.quote(name)) = \(number)" }
        let keys = table.primaryKey.map(MergeSession.quote).joined(separator: ", ")
        let selected = table.primaryKey.indices.map { "k\($0)" }.joined(separator: ", ")
        return "(\(keys)) = (SELECT \(selected) FROM \(session.groupView(index))n WHERE gs_id = \(number))"
    }

    /// Removes rows and adds them again with their new values, because their values change places in a circle.
    private func replace(_ updates: [Update], _ index: Int, _ table: MergeTable) throws {
        guard table.number != nil else { throw try violation(updates[0].legacy, index, nil) }
        let all = MergeSession.quote(table.name)
        let columns = table.columns.map { MergeSession.quote($0.name) }.joined(separator: ", ")
        let number = MergeSession.quote(table.number ?? "rowid")
        let named = table.hasVisibleNumber ? columns : "\(number), \(columns)"
        let selection = "SELECT \(number) AS gs_id, \(columns) FROM main.\(all)"
        try store.execute("CREATE TEMP TABLE gs_replaced AS \(selection) LIMIT 0")
        for update in updates {
            try store.execute(
                "INSERT INTO temp.gs_replaced \(selection) WHERE \(number) = ?1", [.integer(update.group)])
            try store.execute("DELETE FROM main.\(all) WHERE \(number) = ?1", [.integer(update.group)])
        }
        for update in updates {
            let values = table.columns.indices.map { place -> String in
                let column = table.columns[place]
                guard update.columns.contains(place) else { return "r.\(MergeSession.quote(column.name))" }
                return column.role == .version ? "r.\(MergeSession.quote(column.name)) + 1" : value(column)
            }
            let selected = table.hasVisibleNumber ? values : ["r.gs_id"] + values
            let statement = try store.prepare(
                "INSERT OR ABORT INTO main.\(all) (\(named)) SELECT \(selected.joined(separator: ", ")) "
                    + "FROM temp.gs_replaced AS r CROSS JOIN \(session.legacyView(index)) AS l "
                    + "WHERE r.gs_id = ?2 AND l.gs_id = ?1")
            do {
                try execute(statement, [.integer(update.legacy), .integer(update.group)])
            } catch let error as StoreError where error.isConstraint {
                throw try violation(update.legacy, index, error)
            }
        }
        try store.execute("DROP TABLE temp.gs_replaced")
    }

    /// Remembers what was written, for orders and for Core Data's history.
    private func note(_ update: Update, _ index: Int, _ table: MergeTable) throws {
        for place in update.columns {
            if case .order(let reference) = table.columns[place].role {
                try store.execute(
                    "INSERT OR IGNORE INTO temp.gs_moved VALUES (?1, ?2, ?3)",
                    [.integer(Int64(index)), .text(reference), .integer(update.group)])
            }
        }
        guard table.isCoreData else { return }
        let names = update.columns.map { table.columns[$0] }.filter(\.isCompared).map(\.name)
        try store.execute(
            "INSERT OR REPLACE INTO temp.gs_updated VALUES (?1, ?2, ?3)",
            [.integer(Int64(index)), .integer(update.group), .text(names.joined(separator: "\n"))])
    }

    // MARK: Insertions

    private func insert(_ index: Int) throws {
        let table = session.schema.tables[index]
        let columns = table.columns.filter { !table.isVisibleNumber($0) }
        var (targets, values) = (columns.map { MergeSession.quote($0.name) }, columns.map(value))
        if let number = table.number {
            targets.insert(MergeSession.quote(number), at: 0)
            values.insert("?2", at: 0)
        }
        let statement = try store.prepare(
            "INSERT OR ABORT INTO main.\(MergeSession.quote(table.name)) (\(targets.joined(separator: ", "))) "
                + "SELECT \(values.joined(separator: ", ")) FROM \(session.legacyView(index)) AS l WHERE l.gs_id = ?1")
        let rows = try store.prepare(
            "SELECT lid, gid FROM \(session.map(index)) WHERE s = \(MergeSession.State.added.rawValue) ORDER BY gid")
        while try rows.step() {
            let (legacy, group) = (rows.integer(0), rows.integer(1))
            do {
                let parameters: [SQLiteValue] = [.integer(legacy), .integer(group)]
                try execute(statement, Array(parameters.prefix(table.number == nil ? 1 : 2)))
            } catch let error as StoreError where error.isConstraint {
                throw try violation(legacy, index, error)
            }
        }
    }

    private func execute(_ statement: SQLiteStatement, _ values: [SQLiteValue]) throws {
        statement.reset()
        try statement.bind(values)
        while try statement.step() {}
        statement.reset()
    }

    private func violation(_ legacy: Int64, _ index: Int, _ error: StoreError?) throws -> RelocationFailure {
        let table = session.schema.tables[index]
        let entity = try store.integer("SELECT e FROM \(session.map(index)) WHERE lid = ?1", [.integer(legacy)]) ?? 0
        let key = try session.key(of: legacy, in: index, entity: entity, fromLegacy: true)
        let name = table.entities.first { $0.number == entity }?.name ?? table.name
        return .merge(
            "merge_constraint",
            "\(PrintableText(name)) with \(session.text(ofKey: key)) of the legacy store can't be in the result: "
                + "\(PrintableText(error?.sqliteMessage ?? "its values change places with those of other rows"))",
            remedy: "change one of the two objects, choose another key, or keep one of the stores")
    }
}
