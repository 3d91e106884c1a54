import PersistentHistory
import SQLiteStore
import TestSupport
import Testing

@testable import StoreReplication

struct BatchTests {
    @Test(arguments: [1 << 20, 100, 1]) func bringsAReplicaUpToTheHome(partSize: Int) throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT, body BLOB);
            CREATE TABLE plain (a, b); CREATE TABLE keyed (k TEXT, n REAL, v, PRIMARY KEY (k, n)) WITHOUT ROWID;
            INSERT INTO note (title) VALUES ('before'); INSERT INTO plain VALUES (1, 2);
            """)
        let replica = try pair.replica()
        #expect(try pair.isEqual())
        try pair.write(
            """
            INSERT INTO note (title, body) VALUES ('a"\\b' || char(10, 127, 1, 233, 128512), x'00ff'), ('', x''), (NULL, 9e999);
            UPDATE note SET title = 'after' WHERE id = 1; DELETE FROM note WHERE id = 3;
            INSERT INTO plain VALUES (9223372036854775807, -9007199254740993), (0.1, -0.0), (1e300, 5e-324);
            INSERT INTO keyed VALUES ('x', 1.0 / 3, 1), ('X', 0.1, 2); UPDATE keyed SET k = 'y' WHERE k = 'X';
            PRAGMA user_version = -7; PRAGMA application_id = 99;
            """)
        #expect(try pair.update(replica, size: partSize) == .applied(replica.position))
        #expect(try pair.isEqual())
        #expect(try pair.parts(after: replica.position).count == 1)
    }

    @Test func sendsWhatNoChangeSays() throws {
        let pair = try ReplicatedPair("CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        let replica = try pair.replica()
        let source = try ReplicationSource(pair.home)
        func update() throws -> HistoryToken? {
            try source.batch(after: replica.position) { _ = try replica.apply($0) }
        }
        _ = try update()
        #expect(try update() == nil)
        try pair.write("PRAGMA user_version = 5")
        #expect(try update() == replica.position)
        try pair.write("INSERT INTO sqlite_sequence VALUES ('note', 77)")
        #expect(try update() == replica.position)
        #expect(try update() == nil)
        #expect(try pair.isEqual())
    }

    /// No history shows that somebody wrote them to a replica.
    @Test func setsWhatNoChangeSaysToTheHomesValues() throws {
        let pair = try ReplicatedPair(
            "CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO note (a) VALUES (1)")
        let replica = try pair.replica()
        let byHand = "PRAGMA user_version = 9; PRAGMA application_id = 7; UPDATE sqlite_sequence SET seq = 50"
        try ReplicatedPair.write(byHand, pair.copy)
        try replica.check()
        #expect(try !pair.isEqual())
        try pair.write("INSERT INTO note (a) VALUES (2)")
        try pair.update(replica)
        #expect(try pair.isEqual())
    }

    @Test(arguments: ["UTF-8", "UTF-16le", "UTF-16be"]) func keepsMalformedText(_ encoding: String) throws {
        let pair = try ReplicatedPair(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b); CREATE TABLE s (a TEXT, b ANY) STRICT",
            encoding: encoding)
        let replica = try pair.replica()
        try pair.write(
            """
            INSERT INTO t (a, b) VALUES (CAST(x'ff41' AS TEXT), CAST(x'00d8' AS TEXT)), (char(65534), char(65535) || 'x'),
            (char(65279) || 'bom', CAST(x'fffe4100' AS TEXT)), ('a' || char(0) || 'b', CAST(x'41' AS TEXT));
            INSERT INTO s VALUES (CAST(x'ff41ffff' AS TEXT), CAST(x'80' AS TEXT));
            """)
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    /// SQLite reads a BLOB that is bound as text in UTF-8, and one of a table in the store's encoding.
    @Test(arguments: ["UTF-8", "UTF-16le", "UTF-16be"]) func keepsWhatFollowsFromABlob(_ encoding: String) throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE t (id INTEGER PRIMARY KEY, b, g AS (lower(b))); CREATE INDEX byG ON t (g);
            CREATE INDEX byText ON t (CAST(b AS TEXT), upper(b)); CREATE INDEX some ON t (id) WHERE b LIKE 'ab%';
            CREATE VIRTUAL TABLE search USING fts5 (b);
            """, encoding: encoding)
        let replica = try pair.replica()
        let blobs = ["x'4100420043004400'", "x'0041004200430044'", "x'41424344'", "x'00d84100'", "x'ff'", "x''"]
        for blob in blobs {
            try pair.write("INSERT INTO t (b) VALUES (\(blob)); INSERT INTO search VALUES (\(blob))")
            #expect(try pair.update(replica) == .applied(replica.position))
        }
        try pair.write("UPDATE t SET b = b || 'x' WHERE id < 3; UPDATE t SET b = x'41' WHERE id > 3")
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
        let reader = try StoreWriter(pair.copy.path)
        #expect(try reader.text("PRAGMA integrity_check") == "ok")
        for query in ["FROM t INDEXED BY byG WHERE g = 'abcdx'", "FROM search WHERE search MATCH 'abcd'"] {
            let count = try StoreWriter(pair.home.path).integer("SELECT count(*) \(query)")
            #expect(try reader.integer("SELECT count(*) \(query)") == count)
        }
    }

    /// What a STORED column or a unique index has of a BLOB depends on how the app has written it.
    @Test(arguments: [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b, g AS (lower(b)) STORED)",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b, g AS (lower(b)) STORED, UNIQUE (id, b)) WITHOUT ROWID",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b); CREATE UNIQUE INDEX u ON t (lower(b))",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b, g AS (lower(b)) UNIQUE)",
    ])
    func sendsNoRowThatCannotBeWrittenAgain(_ table: String) throws {
        let pair = try ReplicatedPair(table, encoding: "UTF-16le")
        let replica = try pair.replica()
        try pair.write("INSERT INTO t (id, b) VALUES (1, 'text'), (2, 7)")
        #expect(try pair.update(replica) == .applied(replica.position))
        try pair.write("INSERT INTO t (id, b) VALUES (3, x'61006200')")
        #expect(throws: StoreHistory.Discontinuity.gap) { try pair.update(replica) }
        let oldest = try ReplicationSource(pair.home).oldest()
        #expect(oldest.number == replica.position.number + 1)
        try replica.replace(with: pair.snapshot())
        try pair.write("DELETE FROM t WHERE id = 3; INSERT INTO t (id, b) VALUES (4, 'last')")
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    /// SQLite joins half a surrogate pair with the unit that follows it, and the history has another character then.
    @Test(
        arguments: ["UTF-16le", "UTF-16be"],
        ["00d84100", "d8000041", "00dc4100", "dc000041", "4100d800d8", "0041d8"])
    func takesNoKeyForAnother(_ encoding: String, _ digits: String) throws {
        let pair = try ReplicatedPair(
            "CREATE TABLE k (t TEXT PRIMARY KEY, v) WITHOUT ROWID; CREATE TABLE r (t TEXT UNIQUE, v)",
            encoding: encoding)
        let replica = try pair.replica()
        let text = "CAST(x'\(digits)' AS TEXT)"
        for sql in ["INSERT INTO # VALUES (\(text), 1)", "UPDATE # SET v = 2", "DELETE FROM #"] {
            try pair.write(sql.replacing("#", with: "r"))
            #expect(try pair.update(replica) == .applied(replica.position))
            try pair.write(sql.replacing("#", with: "k"))
            // Malformed text of the other order is a character of this one.
            do {
                try pair.update(replica)
            } catch StoreHistory.Discontinuity.gap {
                try replica.replace(with: pair.snapshot())
            }
            #expect(try pair.isEqual(), "\(sql)")
        }
    }

    @Test func movesUniqueValuesBetweenRows() throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE u (id INTEGER PRIMARY KEY, a UNIQUE, b COLLATE NOCASE, UNIQUE (b));
            INSERT INTO u VALUES (1, 'x', 'p'), (2, 'y', 'q'), (3, 'z', 'r');
            CREATE TABLE k (k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID; INSERT INTO k VALUES ('a', 1), ('B', 2);
            """)
        let replica = try pair.replica()
        try pair.write(
            """
            BEGIN; UPDATE u SET a = 'tmp' WHERE id = 1; UPDATE u SET a = 'x' WHERE id = 2; UPDATE u SET a = 'y' WHERE id = 1;
            UPDATE u SET b = NULL WHERE id = 1; UPDATE u SET b = 'P' WHERE id = 3; COMMIT;
            UPDATE k SET k = 'A' WHERE k = 'a'; REPLACE INTO u VALUES (9, 'z', 'new');
            """)
        _ = try? pair.write("UPDATE k SET k = 'b' WHERE k = 'B'")
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    @Test func ignoresTriggersForeignKeysAndChecks() throws {
        let pair = try ReplicatedPair(
            """
            CREATE TABLE parent (id INTEGER PRIMARY KEY, n CHECK (n < 10));
            CREATE TABLE child (id INTEGER PRIMARY KEY, p REFERENCES parent ON DELETE CASCADE);
            CREATE TABLE log (id INTEGER PRIMARY KEY, t, g AS (t || '!') UNIQUE);
            CREATE TRIGGER noted AFTER INSERT ON child BEGIN INSERT INTO log (t) VALUES ('child ' || new.id); END;
            INSERT INTO parent VALUES (1, 1), (2, 2); INSERT INTO child VALUES (1, 1), (2, 2), (3, 2);
            """)
        let replica = try pair.replica()
        try pair.write(
            """
            DELETE FROM parent WHERE id = 2; INSERT INTO child VALUES (4, 1);
            PRAGMA ignore_check_constraints = ON; INSERT INTO parent VALUES (3, 99)
            """)
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    @Test func appliesABatchThatOverlaps() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        let start = replica.position
        try pair.write("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        let first = try pair.parts(after: start)
        try pair.update(replica)
        try pair.write("DELETE FROM t WHERE id = 1; UPDATE t SET a = 'c'")
        let both = try pair.parts(after: start)
        #expect(try replica.apply(first[0]) == .skipped)
        #expect(try replica.apply(both[0]) == .applied(replica.position))
        #expect(try pair.isEqual())
        #expect(try replica.apply(both[0]) == .skipped)
        // It says the same in another way.
        let again = try pair.parts(after: start, size: 100)
        for part in again { #expect(try replica.apply(part) == (part.isLast ? .skipped : .partial)) }
        #expect(try pair.isEqual())
    }

    @Test func takesWhatASnapshotOfTheSameChangeLacks() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let start = try ReplicationSource(pair.home).current()
        try pair.write("INSERT INTO t VALUES (1, 'a')")
        let replica = try pair.replica()
        try pair.write("PRAGMA user_version = 6")
        #expect(try replica.apply(pair.parts(after: start)[0]) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    @Test func saysThatASnapshotIsNeeded() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        try pair.write("INSERT INTO t VALUES (1, 'a')")
        let middle = try ReplicationSource(pair.home).current()
        try pair.write("INSERT INTO t VALUES (2, 'b')")
        #expect(try replica.apply(pair.parts(after: middle)[0]) == .gap)
        try pair.write("CREATE TABLE other (id INTEGER PRIMARY KEY)")
        _ = try HistoryInstallation(pair.home).enable()
        #expect(try replica.apply(pair.parts(after: replica.position)[0]) == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
        try pair.write("INSERT INTO other VALUES (7)")
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    @Test func purgesAsTheHomeDoes() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        try pair.write("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        try pair.update(replica)
        var purge = HistoryMaintenance.Purge()
        purge.count = 1
        _ = try HistoryMaintenance(pair.home).purge(purge)
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
        #expect(throws: StoreHistory.Discontinuity.trimmed) {
            try ReplicationSource(pair.home).check(HistoryToken(history: replica.position.history, number: 1, nonce: 0))
        }
    }
}
