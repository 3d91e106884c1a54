import SQLiteStore
import Testing

@Suite struct StoredTableTests {
    /// A record of the integers 1, 2 and 3.
    private static let record: [UInt8] = [4, 1, 1, 1, 1, 2, 3]

    private func values(_ sql: String) throws -> [StoredValue]? {
        try StoredTable(name: "t", creation: sql, encoding: .utf8).values(rowid: 7, Self.record)
    }

    @Test func showsTheRowidInItsAlias() throws {
        #expect(try values("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c)") == [.integer(7), .integer(2), .integer(3)])
        #expect(
            try values("CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b, c)") == [.integer(1), .integer(2), .integer(3)])
    }

    @Test func showsWholeNumbersInRealColumnsAsReal() throws {
        #expect(try values("CREATE TABLE t (a REAL, b, c DOUBLE)") == [.real(1), .integer(2), .real(3)])
        #expect(try values("CREATE TABLE t (a FLOATING POINT, b REAL)") == [.integer(1), .real(2)])
    }

    @Test func fillsInColumnsThatWereAddedLater() throws {
        #expect(
            try values("CREATE TABLE t (a, b, c, d TEXT DEFAULT 5, e)")?.suffix(2) == [.text("5"), .null])
        #expect(try values("CREATE TABLE t (a INT, b INT, c INT, d ANY DEFAULT '7') STRICT")?.last == .text("7"))
        #expect(try values("CREATE TABLE t (a, b, c, d NUMERIC DEFAULT '7')")?.last == .integer(7))
    }

    /// Not the value of a new row: SQLite gives the literal itself the column's affinity.
    @Test(arguments: [
        ("TEXT DEFAULT \"active\"", StoredValue.text("active")), ("DEFAULT active", .text("active")),
        ("TEXT DEFAULT \"active\"", StoredValue.text("active")), ("DEFAULT active", .text("active")),
        ("REAL DEFAULT 5", .real(5)), ("DEFAULT (- - 5)", .integer(5)), ("DEFAULT (('x'))", .text("x")),
    ]) func readsTheDefaultAsSQLiteDoesInAnOlderRow(column: String, expected: StoredValue) throws {
        #expect(try values("CREATE TABLE t (a, b, c, d \(column))")?.last == expected)
    }

    @Test(arguments: [("INT DEFAULT 1.5", StoredValue.real(1.5)), ("BLOB DEFAULT 'x'", .text("x"))])
    func readsADefaultOfAnotherTypeInAStrictTable(column: String, expected: StoredValue) throws {
        #expect(try values("CREATE TABLE t (a INT, b INT, c INT, d \(column)) STRICT")?.last == expected)
    }

    @Test func leavesOutGeneratedColumns() throws {
        #expect(
            try values("CREATE TABLE t (a, v AS (a + 1), b, s AS (a * 2) STORED)") == [.integer(1), .integer(2)])
    }

    @Test func readsTheKeyOfATableWithoutRowidsFirst() throws {
        let table = try StoredTable(
            name: "t", creation: "CREATE TABLE t (a, b, c, PRIMARY KEY (c, b)) WITHOUT ROWID", encoding: .utf8)
        let values = try #require(table.values(rowid: 0, Self.record))
        #expect(values == [.integer(3), .integer(2), .integer(1)])
        #expect(table.key(rowid: 0, values) == [.integer(1), .integer(2)])
    }
}
