import SQLiteStore

/// The triggers of history versions 1 and 2.
struct LegacyTriggers {
    let table: RecordedTable
    let number: Int64
    let triggers: [DatabaseSchema.Object]

    /// True if the triggers recorded all changes of the table as it is now. They were exact for plain unique columns;
    /// expressions, generated columns and partial indexes could escape them.
    var areComplete: Bool {
        guard table.rules.allSatisfy(\.isPlain) else { return false }
        let expected = HistoryTriggers(table, number: number)
        let needed = ["B", "P", "M", "U", "D", "I"] + (expected.otherRules.isEmpty ? [] : ["X", "R"])
        return needed.allSatisfy { sql($0) != nil } && ["B", "P"].allSatisfy(recordsAllRules)
            && sql("P")?.hasPrefix(
                "CREATE TRIGGER GS_\(number)_P BEFORE UPDATE \(expected.columns(of: table.rules))ON ")
                == true
    }

    private func sql(_ letter: String) -> String? { triggers.first { $0.name == "GS_\(number)_\(letter)" }?.creation }

    private func recordsAllRules(_ letter: String) -> Bool {
        (sql(letter) ?? "").split(separator: "INSERT INTO GS_REPLACED").count == table.rules.count + 1
    }
}
