import RowChanges
import TestSupport
import Testing

@Suite struct PageDifferenceTests {
    @Test func tellsInsertedUpdatedAndDeletedRows() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE note (text, size)")
        #expect(
            try store.run("INSERT INTO note VALUES ('a', 1), ('b', 2.5)") == [
                "note": ["1": .init(before: nil, after: ["a", "1"]), "2": .init(before: nil, after: ["b", "2.5"])]
            ])
        #expect(
            try store.run(
                "BEGIN; UPDATE note SET size = NULL WHERE rowid = 1; DELETE FROM note WHERE rowid = 2; COMMIT") == [
                    "note": [
                        "1": .init(before: ["a", "1"], after: ["a", "NULL"]),
                        "2": .init(before: ["b", "2.5"], after: nil),
                    ]
                ])
    }

    /// A row that a transaction changes back isn't one that differs, nor is one that only moves to another page.
    @Test func leavesOutRowsThatAreTheSame() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE note (text)")
        try store.run(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO note SELECT 'note ' || i FROM n"
        )
        #expect(
            try store.run(
                "BEGIN; DELETE FROM note WHERE rowid = 7; INSERT INTO note (rowid, text) VALUES (7, 'note 7'); COMMIT")[
                    "note"] ?? [:] == [:])
        let changes = try store.run("DELETE FROM note WHERE rowid BETWEEN 500 AND 1500")
        #expect(changes["note"]?.count == 1001)
        #expect(changes["note"]?.values.allSatisfy { $0.after == nil } == true)
    }

    /// SQLite overwrites a row of the same size in place, and writes only the pages that differ.
    @Test func findsAWriteInAnOverflowPage() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE file (data)")
        try store.run("INSERT INTO file VALUES (zeroblob(100)), (zeroblob(20000)), (zeroblob(100))")
        var written: [UInt32] = []
        let changes = try store.run("UPDATE file SET data = CAST(zeroblob(19999) || x'01' AS BLOB) WHERE rowid = 2") {
            written = $0
            return $0
        }
        #expect(changes["file"]?.keys.sorted() == ["2"])
        #expect(written.count == 2)
    }

    @Test func pairsRowsOfTablesThatAreRenamedOrRemade() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE a (x); CREATE TABLE b (x); INSERT INTO a VALUES (1), (2); INSERT INTO b VALUES (3)")
        #expect(try store.run("ALTER TABLE a RENAME TO c") == ["c": [:]])
        #expect(
            try store.run(
                "BEGIN; ALTER TABLE b RENAME TO t; ALTER TABLE c RENAME TO b; ALTER TABLE t RENAME TO c; COMMIT") == [
                    "b": ["1": .init(before: ["3"], after: ["1"]), "2": .init(before: nil, after: ["2"])],
                    "c": ["1": .init(before: ["1"], after: ["3"]), "2": .init(before: ["2"], after: nil)],
                ])
        #expect(
            try store.run("BEGIN; DROP TABLE c; CREATE TABLE c (x, y); INSERT INTO c VALUES (3, 4); COMMIT") == [
                "c": ["1": .init(before: ["3"], after: ["3", "4"])]
            ])
        #expect(
            try store.run("DROP TABLE b") == [
                "b": ["1": .init(before: ["1"], after: nil), "2": .init(before: ["2"], after: nil)]
            ])
    }

    /// Whoever applies the tables in their order must not drop the new one.
    @Test func tellsATableThatIsGoneBeforeAnotherOfItsName() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE a (x); CREATE TABLE b (k PRIMARY KEY) WITHOUT ROWID; INSERT INTO b VALUES ('k')")
        #expect(
            try store.run("BEGIN; DROP TABLE b; ALTER TABLE a RENAME TO b; INSERT INTO b VALUES (3); COMMIT") == [
                "b": ["1": .init(before: nil, after: ["3"])]
            ])
        #expect(
            try store.run("BEGIN; DROP TABLE b; CREATE TABLE b (k PRIMARY KEY) WITHOUT ROWID; COMMIT") == ["b": [:]])
    }

    @Test func tellsASchemaChangeWithoutRows() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE note (text); INSERT INTO note VALUES ('a')")
        #expect(try store.run("ALTER TABLE note ADD COLUMN size DEFAULT 7") == ["note": [:]])
        #expect(try store.run("CREATE INDEX byText ON note (text)") == [:])
        #expect(try store.run("CREATE VIEW v AS SELECT * FROM note") == [:])
    }

    @Test func tellsRecordsOfTablesWithoutRowids() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE word (text PRIMARY KEY, count) WITHOUT ROWID")
        try store.run(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO word SELECT 'word ' || i, i FROM n"
        )
        #expect(
            try store.run("UPDATE word SET count = -1 WHERE text = 'word 250'") == [
                "word": [
                    "-word 250,250": .init(before: ["word 250", "250"], after: nil),
                    "+word 250,-1": .init(before: nil, after: ["word 250", "-1"]),
                ]
            ])
        #expect(try store.run("DELETE FROM word WHERE count > 100")["word"]?.count == 399)
    }

    @Test(arguments: ["", "PRAGMA auto_vacuum = 1"])
    func findsNothingAfterVacuum(_ pragmas: String) throws {
        let store = try Lockstep(pragmas: pragmas)
        try store.run("CREATE TABLE gone (x); CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        try store.run(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO note SELECT i, 'note ' || i FROM n"
        )
        try store.run("DROP TABLE gone; DELETE FROM note WHERE id % 3 = 0")
        #expect(try store.run("VACUUM").values.allSatisfy(\.isEmpty))
    }

    @Test func readsEmptyDatabasesAndThoseThatBecomeEmpty() throws {
        let store = try Lockstep()
        #expect(try store.run("") == [:])
        try store.run("CREATE TABLE note (text); INSERT INTO note VALUES ('a')")
        var map = try TreeMap(store.state)
        let difference = try map.advance(from: store.state, to: MemoryState([]), changed: [])
        #expect(difference.tables.map { $0.before?.name } == ["sqlite_schema", "note"])
        #expect(difference.tables.allSatisfy { $0.after == nil && $0.rowCount == 1 })
    }

    /// The pages that may differ can be more than those that do.
    @Test func ignoresNamedPagesThatAreTheSame() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE note (text); CREATE TABLE other (text)")
        let changes = try store.run("INSERT INTO note VALUES ('a')") { _ in Array(0...100) }
        #expect(changes == ["note": ["1": .init(before: nil, after: ["a"])]])
    }

    // MARK: - Contradictions

    @Test func refusesAPageThatTwoTreesHave() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE a (x); CREATE TABLE b (x)")
        try store.run(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO a SELECT i FROM n; INSERT INTO b SELECT x FROM a"
        )
        let broken = MemoryState(store.state.pages)
        // The last child of b's root becomes that of a's.
        let roots = broken.pages.indices.filter { broken.pages[$0][0] == 5 }
        #expect(roots.count == 2)
        broken.pages[roots[1]].replaceSubrange(8..<12, with: broken.pages[roots[0]][8..<12])
        var map = try TreeMap(store.state)
        #expect(throws: Contradiction.self) {
            try map.advance(from: store.state, to: broken, changed: [UInt32(roots[1] + 1)])
        }
        #expect(throws: Contradiction.self) { try TreeMap(broken) }
    }

    @Test func refusesPagesThatAreNone() throws {
        let store = try Lockstep()
        try store.run("CREATE TABLE a (x)")
        try store.run("INSERT INTO a VALUES (1)")
        for content in [[UInt8](repeating: 0, count: 512), [UInt8](repeating: 0xFF, count: 512)] {
            let broken = MemoryState(store.state.pages)
            broken.pages[1] = content
            var map = try TreeMap(store.state)
            #expect(throws: Contradiction.malformed(page: 2)) {
                try map.advance(from: store.state, to: broken, changed: [2])
            }
        }
        let larger = MemoryState(store.state.pages.map { $0 + [UInt8](repeating: 0, count: 512) })
        larger.pages[0].replaceSubrange(16..<18, with: [4, 0])
        var map = try TreeMap(store.state)
        #expect(throws: Contradiction.formatChanged) { try map.advance(from: store.state, to: larger, changed: [1]) }
    }

    // MARK: - Random transactions

    @Test(arguments: [512, 1024, 4096], ["", "PRAGMA auto_vacuum = 1", "PRAGMA auto_vacuum = 2"])
    func agreesWithSQLAfterEachTransaction(_ pageSize: Int, _ pragmas: String) throws {
        let store = try Lockstep(pageSize: pageSize, pragmas: pragmas)
        var random = SeededGenerator(seed: UInt64(pageSize))
        #expect(try store.check("CREATE TABLE a (x, y TEXT); CREATE TABLE b (x); CREATE TABLE c (x UNIQUE, y)") == [])
        for _ in 0..<(Tier.isSoak ? 400 : 25) {
            var script = "BEGIN;"
            for _ in 0..<Int.random(in: 1...4, using: &random) { script += Self.statement(&random) + ";" }
            #expect(try store.check(script + "COMMIT") == [])
        }
    }

    private static func statement(_ random: inout SeededGenerator) -> String {
        let table = ["a", "b", "c"].randomElement(using: &random) ?? "a"
        let count = [1, 1, 3, 60].randomElement(using: &random) ?? 1
        let row = Int.random(in: 1...300, using: &random)
        let length = [0, 10, 100, 700, 9000].randomElement(using: &random) ?? 0
        let tag = Int.random(in: 0..<1_000_000, using: &random)
        let rows = "WITH n(i) AS (SELECT \(tag) UNION ALL SELECT i + 1 FROM n WHERE i < \(tag + count - 1))"
        switch Int.random(in: 0..<11, using: &random) {
        case 0...3: return "\(rows) INSERT OR REPLACE INTO \(table) (x) SELECT hex(zeroblob(\(length))) || i FROM n"
        case 4: return "\(rows) INSERT OR IGNORE INTO \(table) (rowid, x) SELECT \(row) + i - \(tag), i FROM n"
        case 5, 6:
            return
                "UPDATE OR REPLACE \(table) SET x = 'u' || \(tag) || rowid WHERE rowid BETWEEN \(row) AND \(row + count)"
        case 7: return "DELETE FROM \(table) WHERE rowid BETWEEN \(row) AND \(row + 5 * count)"
        case 8: return "DELETE FROM \(table) WHERE x LIKE '%\(tag % 10)'"
        case 9: return "UPDATE OR IGNORE \(table) SET rowid = rowid + 1000 WHERE rowid = \(row)"
        default: return tag % 5 == 0 ? "DELETE FROM \(table)" : "CREATE INDEX IF NOT EXISTS i\(tag % 7) ON \(table) (x)"
        }
    }
}
