import ChangeFeed
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// The tables of a change, case by case. `Tests/Soak` tests them at random.
@Suite(.ownThreads) struct TableTests {
    private func rig(_ schema: String, _ pragmas: String = "") throws -> ObserverRig {
        let rig = try ObserverRig { store in
            try ObserverRig.once(store, "\(pragmas); PRAGMA journal_mode = WAL; \(schema)")
        }
        return rig
    }

    private func complete(_ names: Set<ExactName>) -> TableChanges { TableChanges(names, isComplete: true) }

    private func expect(
        _ rig: ObserverRig, _ shell: Shell, _ sql: String, _ names: Set<ExactName>,
        _ location: SourceLocation = #_sourceLocation
    ) throws {
        let found = try rig.tables { try shell.execute(sql) }
        #expect(found == complete(names), "\(sql)", sourceLocation: location)
    }

    @Test(arguments: [512, 1024, 4096, 65536]) func chargesEachTableForItsPages(_ pageSize: Int) throws {
        let schema = """
            CREATE TABLE a (id INTEGER PRIMARY KEY, text); CREATE TABLE b (k PRIMARY KEY, text) WITHOUT ROWID;
            CREATE TABLE c (id INTEGER PRIMARY KEY AUTOINCREMENT, text); CREATE INDEX c_text ON c (text);
            """
        for autoVacuum in 0...2 {
            let rig = try rig(schema, "PRAGMA page_size = \(pageSize); PRAGMA auto_vacuum = \(autoVacuum)")
            let shell = try rig.shell()
            try rig.findTables()
            try expect(rig, shell, "INSERT INTO a (text) VALUES ('x')", ["a"])
            try expect(rig, shell, "INSERT INTO b VALUES ('x', 'y')", ["b"])
            try expect(rig, shell, "INSERT INTO c (text) VALUES ('x')", ["c", "sqlite_sequence"])
            try expect(rig, shell, "REINDEX c_text", ["c"])
            try expect(rig, shell, "INSERT INTO a (text) SELECT hex(randomblob(3000)) FROM c", ["a"])
            try expect(
                rig, shell, "BEGIN; DELETE FROM a; INSERT INTO b VALUES (2, randomblob(90000)); COMMIT", ["a", "b"])
            try expect(rig, shell, "PRAGMA user_version = 5", [])
            try shell.close()
        }
    }

    @Test func followsGrowingAndShrinkingTrees() throws {
        let rig = try rig(
            "CREATE TABLE a (id INTEGER PRIMARY KEY, text); CREATE TABLE b (text)", "PRAGMA page_size = 512")
        let shell = try rig.shell("PRAGMA cache_size = 10")
        try rig.findTables()
        for _ in 1...20 {
            try expect(
                rig, shell,
                """
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                INSERT INTO a (text) SELECT hex(randomblob(abs(random()) % 400)) FROM n
                """, ["a"])
            try expect(rig, shell, "INSERT INTO b SELECT text FROM a ORDER BY random() LIMIT 20", ["b"])
            try expect(rig, shell, "DELETE FROM a WHERE abs(random()) % 3 = 0", ["a"])
        }
        try expect(rig, shell, "DELETE FROM b", ["b"])
        try shell.close()
    }

    /// Changing one byte in the middle of a large value writes one overflow page.
    @Test func attributesASingleOverflowPage() throws {
        let rig = try rig("CREATE TABLE a (id INTEGER PRIMARY KEY, data); CREATE TABLE b (data)")
        try rig.once("INSERT INTO a (data) VALUES (zeroblob(100000)); INSERT INTO b VALUES (zeroblob(100000))")
        let shell = try rig.shell()
        try rig.findTables()
        let script = """
            import sqlite3, sys
            with sqlite3.connect(sys.argv[1]).blobopen('a', 'data', 1) as blob: blob[50000] = 7
            """
        let found = try rig.tables {
            let done = try run("python3", ["-c", Word(script), Word(rig.store)])
            #expect(done.status == 0, "\(done.errors)")
        }
        #expect(found == complete(["a"]))
        try shell.close()
    }

    @Test func followsSchemaChanges() throws {
        let rig = try rig("CREATE TABLE a (id INTEGER PRIMARY KEY, text)", "PRAGMA auto_vacuum = FULL")
        let shell = try rig.shell()
        try rig.findTables()
        try expect(rig, shell, "CREATE TABLE b (text UNIQUE)", ["b", "sqlite_schema"])
        try expect(rig, shell, "INSERT INTO b VALUES (1), (2), (3)", ["b"])
        try expect(rig, shell, "ALTER TABLE b RENAME TO c", ["b", "c", "sqlite_schema"])
        try expect(rig, shell, "INSERT INTO c VALUES (4)", ["c"])
        try expect(rig, shell, "ALTER TABLE a ADD COLUMN more DEFAULT 7", ["a", "sqlite_schema"])
        try expect(rig, shell, "CREATE TABLE d (text)", ["d", "sqlite_schema"])
        // Auto-vacuum moves another table's root into the gap.
        let dropped = try rig.tables { try shell.execute("DROP TABLE c") }
        #expect(dropped.isComplete && dropped.names.isSuperset(of: ["c", "sqlite_schema"]))
        try expect(rig, shell, "INSERT INTO d VALUES (5)", ["d"])
        try expect(rig, shell, "INSERT INTO a (text) VALUES (5)", ["a"])
        let swap = "ALTER TABLE a RENAME TO e; ALTER TABLE d RENAME TO a; ALTER TABLE e RENAME TO d"
        try expect(rig, shell, "BEGIN; \(swap); COMMIT", ["a", "d", "sqlite_schema"])
        try expect(rig, shell, "INSERT INTO a VALUES (5)", ["a"])
        let vacuumed = try rig.tables { try shell.execute("VACUUM") }
        #expect(vacuumed.isComplete && vacuumed.names.isSuperset(of: ["a", "d"]))
        try expect(rig, shell, "INSERT INTO d (text) VALUES (6)", ["d"])
        try shell.close()
    }

    @Test(arguments: ["UTF-8", "UTF-16le", "UTF-16be"]) func reportsAnyTableName(_ encoding: String) throws {
        let name = "Größe \"'] ☃" + String(repeating: "x", count: 700)
        let quoted = "\"" + name.replacing("\"", with: "\"\"") + "\""
        let rig = try rig("CREATE TABLE \(quoted) (a)", "PRAGMA encoding = '\(encoding)'; PRAGMA page_size = 512")
        let shell = try rig.shell()
        try rig.findTables()
        try expect(rig, shell, "INSERT INTO \(quoted) VALUES (1)", [ExactName(name)])
        try shell.close()
    }

    /// Two Unicode forms of one text are two names.
    @Test func tellsNamesApartAsSQLiteDoes() throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let rig = try rig("CREATE TABLE \(one) (a); CREATE TABLE \(two) (a)")
        let shell = try rig.shell()
        try rig.findTables()
        for _ in 1...2 {
            try expect(rig, shell, "INSERT INTO \(two) VALUES (1)", [ExactName(two)])
            try expect(rig, shell, "INSERT INTO \(one) VALUES (1)", [ExactName(one)])
            try expect(
                rig, shell, "CREATE TABLE IF NOT EXISTS c (a); ALTER TABLE c RENAME TO d; DROP TABLE d",
                ["c", "d", "sqlite_schema"])
        }
        try shell.close()
    }

    @Test func reportsAVirtualTableWithItsShadowTables() throws {
        let rig = try rig(
            """
            CREATE TABLE note (id INTEGER PRIMARY KEY, text); CREATE TABLE other (a);
            CREATE VIRTUAL TABLE docs USING fts5(text); CREATE VIRTUAL TABLE box USING rtree(id, x0, x1);
            CREATE VIRTUAL TABLE "se'arch" USING fts5(text, content='note', content_rowid='id');
            CREATE VIRTUAL TABLE words USING fts5vocab('docs', 'row'); CREATE TABLE docs_more (a);
            """)
        let shell = try rig.shell()
        try rig.findTables()
        let docs = try rig.tables { try shell.execute("INSERT INTO docs VALUES ('some words')") }
        #expect(docs.isComplete && docs.names.isSuperset(of: ["docs", "docs_data", "docs_content", "words"]))
        #expect(docs.names.isDisjoint(with: ["note", "se'arch", "box", "other"]))
        let box = try rig.tables { try shell.execute("INSERT INTO box VALUES (1, 2, 3)") }
        #expect(box.isComplete && box.names.contains("box") && !box.names.contains("docs"))
        // An external content table shows that table's content.
        try expect(rig, shell, "INSERT INTO note (text) VALUES ('x')", ["note", "se'arch"])
        try expect(rig, shell, "INSERT INTO other VALUES (1)", ["other"])
        try expect(rig, shell, "INSERT INTO docs_more VALUES (1)", ["docs_more"])
        try shell.close()
    }

    @Test(arguments: ["PASSIVE", "FULL", "RESTART", "TRUNCATE"]) func followsARestartedWAL(_ kind: String)
        throws
    {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text)")
        let shell = try rig.shell()
        try rig.findTables()
        try expect(rig, shell, "INSERT INTO a VALUES (randomblob(20000))", ["a"])
        for _ in 1...10 {
            try shell.execute("PRAGMA wal_checkpoint(\(kind))")
            _ = try rig.findings()
            try expect(rig, shell, "INSERT INTO b VALUES (1)", ["b"])
            try expect(rig, shell, "INSERT INTO a VALUES (1)", ["a"])
        }
        // Commits before and after the WAL's restart are published as one change.
        let both = try rig.tables {
            try shell.execute(
                """
                INSERT INTO a VALUES (randomblob(30000)); INSERT INTO b VALUES (2); PRAGMA wal_checkpoint(\(kind));
                INSERT INTO a VALUES (2)
                """)
        }
        #expect(!both.isComplete || both.names == ["a", "b"])
        try shell.close()
    }

    @Test func followsShortLivedPrograms() throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text)")
        try rig.findTables()
        var complete = 0
        for number in 1...40 {
            let table = number.isMultiple(of: 2) ? "a" : "b"
            let found = try rig.tables { try rig.once("INSERT INTO \(table) VALUES (1)") }
            if found.isComplete { complete += 1 }
            #expect(!found.isComplete || found.names == [ExactName(table)], "program \(number)")
        }
        // No poll took place while the programs had the store open, so the changes are incomplete.
        #expect(complete == 0)
        // Changes of a program that keeps the store open are complete, whoever came before it.
        let shell = try rig.shell()
        _ = try rig.findings()
        try expect(rig, shell, "INSERT INTO a VALUES (1)", ["a"])
        try shell.close()
        let next = try rig.shell()
        _ = try rig.findings()
        try expect(rig, next, "INSERT INTO b VALUES (1)", ["b"])
        try next.close()
    }

    /// SQLite before 3.46 leaves the frames of such a transaction without checksums.
    @Test func ignoresARolledBackSavepointAfterASpill() throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); CREATE TABLE c (text)")
        let shell = try rig.shell("PRAGMA cache_size = 5")
        try rig.findTables()
        let many =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT randomblob(300) FROM n"
        for _ in 1...10 {
            try expect(
                rig, shell,
                """
                BEGIN; INSERT INTO a \(many); UPDATE a SET text = randomblob(300); SAVEPOINT s; INSERT INTO a \(many);
                UPDATE a SET text = randomblob(200); ROLLBACK TO s; INSERT INTO b VALUES (1); COMMIT
                """, ["a", "b"])
            try expect(rig, shell, "INSERT INTO b VALUES (2)", ["b"])
        }
        try shell.close()
    }

    /// Such a commit is not missed if the WAL is restarted before the next poll.
    @Test func findsACommitWithoutChecksumsAfterAWALRestart() throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text)")
        let shell = try rig.shell("PRAGMA cache_size = 5")
        try rig.findTables()
        let many =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT randomblob(300) FROM n"
        for _ in 1...10 {
            try expect(rig, shell, "INSERT INTO a VALUES (randomblob(200000))", ["a"])
            let found = try rig.tables {
                try shell.execute(
                    """
                    BEGIN; SAVEPOINT s; INSERT INTO a \(many); CREATE TABLE c (x); INSERT INTO a \(many);
                    CREATE TABLE d (x); INSERT INTO a \(many);
                    ROLLBACK TO s; INSERT INTO b VALUES (1); COMMIT; PRAGMA wal_checkpoint; INSERT INTO a VALUES (1)
                    """)
            }
            #expect(!found.isComplete || found.names == ["a", "b"], "\(found)")
            try shell.execute("INSERT INTO a VALUES (2)")
            _ = try rig.findings()
        }
        try shell.close()
    }

    /// The journal of a commit that is noticed is gone.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func namesTablesInRollbackMode(_ mode: String) throws {
        let rig = try rig(
            "CREATE TABLE a (text); CREATE TABLE b (text UNIQUE); CREATE TABLE c (text); PRAGMA journal_mode = \(mode)")
        let shell = try rig.shell()
        try shell.execute("PRAGMA journal_mode = \(mode)")
        try rig.findTables()
        let steps: [(String, Set<ExactName>)] = [
            ("INSERT INTO a VALUES (randomblob(9))", ["a"]), ("INSERT INTO b VALUES (randomblob(9))", ["b"]),
            ("INSERT INTO a VALUES (randomblob(90000))", ["a"]),
            ("DELETE FROM a WHERE rowid = (SELECT max(rowid) FROM a)", ["a"]),
            ("BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (randomblob(9)); COMMIT", ["a", "b"]),
            (
                "BEGIN; CREATE INDEX i ON c (text); INSERT INTO c VALUES (randomblob(9)); DROP INDEX i; COMMIT",
                ["c", "sqlite_schema"]
            ),
        ]
        for (statement, names) in steps {
            rig.awaitComparison()
            let found = try rig.tables { try shell.execute(statement) }
            #expect(found == TableChanges(names, isComplete: true), "\(statement)")
        }
        #expect(try rig.tables { try shell.execute("BEGIN; INSERT INTO a VALUES (7); ROLLBACK") } == .nothing)
        try shell.close()
    }

    /// The store is too large for digests: the journals alone name its tables.
    @Test func namesTablesOfALargeStoreInRollbackMode() throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); PRAGMA journal_mode = DELETE")
        let shell = try rig.shell("PRAGMA journal_mode = DELETE")
        try shell.execute("INSERT INTO a VALUES (zeroblob(20000000))")
        try rig.findTables()
        var complete = 0
        for round in 0..<40 {
            let names: Set<ExactName> = round % 2 == 0 ? ["a"] : ["b"]
            let found = try rig.tables { try shell.execute("INSERT INTO \(round % 2 == 0 ? "a" : "b") VALUES (1)") }
            // What comes too soon after another is named with the next.
            #expect(!found.isComplete || names.isSubset(of: found.names))
            complete += found.isComplete ? 1 : 0
            // A journal that was gone before it could be opened.
            if !rig.hasMap { rig.runScans() }
        }
        #expect(complete > 0)
        try shell.close()
    }

    /// How much of a processor the comparisons may take is limited: a change that comes right after another one need
    /// not be complete.
    @Test(arguments: ["TRUNCATE", "PERSIST"])
    func namesTablesAfterABurstInRollbackMode(_ mode: String) throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); PRAGMA journal_mode = \(mode)")
        let shell = try rig.shell("PRAGMA journal_mode = \(mode)")
        // A comparison takes longer than the next commit.
        try shell.execute("INSERT INTO a VALUES (zeroblob(8000000))")
        try rig.findTables()
        for _ in 0..<3 {
            var last = TableChanges.nothing
            for _ in 0..<100 where last.isComplete {
                last = try rig.tables { try shell.execute("INSERT INTO b VALUES (1)") }
            }
            #expect(!last.isComplete)
            rig.awaitComparison()
            #expect(
                try rig.tables { try shell.execute("INSERT INTO a VALUES (1)") }
                    == TableChanges(["a"], isComplete: true))
            rig.awaitComparison()
        }
        try shell.close()
    }

    /// The pages are as before, but a program may have read the store between the two commits.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func aChangeThatWasTakenBackIsNotHiddenInRollbackMode(_ mode: String) throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); PRAGMA journal_mode = \(mode)")
        let shell = try rig.shell("PRAGMA journal_mode = \(mode)")
        // Leaves in the page what it leaves when it is done again.
        try shell.execute("INSERT INTO b VALUES (1); DELETE FROM b")
        try rig.findTables()
        for _ in 0..<20 {
            let found = try rig.tables {
                try shell.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); DELETE FROM b")
            }
            #expect(!found.isComplete || found.names.contains("b"))
            rig.runScans()
        }
        try shell.close()
    }

    /// Such a transaction writes the database and restores it, and changes no counter.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func aScanNoticesATransactionThatIsRolledBackMeanwhile(_ mode: String) throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); PRAGMA journal_mode = \(mode)")
        let shell = try rig.shell("PRAGMA journal_mode = \(mode); PRAGMA cache_size = 1")
        _ = try rig.findings()
        rig.wantTables()
        let hasRun = try rig.runScan {
            try shell.execute("BEGIN; CREATE TABLE c (text); INSERT INTO c VALUES (randomblob(900000))")
        } before: {
            try shell.execute("ROLLBACK")
        }
        #expect(hasRun && !rig.hasMap)
        try shell.close()
    }

    /// A file that is copied over a store has no journal, and may still be incomplete.
    @Test func claimsNothingOfACopiedStore() throws {
        let rig = try rig("CREATE TABLE a (text); CREATE TABLE b (text); PRAGMA journal_mode = DELETE")
        try rig.findTables()
        let other = try TemporaryDirectory()
        let copy = other.path.appending("Copy.sqlite")
        try run("cp", [Word(rig.store), Word(copy)])
        try ObserverRig.once(copy, "INSERT INTO b VALUES (1)")
        #expect(try rig.tables { try run("cp", [Word(copy), Word(rig.store)]) } == .unknown)
    }

    @Test func followsAChangeOfTheJournalMode() throws {
        let rig = try rig("CREATE TABLE a (text)")
        let shell = try rig.shell()
        try rig.findTables()
        try expect(rig, shell, "INSERT INTO a VALUES (1)", ["a"])
        try shell.execute("PRAGMA journal_mode = DELETE")
        _ = try rig.findings()
        #expect(try rig.tables { try shell.execute("INSERT INTO a VALUES (2)") }.names.isSubset(of: ["a"]))
        try shell.execute("PRAGMA journal_mode = WAL")
        _ = try rig.findings()
        try shell.execute("INSERT INTO a VALUES (3)")
        _ = try rig.findings()
        try expect(rig, shell, "INSERT INTO a VALUES (4)", ["a"])
        // Switches the mode twice before the next poll.
        let unobserved = try rig.tables {
            try shell.execute("PRAGMA journal_mode = DELETE; INSERT INTO a VALUES (5); PRAGMA journal_mode = WAL")
        }
        #expect(!unobserved.isComplete)
        try shell.close()
    }

    @Test func keepsNoPageMapWithoutDemand() throws {
        let rig = try rig("CREATE TABLE a (text)")
        let shell = try rig.shell()
        #expect(try rig.tables { try shell.execute("INSERT INTO a VALUES (1)") } == .unknown)
        try rig.findTables()
        try expect(rig, shell, "INSERT INTO a VALUES (2)", ["a"])
        rig.close()
        try rig.attach()
        #expect(try rig.tables { try shell.execute("INSERT INTO a VALUES (3)") } == .unknown)
        try expect(rig, shell, "INSERT INTO a VALUES (4)", ["a"])
        try shell.close()
    }
}
