import PersistentStore

/// The triggers that record one table's changes, in the order in which they are to be made: of several AFTER triggers
/// SQLite runs the one first that was made last, and which columns an update assigned is noted before it is recorded.
///
/// They name no column but those of the key and of unique rules, so that others can be dropped; call no function that
/// isn't SQLite's own; and never run into a conflict, because the outer statement's OR clause would count
/// (https://sqlite.org/lang_createtrigger.html).
struct HistoryTriggers {
    private let table: RecordedTable
    private let number: Int64

    /// Bits of `GS_CHANGE.columns`; a table's later columns are not told.
    static let mostColumns = 62

    init(_ table: RecordedTable, number: Int64) {
        self.table = table
        self.number = number
    }

    /// Name and statement.
    var all: [(name: String, sql: String)] { recording + columnTriggers + replacing }

    /// Without one of them changes are missed.
    var essential: [(name: String, sql: String)] { recording + replacing }

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

    private func creation(_ letter: String, _ body: String) -> (name: String, sql: String) {
        (name(letter), "CREATE TRIGGER \(name(letter)) \(body)")
    }

    private func name(_ letter: String) -> String { "GS_\(number)_\(letter)" }

    private var target: String { table.quotedName }

    /// The table in a trigger's query. Of a table that is called NEW or OLD, those words would mean it and not the row.
    private var source: String { isNamedAsARow ? "\(target) AS \(sourceName)" : target }
    private var sourceName: String { isNamedAsARow ? "GS_ROW" : target }
    private var isNamedAsARow: Bool { ["new", "old"].contains(table.name.lowercased()) }

    // MARK: Recording

    private func record(_ operation: Int, _ key: String) -> String {
        """
        INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time, author) VALUES (\(number), \
        \(operation), \(key), \(operation == 1 ? "0" : "NULL"), random(), julianday('now'), \
        (SELECT name FROM GS_AUTHOR));
        """
    }

    private var updated: String {
        """
        AFTER UPDATE ON \(target) WHEN \(table.key(of: "OLD")) IS \(table.key(of: "NEW")) BEGIN \
        \(record(1, table.key(of: "NEW"))) END
        """
    }

    private var deleted: String { "AFTER DELETE ON \(target) BEGIN \(record(2, table.key(of: "OLD"))) END" }

    private var inserted: String { "AFTER INSERT ON \(target) BEGIN \(recordComing) END" }

    /// Another key is another row: one goes, one comes.
    private var moved: String {
        let names = table.rules.first { $0.number == 0 }?.columns ?? []
        return """
            AFTER UPDATE OF \(list(names)) ON \(target) \
            WHEN \(table.key(of: "OLD")) IS NOT \(table.key(of: "NEW")) BEGIN \
            \(record(2, table.key(of: "OLD"))) \(recordComing) END
            """
    }

    /// A row that takes the place of one with its key is that row, changed; in which columns isn't known.
    private var recordComing: String {
        guard let rule = table.rules.first(where: { $0.number == 0 }) else { return record(0, table.key(of: "NEW")) }
        let operation = """
            CASE WHEN EXISTS (SELECT 1 FROM GS_REPLACED AS n WHERE n.table_id = \(number) AND n.rule = 0 \
            AND n.value = \(rule.identity) AND n.key = \(table.key(of: "NEW")) AND \(lastOperation) IS NOT 2) \
            THEN 1 ELSE 0 END
            """
        return """
            INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time, author) VALUES (\(number), \
            \(operation), \(table.key(of: "NEW")), NULL, random(), julianday('now'), (SELECT name FROM GS_AUTHOR));
            """
    }

    /// What was recorded last of the noted row since it was noted; NULL when nothing was.
    private var lastOperation: String {
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

    // MARK: Rows that give way

    private func list(_ columns: [String]) -> String { columns.map(StoreTable.quote).joined(separator: ", ") }

    /// Notes the rows that the statement removes if it says OR REPLACE. Whether it does can't be seen here; whether it
    /// did is seen afterwards.
    private var beforeInsert: String { "BEFORE INSERT ON \(target) \(note(sparing: nil))" }

    private var beforeUpdate: String {
        var columns: [String] = []
        for column in table.rules.flatMap(\.columns) where !columns.contains(column) { columns.append(column) }
        return "BEFORE UPDATE OF \(list(columns)) ON \(target) \(note(sparing: table.key(of: "OLD")))"
    }

    private func note(sparing own: String?) -> String {
        let key = table.key(of: sourceName)
        let others = own.map { " AND \(key) IS NOT \($0)" } ?? ""
        let exists = table.rules.map { "EXISTS (SELECT 1 FROM \(source) WHERE \($0.conflict)\(others))" }
        // What is left of statements that ended otherwise; in the middle of one, its own notes are still needed.
        var statements = table.mayNest ? [] : ["DELETE FROM GS_REPLACED WHERE table_id = \(number);"]
        for rule in table.rules {
            if table.mayNest {
                statements.append(
                    "DELETE FROM GS_REPLACED WHERE table_id = \(number) AND rule = \(rule.number) "
                        + "AND value = \(rule.identity);")
            }
            statements.append(
                """
                INSERT INTO GS_REPLACED (table_id, rule, value, key, number) SELECT \(number), \(rule.number), \
                \(rule.identity), \(key), (SELECT coalesce(max(number), 0) FROM GS_CHANGE) FROM \(source) \
                WHERE \(rule.conflict)\(others);
                """)
        }
        return "WHEN \(exists.joined(separator: " OR ")) BEGIN \(statements.joined(separator: " ")) END"
    }

    /// The rules by which a row with another key than that of the one that comes may give way.
    private var otherRules: [UniqueRule] {
        table.keyColumns.isEmpty ? table.rules.filter { $0.number != 0 } : table.rules
    }

    private var replacedByInsert: String? {
        otherRules.isEmpty ? nil : "AFTER INSERT ON \(target) \(recordReplaced(otherRules))"
    }

    private var replacedByUpdate: String? {
        guard !otherRules.isEmpty else { return nil }
        var columns: [String] = []
        for column in otherRules.flatMap(\.columns) where !columns.contains(column) { columns.append(column) }
        return
            "AFTER UPDATE OF \(list(columns)) ON \(target) \(recordReplaced(otherRules, sparing: table.key(of: "OLD")))"
    }

    /// `own`: the row itself, which an older note may be about.
    private func recordReplaced(_ rules: [UniqueRule], sparing own: String? = nil) -> String {
        let statements = rules.map { recordReplaced($0, sparing: own) }.joined(separator: " ")
        return "WHEN EXISTS (SELECT 1 FROM GS_REPLACED WHERE table_id = \(number)) BEGIN \(statements) END"
    }

    /// The row that came has now what the noted one had, so that one is gone, or was changed in the middle of the
    /// statement. With recursive_triggers on, its own DELETE trigger told of it.
    private func recordReplaced(_ rule: UniqueRule, sparing own: String?) -> String {
        let isGone = "NOT EXISTS (SELECT 1 FROM \(source) WHERE \(table.key(of: sourceName)) = n.key)"
        // A note of a statement that ended otherwise is told by its value, or by what became of its row since.
        let hasGivenWay = rule.isReplacedByDefault ? isGone : "(\(lastOperation) IS NULL OR \(isGone))"
        return """
            INSERT INTO GS_CHANGE (table_id, operation, key, nonce, time, author) SELECT \(number), 2, n.key, random(), \
            julianday('now'), (SELECT name FROM GS_AUTHOR) FROM GS_REPLACED AS n \
            WHERE n.table_id = \(number) AND n.rule = \(rule.number) AND n.value = \(rule.identity)\
            \(rule.comingCondition.map { " AND \($0)" } ?? "") AND n.key IS NOT \(table.key(of: "NEW"))\
            \(own.map { " AND n.key IS NOT \($0)" } ?? "") \
            AND \(lastOperation) IS NOT 2 AND \(hasGivenWay);
            """
    }
}
