import GRDB
import SQLiteStore
import TestSupport
import Testing

@testable import RowShadow

/// A step that changes a table's columns, and a receiver that has only the definitions and the rows that it lists.
@Suite(.ownThreads) struct AlteredTableTests {
    /// The rows of a table, by their rowids or keys, as a receiver derives them.
    private struct Receiver {
        var rows: [String: [StoredValue]] = [:]

        /// Gives each row the columns of a table's new definition (Documentation/WireProtocol.md): a column keeps its
        /// values under its name; one of a new name has those of the column at its place, or its default.
        mutating func redefine(_ before: StoredTable, _ after: StoredTable) throws {
            let defaults = try #require(after.values(rowid: 0, [1]))
            for (key, row) in rows {
                rows[key] = after.columns.enumerated().map { place, name in
                    if let former = before.columns.firstIndex(of: name) { return row[former] }
                    return place < row.count ? row[place] : defaults[place]
                }
            }
        }

        mutating func apply(_ row: LoggedRow, _ before: StoredTable?, _ after: StoredTable?) throws {
            func entry(_ table: StoredTable?, _ record: [UInt8]?) throws -> (key: String, values: [StoredValue])? {
                guard let table, let record else { return nil }
                let values = try #require(table.values(rowid: row.rowid, record))
                return (table.key(rowid: row.rowid, values).map(\.text).joined(separator: ","), values)
            }
            if let former = try entry(before, row.before) { rows[former.key] = nil }
            if let latter = try entry(after, row.after) { rows[latter.key] = latter.values }
        }
    }

    /// Returns the receiver's rows after all steps, and how many rows the last one listed.
    private func receive(_ follower: RowFollower, _ receiver: inout Receiver, after told: UInt64) throws -> Int {
        var (told, count) = (told, 0)
        #expect(try follower.advance(comparesAll: true) == .current)
        while let reader = try follower.shadow.step(after: told) {
            told = reader.step.number
            count = 0
            #expect(reader.step.kind != .gap)
            var (before, after): (StoredTable?, StoredTable?)
            try reader.forEach { table in
                before = try table.before.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
                after = try table.after.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
                if let before, let after { try receiver.redefine(before, after) }
            } row: { row in
                count += 1
                try receiver.apply(row, before, after)
            }
        }
        return count
    }

    private static let short = "ALTER TABLE w ADD COLUMN b DEFAULT 'old'"

    @Test(arguments: [
        // A name goes to a new column, or to another one.
        ("", "ALTER TABLE w RENAME COLUMN a TO c; ALTER TABLE w ADD COLUMN a DEFAULT 'new'"),
        (short, "ALTER TABLE w RENAME a TO x; ALTER TABLE w RENAME b TO a; ALTER TABLE w RENAME x TO b"),
        // Records that end before a column that was added stay as they are when it goes.
        (short, "ALTER TABLE w DROP COLUMN b; ALTER TABLE w ADD COLUMN b DEFAULT 'new'"),
        (short, "ALTER TABLE w DROP COLUMN b; ALTER TABLE w ADD COLUMN c DEFAULT 'new'"),
        (short, "ALTER TABLE w DROP COLUMN b; ALTER TABLE w RENAME a TO b"),
        (short, "ALTER TABLE w DROP COLUMN a; ALTER TABLE w ADD COLUMN c DEFAULT 'new'"),
        (short, "ALTER TABLE w DROP COLUMN a"),
        // The same records under other types.
        ("", "DROP TABLE w; CREATE TABLE w (k INTEGER PRIMARY KEY, a REAL); INSERT INTO w SELECT * FROM v"),
        ("", "DROP TABLE w; CREATE TABLE w (k INTEGER, a); INSERT INTO w (rowid, a) SELECT * FROM v"),
    ])
    func theRowsLeadToTheStore(setup: String, change: String) throws {
        for table in ["k INTEGER PRIMARY KEY, a", "k PRIMARY KEY, a) WITHOUT ROWID; CREATE TABLE unused (x"] {
            let shadow = try FollowedShadow(
                """
                CREATE TABLE v (k INTEGER PRIMARY KEY, a); CREATE TABLE w (\(table));
                WITH n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 400)
                INSERT INTO v SELECT i, iif(i % 100, i, hex(zeroblob(4000))) FROM n;
                INSERT INTO w (k, a) SELECT * FROM v; \(setup)
                """)
            let follower = try #require(shadow.follower)
            var receiver = Receiver()
            func stored() throws -> [String: [StoredValue]] {
                let row = try StoreWriter(shadow.store).prepare("SELECT * FROM w")
                var rows: [String: [StoredValue]] = [:]
                while try row.step() {
                    let values = (0..<row.columnCount).map { row.storedValue($0, encoding: .utf8) }
                    rows["\(rows.count + 1)"] = values
                }
                return rows
            }
            receiver.rows = try stored()
            let last = follower.shadow.lastStep
            try shadow.write("BEGIN; \(change); COMMIT")
            _ = try receive(follower, &receiver, after: last)
            let now = try stored()
            #expect(receiver.rows.count == now.count)
            for (key, values) in now {
                let known = receiver.rows[key] ?? []
                #expect(known.map(\.text) == values.map(\.text), "\(change): \(key)")
            }
        }
    }

    @Test(arguments: ["ALTER TABLE w RENAME COLUMN a TO c", "ALTER TABLE w ADD COLUMN c DEFAULT 7"])
    func listsNoRowWhoseValuesFollowFromTheColumns(change: String) throws {
        let shadow = try FollowedShadow("CREATE TABLE w (k INTEGER PRIMARY KEY, a); INSERT INTO w VALUES (1, 2)")
        let follower = try #require(shadow.follower)
        let last = follower.shadow.lastStep
        try shadow.write(change)
        var receiver = Receiver(rows: ["1": [.integer(1), .integer(2)]])
        #expect(try receive(follower, &receiver, after: last) == 0)
    }
}
