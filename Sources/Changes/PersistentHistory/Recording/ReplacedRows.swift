/// The triggers that find the rows that an incoming row replaced.
extension HistoryTriggers {
    /// Records the candidates: rows that the statement removes if it says OR REPLACE. A trigger can't see whether it
    /// does; an AFTER trigger sees whether they are gone.
    var beforeInsert: String { "BEFORE INSERT ON \(target) \(recordCandidates(excluding: nil))" }

    var beforeUpdate: String {
        "BEFORE UPDATE \(columns(of: table.rules))ON \(target) \(recordCandidates(excluding: table.key(of: "OLD")))"
    }

    private func recordCandidates(excluding own: String?) -> String {
        let key = table.key(of: sourceName)
        let others = own.map { " AND \(key) IS NOT \($0)" } ?? ""
        let exists = table.rules.map { rule in
            rule.lenient("EXISTS (SELECT 1 FROM \(source) WHERE \(rule.conflict)\(others))")
        }
        // Deletes candidates left by earlier statements that ended in another way. In the middle of a statement its own
        // candidates are still needed, and a TEMP trigger or a newer trigger may write to the table there. So the limit
        // is low or high, depending on that.
        var statements = [
            "DELETE FROM GS_REPLACED WHERE table_id = \(number) AND "
                + "(SELECT count(*) FROM GS_REPLACED WHERE table_id = \(number)) > \(table.mayNest ? 1000 : 32);"
        ]
        for rule in table.rules {
            let found = "SELECT \(key) FROM \(source) WHERE \(rule.conflict)\(others)"
            // Another row that had the same value may be gone by now, and its deletion hasn't been recorded yet.
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

    /// The rules by which the incoming row may replace a row with another key.
    var otherRules: [UniqueRule] {
        table.keyColumns.isEmpty ? table.rules.filter { $0.number != 0 } : table.rules
    }

    var replacedByInsert: String? {
        otherRules.isEmpty ? nil : "AFTER INSERT ON \(target) \(recordReplaced(otherRules))"
    }

    var replacedByUpdate: String? {
        guard !otherRules.isEmpty else { return nil }
        let body = recordReplaced(otherRules, excluding: table.key(of: "OLD"))
        return "AFTER UPDATE \(columns(of: otherRules))ON \(target) \(body)"
    }

    /// - Parameter own: The key of the updated row itself, which an older candidate may name.
    private func recordReplaced(_ rules: [UniqueRule], excluding own: String? = nil) -> String {
        let statements = rules.map { recordReplaced($0, excluding: own) }.joined(separator: " ")
        return "WHEN EXISTS (SELECT 1 FROM GS_REPLACED WHERE table_id = \(number)) BEGIN \(statements) END"
    }

    /// Returns SQL that records a candidate as deleted if the incoming row now has its value and the candidate is gone.
    /// With recursive_triggers on, the candidate's own DELETE trigger recorded it.
    private func recordReplaced(_ rule: UniqueRule, excluding own: String?) -> String {
        """
        INSERT INTO GS_CHANGE (table_id, operation, key, nonce, time, author) SELECT \(number), 2, n.key, random(), \
        julianday('now'), (SELECT name FROM GS_AUTHOR) FROM GS_REPLACED AS n \
        WHERE n.table_id = \(number) AND n.rule = \(rule.number) AND n.value = \(rule.identity) \
        AND n.key IS NOT \(table.key(of: "NEW"))\(own.map { " AND n.key IS NOT \($0)" } ?? "") \
        AND \(lastOperation) IS NOT 2 AND \(wasReplaced(rule));
        """
    }

    /// Returns SQL that checks whether a candidate is gone. The check always looks at the table: a candidate may stem
    /// from a statement that ended in another way, or from an index that was dropped since.
    private func wasReplaced(_ rule: UniqueRule) -> String {
        let isGone = "NOT EXISTS (SELECT 1 FROM \(source) WHERE \(table.key(of: sourceName)) = n.key)"
        guard !table.keyColumns.isEmpty, !rule.isReplacedByDefault else { return isGone }
        // A row with several key columns can't be looked up by its recorded key. If nothing was recorded of it since,
        // it still has the rule's value, and is found by that.
        let stillConflicts =
            "EXISTS (SELECT 1 FROM \(source) WHERE \(rule.conflict) AND \(table.key(of: sourceName)) = n.key)"
        return "CASE WHEN \(lastOperation) IS NULL THEN NOT \(rule.lenient(stillConflicts)) ELSE \(isGone) END"
    }

    // MARK: Incoming rows that can't be predicted

    private var comparedRules: [UniqueRule] { table.rules.filter(\.isCompared) }

    var checkedInsert: String? {
        comparedRules.isEmpty ? nil : "AFTER INSERT ON \(target) \(recordGapOnMismatch)"
    }

    var checkedUpdate: String? {
        comparedRules.isEmpty ? nil : "AFTER UPDATE \(columns(of: comparedRules))ON \(target) \(recordGapOnMismatch)"
    }

    /// In a BEFORE INSERT trigger, NEW has -1 for a rowid that SQLite will assign
    /// (https://sqlite.org/lang_createtrigger.html).
    var uncertainInsert: String? {
        guard case .rowid(let name, _) = table.key, table.rules.contains(where: \.needsRowid) else { return nil }
        return "BEFORE INSERT ON \(target) WHEN NEW.\(name) = -1 \(recordGap)"
    }

    /// SQL that records a gap if the row differs from its prediction: it may have replaced a row that isn't a
    /// candidate.
    private var recordGapOnMismatch: String {
        let mismatches = comparedRules.map { rule in
            rule.lenient(
                "EXISTS (SELECT 1 FROM \(source) WHERE \(table.matchesNewKey(sourceName)) AND \(rule.mismatch))")
        }
        return "WHEN \(mismatches.joined(separator: " OR ")) \(recordGap)"
    }

    private var recordGap: String {
        """
        BEGIN INSERT INTO GS_CHANGE (table_id, operation, nonce, time) VALUES (\(number), \
        \(HistoryChange.Operation.gap.rawValue), random(), julianday('now')); END
        """
    }
}
