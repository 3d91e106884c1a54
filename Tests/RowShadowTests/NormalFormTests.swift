import SQLiteStore
import Testing

@testable import RowShadow

/// SQLite keeps names and values apart that differ only in Unicode's normal form, and Swift's `==` doesn't.
@Suite struct NormalFormTests {
    private static let (one, two) = ("\u{E9}", "e\u{301}")

    private static func hex(_ text: String) -> String { text.utf8.map { String($0, radix: 16) }.joined() }

    private static func hex(_ values: [StoredValue]?) -> String {
        values.map { $0.map { if case .text(let text) = $0 { hex(text) } else { $0.text } }.joined(separator: ",") }
            ?? "none"
    }

    /// Returns the rows of the steps after one, with the bytes of names and texts.
    private func rows(_ shadow: FollowedShadow, after first: UInt64) throws -> [String] {
        let follower = try #require(shadow.follower)
        while try follower.advance(comparesAll: false) != .current {}
        var (found, step) = ([String](), first)
        while let reader = try follower.shadow.step(after: step) {
            step = reader.step.number
            var (name, before, after) = ("", StoredTable?.none, StoredTable?.none)
            try reader.forEach { table in
                name = Self.hex(table.name)
                before = try table.before.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
                after = try table.after.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
                if table.before != table.after { found.append("\(name) altered") }
            } row: { row in
                let former = row.before.flatMap { before?.values(rowid: row.rowid, $0) }
                let latter = row.after.flatMap { after?.values(rowid: row.rowid, $0) }
                found.append("\(name): \(Self.hex(former)) > \(Self.hex(latter))")
            }
        }
        return found
    }

    @Test func tellsTablesAndKeysApart() throws {
        let (one, two) = (Self.one, Self.two)
        let columns = "(k TEXT PRIMARY KEY, v) WITHOUT ROWID"
        let shadow = try FollowedShadow("CREATE TABLE \(one) \(columns); CREATE TABLE \(two) \(columns)")
        // A change of the schema pairs all tables anew.
        let steps = [
            ("INSERT INTO \(two) VALUES ('\(one)', 1)", ["65cc81: none > c3a9,1"]),
            ("INSERT INTO \(two) VALUES ('\(two)', 2)", ["65cc81: none > 65cc81,2"]),
            ("CREATE TABLE a (a)", ["61 altered"]),
            ("INSERT INTO \(one) VALUES ('\(two)', 3)", ["c3a9: none > 65cc81,3"]),
            ("ALTER TABLE a RENAME TO b", ["62 altered"]),
            ("DELETE FROM \(two) WHERE k = '\(one)'", ["65cc81: c3a9,1 > none"]),
            ("UPDATE \(one) SET k = '\(one)'", ["c3a9: 65cc81,3 > none", "c3a9: none > c3a9,3"]),
        ]
        for (sql, expected) in steps {
            let last = try #require(shadow.follower?.shadow.lastStep)
            try shadow.write(sql)
            #expect(try rows(shadow, after: last) == expected, "\(sql)")
        }
    }

    @Test func tellsARenamingFromOneFormToTheOther() throws {
        let shadow = try FollowedShadow("CREATE TABLE \(Self.one) (\(Self.one), b)")
        let start = try #require(shadow.follower?.shadow.lastStep)
        try shadow.write("ALTER TABLE \(Self.one) RENAME COLUMN \(Self.one) TO \(Self.two)")
        #expect(try rows(shadow, after: start) == ["c3a9 altered"])
    }

    @Test func findsTheKeyAmongColumnsOfOneText() throws {
        for (type, value) in [("INTEGER", StoredValue.integer(7)), ("TEXT", .text("7"))] {
            let options = type == "TEXT" ? "WITHOUT ROWID" : ""
            let table = try StoredTable(
                name: "t", creation: "CREATE TABLE t (\(Self.one), \(Self.two) \(type) PRIMARY KEY) \(options)",
                encoding: .utf8)
            #expect(table.key(rowid: 7, [.text("other"), value]) == [value])
        }
    }

    @Test func comparesValuesByTheirBytes() {
        #expect(Set([StoredValue.text(Self.one), .text(Self.two), .text(Self.one)]).count == 2)
        #expect(SQLiteValue.text(Self.one) != .text(Self.two) && SQLiteValue.text(Self.one) == .text(Self.one))
    }
}
