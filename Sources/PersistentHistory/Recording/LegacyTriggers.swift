/// The triggers of versions 1 and 2 of a history.
struct LegacyTriggers {
    let table: RecordedTable
    let number: Int64
    let triggers: [HistoryTables.Trigger]

    /// Whether they recorded all changes of the table as it is now. They were exact where unique columns are all that
    /// there is; expressions, generated columns and partial indexes could escape them.
    var areWhole: Bool {
        guard table.rules.allSatisfy(\.isPlain) else { return false }
        let wanted = HistoryTriggers(table, number: number)
        let needed = ["B", "P", "M", "U", "D", "I"] + (wanted.otherRules.isEmpty ? [] : ["X", "R"])
        return needed.allSatisfy { sql($0) != nil } && ["B", "P"].allSatisfy(notesAllRules)
            && sql("P")?.hasPrefix("CREATE TRIGGER GS_\(number)_P BEFORE UPDATE \(wanted.columns(of: table.rules))ON ")
                == true
    }

    private func sql(_ letter: String) -> String? { triggers.first { $0.name == "GS_\(number)_\(letter)" }?.sql }

    private func notesAllRules(_ letter: String) -> Bool {
        (sql(letter) ?? "").split(separator: "INSERT INTO GS_REPLACED").count == table.rules.count + 1
    }
}
