import SQLiteFormat
import SQLiteStore

/// The triggers that record one table's changes, in the order in which they must be created: of several AFTER triggers,
/// SQLite runs the newest first, and the columns that an update assigned must be recorded before the update.
///
/// The triggers name only the columns of the key and of unique rules. They name a rule's droppable columns only where a
/// missing column does no harm. They call only SQLite's built-in functions. They never run into a conflict, because the
/// outer statement's OR clause would apply (https://sqlite.org/lang_createtrigger.html).
struct HistoryTriggers {
    let table: RecordedTable
    let number: Int64

    /// True to record what rows held before.
    let recordsImages: Bool

    /// The number of bits in `GS_CHANGE.columns`. Assignments to later columns aren't reported.
    static let maxColumns = 62

    init(_ table: RecordedTable, number: Int64, recordsImages: Bool = false) {
        self.recordsImages = recordsImages
        self.table = table
        self.number = number
    }

    /// The name and statement of each trigger.
    var all: [(name: String, sql: String)] { recording + columnTriggers + replacing + checking + remembering }

    /// The triggers that record what rows held before.
    private var remembering: [(name: String, sql: String)] {
        recordsImages ? FormerRows(table: table, number: number).triggers.map { creation($0.letter, $0.body) } : []
    }

    /// The triggers without which changes are missed.
    var essential: [(name: String, sql: String)] { recording + replacing + checking }

    private var recording: [(name: String, sql: String)] {
        [
            ("B", beforeInsert), ("P", beforeUpdate), ("M", moved), ("U", updated), ("D", deleted), ("I", inserted),
        ].map(creation)
    }

    /// The triggers that record replaced rows. These deletions come first, so that a reader who replays the changes
    /// meets no conflict in the same unique columns.
    private var replacing: [(name: String, sql: String)] {
        [("X", replacedByInsert), ("R", replacedByUpdate)].compactMap { letter, body in
            body.map { creation(letter, $0) }
        }
    }

    /// The triggers that detect a wrong prediction. Empty if all incoming values can be computed exactly.
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

    /// The table in a trigger's query. When a table is renamed, SQLite renames its references too, even if its new name
    /// is `new`, which would mean the incoming row. The alias stays.
    var source: String { "\(target) AS \(sourceName)" }
    let sourceName = "GS_ROW"

    /// Returns the OF clause that makes an UPDATE of one of the rules' columns run a trigger. Names of dropped columns
    /// do no harm there.
    func columns(of rules: [UniqueRule]) -> String {
        var columns: [String] = []
        for column in rules.flatMap(\.columns) where !columns.containsExact(column) { columns.append(column) }
        return columns.isEmpty ? "" : "OF \(columns.map(\.sqlName).joined(separator: ", ")) "
    }

    // MARK: Recording

    /// Returns SQL that records the current state of the row that `row` names. An app's TEMP trigger runs first, and
    /// what it did to the row was recorded before, so the last recorded change must be the true one.
    private func record(_ row: String, present: String, columns: String = "NULL") -> String {
        """
        INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time, author) VALUES (\(number), \
        \(operation(row, present: present)), \(table.key(of: row)), \(columns), random(), \
        julianday('now'), (SELECT name FROM GS_AUTHOR));
        """
    }

    /// Returns SQL of the operation to record. It names the table only if the other triggers do too: under
    /// `legacy_alter_table`, SQLite renames the table but not the references to it, and writes would fail.
    private func operation(_ row: String, present: String) -> String {
        guard !table.rules.isEmpty else { return row == "OLD" ? "2" : present }
        let exists = "EXISTS (SELECT 1 FROM \(source) WHERE \(table.isSameRow(sourceName, keyOf: row)))"
        return "CASE WHEN \(exists) THEN \(present) ELSE 2 END"
    }

    private var updated: String {
        """
        AFTER UPDATE ON \(target) WHEN \(table.key(of: "OLD")) IS \(table.key(of: "NEW")) BEGIN \
        \(record("NEW", present: "1", columns: "0")) END
        """
    }

    private var deleted: String { "AFTER DELETE ON \(target) BEGIN \(record("OLD", present: "1")) END" }

    private var inserted: String { "AFTER INSERT ON \(target) BEGIN \(recordIncoming) END" }

    /// The trigger for a changed key. Another key is another row: one row is deleted, one is inserted.
    private var moved: String {
        """
        AFTER UPDATE \(columns(of: table.rules.filter { $0.number == 0 }))ON \(target) \
        WHEN \(table.key(of: "OLD")) IS NOT \(table.key(of: "NEW")) BEGIN \
        \(record("OLD", present: "1")) \(recordIncoming) END
        """
    }

    /// SQL that records the incoming row. If it replaces a row with the same key, the change is an update with unknown
    /// columns.
    private var recordIncoming: String {
        guard let rule = table.rules.first(where: { $0.number == 0 }) else { return record("NEW", present: "0") }
        let operation = """
            CASE WHEN EXISTS (SELECT 1 FROM GS_REPLACED AS n WHERE n.table_id = \(number) AND n.rule = 0 \
            AND n.value = \(rule.identity) AND n.key = \(table.key(of: "NEW")) AND \(lastOperation) IS NOT 2) \
            THEN 1 ELSE 0 END
            """
        return record("NEW", present: operation)
    }

    /// SQL of the last operation recorded for the candidate row since it became one; NULL if there was none.
    var lastOperation: String {
        """
        (SELECT c.operation FROM GS_CHANGE AS c WHERE c.number > n.number AND c.table_id = \(number) \
        AND c.key = n.key ORDER BY c.number DESC LIMIT 1)
        """
    }

    private static let assigning = "AFTER UPDATE OF "

    /// Returns the present names of the columns that the bits of `GS_CHANGE.columns` stand for, in their order. SQLite
    /// renames a column in its trigger too.
    ///
    /// - Parameters:
    ///   - columns: Their names when the triggers were made.
    ///   - triggers: The statements of triggers, by name.
    static func columns(_ columns: [String], number: Int64, triggers: [String: String]) -> [String] {
        columns.enumerated().map { index, column in
            let name = "GS_\(number)_C\(index)"
            guard let sql = triggers[name] else { return column }
            let expected = "CREATE TRIGGER \(name) \(assigning)\(column.sqlName) ON "
            return sql.utf8.starts(with: expected.utf8) ? column : SQLText.assignedColumn(ofTrigger: sql) ?? column
        }
    }

    /// The triggers that record assigned columns. They run right before the update itself is recorded, with no other
    /// trigger in between.
    private var columnTriggers: [(name: String, sql: String)] {
        table.columns.prefix(Self.maxColumns).enumerated().map { index, column in
            creation(
                "C\(index)",
                """
                \(Self.assigning)\(column.sqlName) ON \(target) \
                WHEN \(table.key(of: "OLD")) IS \(table.key(of: "NEW")) BEGIN \
                INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time) VALUES (\(number), \
                \(HistorySchema.assignment), \(table.key(of: "NEW")), \(Int64(1) << Int64(index)), 0, 0); END
                """)
        }
    }
}
