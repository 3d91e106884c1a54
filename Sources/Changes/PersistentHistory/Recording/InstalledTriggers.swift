import SQLiteFormat
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

    /// A recorded table that has another name than the history knows.
    struct Rename {
        let number: Int64
        let former: String
        let present: String

        /// The names if the table of each is another one now, or none is; empty if they differ only in case.
        var names: [String] {
            DatabaseSchema.key(of: former) == DatabaseSchema.key(of: present) ? [] : [former, present]
        }
    }

    /// Returns the renamed tables in the order of their numbers. SQLite renames a table in its triggers too, so the
    /// triggers tell which table has a number.
    ///
    /// - Parameter known: The names that the history knows, by number.
    func renames(from known: [Int64: String]) -> [Rename] {
        known.sorted { $0.key < $1.key }.compactMap { number, former in
            guard let present = byNumber[number]?.first?.table, !present.hasSameBytes(as: former) else { return nil }
            return Rename(number: number, former: former, present: present)
        }
    }

    /// Returns whether the app has created a trigger on the table after groupstore's. SQLite runs the newest first, so
    /// whatever that trigger writes would be recorded before the change that fired it.
    func isOvertaken(_ number: Int64, _ table: String) -> Bool {
        guard let first = first[number], let last = lastOther[DatabaseSchema.key(of: table)] else { return false }
        return last > first
    }
}
