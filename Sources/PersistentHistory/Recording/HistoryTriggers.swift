import SQLiteStore

/// The triggers that record one table's changes, in the order in which they are to be made: of several AFTER triggers
/// SQLite runs the one first that was made last, and which columns an update assigned is noted before it is recorded.
///
/// They name no column but those of the key and of unique rules, and of the rules those that can be dropped only where
/// it does no harm when they are gone; call no function that isn't SQLite's own; and never run into a conflict, because
/// the outer statement's OR clause would count (https://sqlite.org/lang_createtrigger.html).
struct HistoryTriggers {
    let table: RecordedTable
    let number: Int64

    /// Bits of `GS_CHANGE.columns`; a table's later columns are not told.
    static let mostColumns = 62

    init(_ table: RecordedTable, number: Int64) {
        self.table = table
        self.number = number
    }

    /// Name and statement.
    var all: [(name: String, sql: String)] { recording + columnTriggers + replacing + checking }

    /// Without one of them changes are missed.
    var essential: [(name: String, sql: String)] { recording + replacing + checking }

    private var recording: [(name: String, sql: String)] {
        [
            ("B", beforeInsert), ("P", beforeUpdate), ("M", moved), ("U", updated), ("D", deleted), ("I", inserted),
        ].map(creation)
    }

    /// Rows that give way go first: who repeats the changes elsewhere has the same unique columns there.
    private var replacing: [(name: String, sql: String)] {
        [("X", replacedByInsert), ("R", replacedByUpdate)].compactMap { letter, body in
            body.map { creation(letter, $0) }
        }
    }

    /// Nothing where all that comes can be worked out exactly.
    private var checking: [(name: String, sql: String)] {
        [("A", uncertainInsert), ("E", checkedInsert), ("F", checkedUpdate)].compactMap { letter, body in
            body.map { creation(letter, $0) }
        }
    }

    private func creation(_ letter: String, _ body: String) -> (name: String, sql: String) {
        (name(letter), "CREATE TRIGGER \(name(letter)) \(body)")
    }

    private func name(_ letter: String) -> String { "GS_\(number)_\(letter)" }

    var target: String { table.quotedName }

    /// The table in a trigger's query. SQLite follows a table that is renamed, to `new` too, which would mean the row
    /// that comes; the alias stays.
    var source: String { "\(target) AS \(sourceName)" }
    let sourceName = "GS_ROW"

    /// Those that make an UPDATE of one of the rules' columns run a trigger. Names that are gone do no harm there.
    func columns(of rules: [UniqueRule]) -> String {
        var columns: [String] = []
        for column in rules.flatMap(\.columns) where !columns.contains(column) { columns.append(column) }
        return columns.isEmpty ? "" : "OF \(columns.map(StoreTable.quote).joined(separator: ", ")) "
    }

    // MARK: Recording

    /// Records the row that `row` names as it is now. An app's TEMP trigger runs first: what it did to the row was
    /// recorded before, and the last change told must be the one that is so.
    private func record(_ row: String, present: String, columns: String = "NULL") -> String {
        """
        INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time, author) VALUES (\(number), \
        \(operation(row, present: present)), \(table.key(of: row)), \(columns), random(), \
        julianday('now'), (SELECT name FROM GS_AUTHOR));
        """
    }

    /// Where no other trigger names the table, these don't either: under `legacy_alter_table` SQLite renames the table
    /// and leaves what names it, so that writes would fail.
    private func operation(_ row: String, present: String) -> String {
        guard !table.rules.isEmpty else { return row == "OLD" ? "2" : present }
        let exists = "EXISTS (SELECT 1 FROM \(source) WHERE \(table.isRow(sourceName, keyOf: row)))"
        return "CASE WHEN \(exists) THEN \(present) ELSE 2 END"
    }

    private var updated: String {
        """
        AFTER UPDATE ON \(target) WHEN \(table.key(of: "OLD")) IS \(table.key(of: "NEW")) BEGIN \
        \(record("NEW", present: "1", columns: "0")) END
        """
    }

    private var deleted: String { "AFTER DELETE ON \(target) BEGIN \(record("OLD", present: "1")) END" }

    private var inserted: String { "AFTER INSERT ON \(target) BEGIN \(recordComing) END" }

    /// Another key is another row: one goes, one comes.
    private var moved: String {
        """
        AFTER UPDATE \(columns(of: table.rules.filter { $0.number == 0 }))ON \(target) \
        WHEN \(table.key(of: "OLD")) IS NOT \(table.key(of: "NEW")) BEGIN \
        \(record("OLD", present: "1")) \(recordComing) END
        """
    }

    /// A row that takes the place of one with its key is that row, changed; in which columns isn't known.
    private var recordComing: String {
        guard let rule = table.rules.first(where: { $0.number == 0 }) else { return record("NEW", present: "0") }
        let operation = """
            CASE WHEN EXISTS (SELECT 1 FROM GS_REPLACED AS n WHERE n.table_id = \(number) AND n.rule = 0 \
            AND n.value = \(rule.identity) AND n.key = \(table.key(of: "NEW")) AND \(lastOperation) IS NOT 2) \
            THEN 1 ELSE 0 END
            """
        return record("NEW", present: operation)
    }

    /// What was recorded last of the noted row since it was noted; NULL when nothing was.
    var lastOperation: String {
        """
        (SELECT c.operation FROM GS_CHANGE AS c WHERE c.number > n.number AND c.table_id = \(number) \
        AND c.key = n.key ORDER BY c.number DESC LIMIT 1)
        """
    }

    /// They run right before the update itself is recorded, with nothing of anybody else's between.
    private var columnTriggers: [(name: String, sql: String)] {
        table.columns.prefix(Self.mostColumns).enumerated().map { place, column in
            creation(
                "C\(place)",
                """
                AFTER UPDATE OF \(StoreTable.quote(column)) ON \(target) \
                WHEN \(table.key(of: "OLD")) IS \(table.key(of: "NEW")) BEGIN \
                INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time) VALUES (\(number), \
                \(HistorySchema.assignment), \(table.key(of: "NEW")), \(Int64(1) << Int64(place)), 0, 0); END
                """)
        }
    }
}
