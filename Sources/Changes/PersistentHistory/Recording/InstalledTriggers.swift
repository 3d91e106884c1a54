import SQLiteStore

/// The triggers of a store.
struct InstalledTriggers {
    /// History's triggers by the number in their names.
    let byNumber: [Int64: [DatabaseSchema.Object]]
    /// By `DatabaseSchema.key(of:)` of the table.
    private var numbers: [String: Int64] = [:]
    /// The place in the schema of the first of history's triggers with a number.
    private var first: [Int64: Int] = [:]
    /// The place in the schema of the last of a table's other triggers.
    private var lastOther: [String: Int] = [:]

    init(_ schema: DatabaseSchema) {
        let triggers = schema.objects(.trigger)
        byNumber = Dictionary(grouping: HistoryTables.triggers(schema)) {
            HistorySchema.tableNumber(ofTrigger: $0.name) ?? 0
        }
        for (number, triggers) in byNumber {
            for trigger in triggers {
                let table = DatabaseSchema.key(of: trigger.table)
                numbers[table] = max(number, numbers[table] ?? .min)
            }
        }
        for (place, trigger) in triggers.enumerated() {
            if HistorySchema.isOwn(trigger), let number = HistorySchema.tableNumber(ofTrigger: trigger.name) {
                first[number] = first[number] ?? place
            } else {
                lastOther[DatabaseSchema.key(of: trigger.table)] = place
            }
        }
    }

    /// Returns the number in the names of the table's triggers; nil if it has none of history's.
    func number(of table: String) -> Int64? { numbers[DatabaseSchema.key(of: table)] }

    /// Returns whether the app has created a trigger on the table after groupstore's. SQLite runs the newest first, so
    /// whatever that trigger writes would be recorded before the change that fired it.
    func isOvertaken(_ number: Int64, _ table: String) -> Bool {
        guard let first = first[number], let last = lastOther[DatabaseSchema.key(of: table)] else { return false }
        return last > first
    }
}
