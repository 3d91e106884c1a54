/// The triggers that find out which rows gave way to one that came.
extension HistoryTriggers {
    /// Notes the rows that the statement removes if it says OR REPLACE. Whether it does can't be seen here; whether it
    /// did is seen afterwards.
    var beforeInsert: String { "BEFORE INSERT ON \(target) \(note(sparing: nil))" }

    var beforeUpdate: String {
        "BEFORE UPDATE \(columns(of: table.rules))ON \(target) \(note(sparing: table.key(of: "OLD")))"
    }

    private func note(sparing own: String?) -> String {
        let key = table.key(of: sourceName)
        let others = own.map { " AND \(key) IS NOT \($0)" } ?? ""
        let exists = table.rules.map { rule in
            rule.lenient("EXISTS (SELECT 1 FROM \(source) WHERE \(rule.conflict)\(others))")
        }
        // What is left of statements that ended otherwise. In the middle of a statement its own notes are still needed,
        // and a TEMP trigger, or one that was made later, may write to the table there: few are kept, or many.
        var statements = [
            "DELETE FROM GS_REPLACED WHERE table_id = \(number) AND "
                + "(SELECT count(*) FROM GS_REPLACED WHERE table_id = \(number)) > \(table.mayNest ? 1000 : 32);"
        ]
        for rule in table.rules {
            let found = "SELECT \(key) FROM \(source) WHERE \(rule.conflict)\(others)"
            // Another row that had the same may be gone by now, and nobody has told of it yet.
            statements.append(
                "DELETE FROM GS_REPLACED WHERE table_id = \(number) AND rule = \(rule.number) "
                    + "AND value = \(rule.identity) AND key = \(rule.lenient("(\(found))"));")
            let (columns, notes) =
                rule.droppable.isEmpty
                ? (key, "\(source) WHERE \(rule.conflict)\(others)")
                : ("k", "(SELECT \(rule.lenient("(\(found))")) AS k) WHERE k IS NOT NULL")
            statements.append(
                """
                INSERT INTO GS_REPLACED (table_id, rule, value, key, number) SELECT \(number), \(rule.number), \
                \(rule.identity), \(columns), (SELECT coalesce(max(number), 0) FROM GS_CHANGE) FROM \(notes);
                """)
        }
        return "WHEN \(exists.joined(separator: " OR ")) BEGIN \(statements.joined(separator: " ")) END"
    }

    /// The rules by which a row with another key than that of the one that comes may give way.
    var otherRules: [UniqueRule] {
        table.keyColumns.isEmpty ? table.rules.filter { $0.number != 0 } : table.rules
    }

    var replacedByInsert: String? {
        otherRules.isEmpty ? nil : "AFTER INSERT ON \(target) \(recordReplaced(otherRules))"
    }

    var replacedByUpdate: String? {
        guard !otherRules.isEmpty else { return nil }
        let body = recordReplaced(otherRules, sparing: table.key(of: "OLD"))
        return "AFTER UPDATE \(columns(of: otherRules))ON \(target) \(body)"
    }

    /// `own`: the row itself, which an older note may be about.
    private func recordReplaced(_ rules: [UniqueRule], sparing own: String? = nil) -> String {
        let statements = rules.map { recordReplaced($0, sparing: own) }.joined(separator: " ")
        return "WHEN EXISTS (SELECT 1 FROM GS_REPLACED WHERE table_id = \(number)) BEGIN \(statements) END"
    }

    /// The row that came has now what the noted one had, and that one is gone. With recursive_triggers on, its own DELETE
    /// trigger told of it.
    private func recordReplaced(_ rule: UniqueRule, sparing own: String?) -> String {
        """
        INSERT INTO GS_CHANGE (table_id, operation, key, nonce, time, author) SELECT \(number), 2, n.key, random(), \
        julianday('now'), (SELECT name FROM GS_AUTHOR) FROM GS_REPLACED AS n \
        WHERE n.table_id = \(number) AND n.rule = \(rule.number) AND n.value = \(rule.identity) \
        AND n.key IS NOT \(table.key(of: "NEW"))\(own.map { " AND n.key IS NOT \($0)" } ?? "") \
        AND \(lastOperation) IS NOT 2 AND \(hasGivenWay(rule));
        """
    }

    /// Never without a look whether the noted row is there: a note may be of a statement that ended otherwise, or of an
    /// index that was dropped since.
    private func hasGivenWay(_ rule: UniqueRule) -> String {
        let isGone = "NOT EXISTS (SELECT 1 FROM \(source) WHERE \(table.key(of: sourceName)) = n.key)"
        guard !table.keyColumns.isEmpty, !rule.isReplacedByDefault else { return isGone }
        // A row of several key columns isn't found by its key as it is noted. One that nothing was recorded of still has
        // what the rule is about, by which it is found.
        let stillConflicts =
            "EXISTS (SELECT 1 FROM \(source) WHERE \(rule.conflict) AND \(table.key(of: sourceName)) = n.key)"
        return "CASE WHEN \(lastOperation) IS NULL THEN NOT \(rule.lenient(stillConflicts)) ELSE \(isGone) END"
    }

    // MARK: What could not be worked out

    private var comparedRules: [UniqueRule] { table.rules.filter(\.isCompared) }

    var checkedInsert: String? {
        comparedRules.isEmpty ? nil : "AFTER INSERT ON \(target) \(noteGap)"
    }

    var checkedUpdate: String? {
        comparedRules.isEmpty ? nil : "AFTER UPDATE \(columns(of: comparedRules))ON \(target) \(noteGap)"
    }

    /// -1 is what NEW has for a number that SQLite is going to give (https://sqlite.org/lang_createtrigger.html).
    var uncertainInsert: String? {
        guard case .rowid(let name, _) = table.key, table.rules.contains(where: \.needsRowid) else { return nil }
        return "BEFORE INSERT ON \(target) WHEN NEW.\(name) = -1 \(recordGap)"
    }

    /// Where the row that came isn't what was worked out before, another one may have given way unnoted: a gap.
    private var noteGap: String {
        let surprises = comparedRules.map { rule in
            rule.lenient("EXISTS (SELECT 1 FROM \(source) WHERE \(table.isComing(sourceName)) AND \(rule.surprise))")
        }
        return "WHEN \(surprises.joined(separator: " OR ")) \(recordGap)"
    }

    private var recordGap: String {
        """
        BEGIN INSERT INTO GS_CHANGE (table_id, operation, nonce, time) VALUES (\(number), \
        \(HistoryChange.Operation.gap.rawValue), random(), julianday('now')); END
        """
    }
}
