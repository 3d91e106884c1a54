import SQLiteStore
import Testing

@testable import PersistentHistory

/// SQLite compares names byte by byte, but for the case of ASCII letters. Swift takes some of them as equal.
struct NormalFormHistoryTests {
    private static func text(_ change: HistoryChange) -> String {
        let columns = (change.columns ?? []).map { "\(Array($0.utf8))" }.joined()
        let isFirst = change.key == [.integer(1)]
        return "\(change.operation) \(isFirst ? 1 : 2) \(columns)"
    }

    @Test func recordsRowsThatAColumnOfTheSameTextReplaces() throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let store = try Fixture("CREATE TABLE note (id INTEGER PRIMARY KEY, \(one) UNIQUE, \(two) UNIQUE)")
        _ = try store.enable()
        try store.write("INSERT INTO note VALUES (1, 'a', 'b'), (2, 'c', 'd')")
        let token = try store.current()
        try store.write("UPDATE OR REPLACE note SET \(two) = 'b' WHERE id = 2")
        let found = Set(try store.changes(after: token).map(Self.text))
        #expect(found == ["delete 1 ", "update 2 \(Array(two.utf8))"])
    }

    /// The letter has another case in Unicode, not in SQLite.
    @Test func recordsRowsThatADefaultReplaces() throws {
        let store = try Fixture(
            """
            CREATE TABLE note (id INTEGER PRIMARY KEY, \u{C9} NOT NULL DEFAULT 'x' UNIQUE,
            \u{E9} NOT NULL DEFAULT 'y' UNIQUE)
            """)
        _ = try store.enable()
        try store.write("INSERT INTO note VALUES (1, '1', 'y')")
        let token = try store.current()
        try store.write("INSERT OR REPLACE INTO note VALUES (2, '2', NULL)")
        let found = try store.changes(after: token)
        #expect(Set(found.map { "\($0.operation)" }) == ["delete", "insert"])
    }

    @Test func tellsTheRowsOfTablesOfTheSameTextApart() throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let store = try Fixture("CREATE TABLE \(one) (k TEXT PRIMARY KEY) WITHOUT ROWID; CREATE TABLE \(two) (a)")
        _ = try store.enable()
        try store.write("INSERT INTO \(two) VALUES (1); INSERT INTO \(one) VALUES ('\(two)'), ('\(one)')")
        let all = try store.changes()
        #expect(all.map { Array($0.table.utf8) } == [two, one, one].map { Array($0.utf8) })
        #expect(all.dropFirst().map(\.key) == [[.text(two)], [.text(one)]])
        var filter = HistoryFilter()
        filter.tables = [DatabaseSchema.key(of: one)]
        #expect(try store.changes(filter: filter).count == 2)
    }
}
