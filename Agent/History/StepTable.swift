import AgentProtocol
import RowShadow
import SQLiteFormat
import SQLiteStore

/// A record that isn't what the table's definition allows.
package struct MalformedRecord: Error {}

extension LoggedTable {
    /// True if a filter admits the table under the name that it has, or that it had before the step.
    package func isAdmitted(by filter: TableFilter?) -> Bool {
        guard let filter else { return true }
        return [before, after].contains { $0.map { filter.admits($0.name) } ?? false }
    }
}

/// A row of a step, as values.
package struct StepRow {
    package let key: [StoredValue]
    /// Nil if there was no such row.
    package let before: [StoredValue]?
    /// Nil if the row is gone.
    package let after: [StoredValue]?
}

/// A table of a step, with what its rows need.
package final class StepTable {
    package let logged: LoggedTable
    package let before: StoredTable?
    package let after: StoredTable?
    package init(_ logged: LoggedTable, before: StoredTable?, after: StoredTable?) {
        self.logged = logged
        self.before = before
        self.after = after
    }

    /// The table as it is now, or as it was.
    package var present: StoredTable? { after ?? before }
    /// True if the columns are the same before and after.
    package var hasSameColumns: Bool {
        guard let before, let after, before !== after else { return true }
        return before.columns.hasSameBytes(as: after.columns)
    }

    /// The members of the line before the table's first row; nil for a table that was neither there before nor is now.
    /// If its definition has changed, they have what it was before.
    package var definition: JSONObject? { definition(saysChange: true) }

    func definition(saysChange: Bool) -> JSONObject? {
        guard let present else { return nil }
        var object: JSONObject = ["table": .string(logged.name)]
        if let rowid = present.table.rowid { object["rowid"] = .string(rowid) }
        object["key"] = .array(present.key.map { .string($0) })
        object["columns"] = .array(present.columns.map { .string($0) })
        guard saysChange else { return object }
        if logged.after == nil {
            object["schema"] = "dropped"
        } else if logged.before == nil {
            object["schema"] = "created"
        } else if let former = logged.before, former != logged.after {
            object["schema"] = "altered"
            object["before"] = .object([
                "table": .string(former.name), "columns": .array((before?.columns ?? []).map { .string($0) }),
            ])
        }
        return object
    }

    /// Returns a row's values. Throws `MalformedRecord`.
    package func values(of row: LoggedRow) throws -> StepRow {
        let former = try row.before.map { try Self.values(before, row.rowid, $0) }
        let latter = try row.after.map { try Self.values(after, row.rowid, $0) }
        let present = latter.flatMap { after?.key(rowid: row.rowid, $0) }
        let key = present ?? former.flatMap { before?.key(rowid: row.rowid, $0) }
        guard let key else { throw MalformedRecord() }
        return StepRow(key: key, before: former, after: latter)
    }

    private static func values(_ table: StoredTable?, _ rowid: Int64, _ record: [UInt8]) throws -> [StoredValue] {
        guard let values = table?.values(rowid: rowid, record) else { throw MalformedRecord() }
        return values
    }

    /// Returns which of the present columns have the value that the former row had under the same name. False for a
    /// column of a new name: only its `ALTER TABLE` tells the value that rows have in it, and this row was written.
    package func sameColumns(_ former: [StoredValue], _ latter: [StoredValue]) -> [Bool] {
        guard !hasSameColumns, let before, let after else {
            return zip(former, latter).map { $0.isIdentical(to: $1) }
        }
        return after.columns.enumerated().map { place, name in
            before.columns.firstIndex(ofExact: name).map { former[$0].isIdentical(to: latter[place]) } ?? false
        }
    }
}
