import SQLiteStore

/// The triggers of a store, read once: a query for each table would read the whole schema each time.
struct InstalledTriggers {
    /// History's triggers by the number in their names.
    let byNumber: [Int64: [HistoryTables.Trigger]]
    private var numbers: [[UInt8]: Int64] = [:]
    /// The place in the schema of the first of history's triggers with a number.
    private var first: [Int64: Int64] = [:]
    /// The place in the schema of the last of a table's other triggers.
    private var lastOther: [[UInt8]: Int64] = [:]

    init(_ database: SQLiteConnection) throws {
        byNumber = try Dictionary(grouping: HistoryTables.triggers(database)) {
            HistorySchema.tableNumber(ofTrigger: $0.name) ?? 0
        }
        for (number, triggers) in byNumber {
            for trigger in triggers {
                let table = Self.folded(trigger.table)
                numbers[table] = max(number, numbers[table] ?? .min)
            }
        }
        let places = try database.prepare(
            "SELECT rowid, name, tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid")
        while try places.step() {
            let place = places.integer(0)
            if let number = HistorySchema.tableNumber(ofTrigger: places.decodedText(1) ?? "") {
                first[number] = first[number] ?? place
            } else {
                lastOther[Self.folded(places.decodedText(2) ?? "")] = place
            }
        }
    }

    /// Returns the number in the names of the table's triggers; nil if it has none of history's.
    func number(of table: String) -> Int64? { numbers[Self.folded(table)] }

    /// Returns whether the app has created a trigger on the table after groupstore's. SQLite runs the newest first, so
    /// whatever that trigger writes would be recorded before the change that fired it.
    func isOvertaken(_ number: Int64, _ table: String) -> Bool {
        guard let first = first[number], let last = lastOther[Self.folded(table)] else { return false }
        return last > first
    }

    /// Two names may be equal to Swift, by canonical equivalence, and not to SQLite.
    private static func folded(_ name: String) -> [UInt8] { Array(name.lowercased().utf8) }
}
