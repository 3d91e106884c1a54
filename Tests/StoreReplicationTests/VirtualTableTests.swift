import SQLiteStore
import TestSupport
import Testing

@testable import StoreReplication

struct VirtualTableTests {
    private func found(_ sql: String, _ pair: ReplicatedPair) throws -> [[String]] {
        try [pair.home, pair.copy].map { store in
            let row = try StoreWriter(store.path).prepare(sql)
            var found: [String] = []
            while try row.step() { found.append(row.text(0) ?? "NULL") }
            return found
        }
    }

    @Test(arguments: [
        "fts5(title, body, content='note', content_rowid='id')", "fts4(content=\"note\", title, body)",
        "fts5(title, body, content = [all notes], content_rowid = id)",
    ])
    func rebuildsAnIndexOfAnotherTable(_ module: String) throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT); CREATE VIEW "all notes" AS SELECT * FROM note;
            CREATE VIRTUAL TABLE search USING \(module);
            CREATE TRIGGER added AFTER INSERT ON note BEGIN
            INSERT INTO search (rowid, title, body) VALUES (new.id, new.title, new.body); END;
            INSERT INTO note VALUES (1, 'milk', 'and bread');
            """)
        let replica = try pair.replica()
        try pair.write("INSERT INTO note VALUES (2, 'tea', 'and milk'), (3, 'salt', '')")
        #expect(try pair.update(replica) == .applied(replica.position))
        for word in ["milk", "tea", "bread", "salt"] {
            let both = try found("SELECT rowid FROM search WHERE search MATCH '\(word)' ORDER BY rowid", pair)
            #expect(both[0] == both[1] && !both[0].isEmpty)
        }
    }

    @Test(arguments: ["fts3(a, b)", "fts4(a, b, tokenize=porter)", "fts5(a, b UNINDEXED)"])
    func carriesAFullTextTableWithItsContent(_ module: String) throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE f USING \(module);
            INSERT INTO f (a, b) VALUES ('one', 1)
            """)
        let replica = try pair.replica()
        let source = try ReplicationSource(pair.home)
        func update() throws -> Bool {
            try source.batch(after: replica.position) { _ = try replica.apply($0) } != nil
        }
        #expect(try update())
        #expect(try !update())
        try pair.write(
            """
            INSERT INTO f (rowid, a, b) VALUES (77, 'two one', NULL), (5, 'three', x'00');
            DELETE FROM f WHERE a MATCH 'one' AND rowid < 70
            """)
        #expect(try update())
        for sql in [
            "SELECT rowid || a || typeof(b) || quote(b) FROM f ORDER BY rowid",
            "SELECT rowid FROM f WHERE f MATCH 'two'",
        ] {
            let both = try found(sql, pair)
            #expect(both[0] == both[1] && !both[0].isEmpty)
        }
        #expect(try !update())
    }

    @Test func noticesThatABatchWithContentsWasLost() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE f USING fts5(a)")
        let replica = try pair.replica()
        let source = try ReplicationSource(pair.home)
        var parts: [BatchPart] = []
        for sql in ["INSERT INTO f VALUES ('one')", "INSERT INTO t VALUES (1)"] {
            try pair.write(sql)
            _ = try source.batch(after: replica.position) { parts.append($0) }
        }
        #expect(try replica.apply(parts[1]) == .gap)
        #expect(try replica.apply(parts[0]) == .applied(replica.position))
        #expect(try replica.apply(parts[1]) == .applied(replica.position))
    }

    @Test func carriesAnRTree() throws {
        let pair = try ReplicatedPair(
            "CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1, +label)")
        let replica = try pair.replica()
        try pair.write(
            """
            WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
            INSERT INTO r SELECT i, i / 3.0, i / 2.0, -i, i, 'l' || i FROM n; INSERT INTO t VALUES (1); DELETE FROM r WHERE id % 7 = 0
            """)
        #expect(try pair.update(replica, size: 5000) == .applied(replica.position))
        let both = try found(
            "SELECT id || ' ' || x0 || ' ' || x1 || ' ' || y0 || label FROM r WHERE x1 > 20 ORDER BY id", pair)
        #expect(both[0] == both[1] && both[0].count > 100)
    }
}
