import StoreRelocation
import Testing

@testable import StoreMerging

/// Merges of stores without a model.
struct PlainMergeTests {
    private func failure(_ rig: MergeRig, _ options: MergeOptions = MergeOptions()) throws -> String? {
        let error = #expect(throws: RelocationFailure.self) { try rig.merge(options) }
        return error?.code
    }

    @Test func matchesByThePrimaryKey() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v); CREATE TABLE c (a TEXT, b INT, v, PRIMARY KEY (a, b))",
            group: "INSERT INTO t VALUES (1, 'x'), (2, 'y'); INSERT INTO c VALUES ('k', 1, 'g'), ('k', 2, 'g')",
            legacy: "INSERT INTO t VALUES (2, 'y'), (3, 'z'); INSERT INTO c VALUES ('k', 1, 'g'), ('m', 1, 'l')")
        let report = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT * FROM t ORDER BY id") == ["1|x", "2|y", "3|z"])
        #expect(try rig.rows("SELECT * FROM c ORDER BY a, b") == ["k|1|g", "k|2|g", "m|1|l"])
        #expect(report.sum(\.renumbered) == 0)
        #expect(report.sum(\.equal) == 2)
    }

    @Test func refusesRowsWithoutAKey() throws {
        let rig = try MergeRig(
            "CREATE TABLE log (line)", group: "INSERT INTO log VALUES ('a')", legacy: "INSERT INTO log VALUES ('a')")
        #expect(try failure(rig) == "no_merge_key")
    }

    @Test func needsNoKeyForRowsOfOneSide() throws {
        let rig = try MergeRig(
            "CREATE TABLE a (v); CREATE TABLE b (v)", group: "INSERT INTO a VALUES (1), (1)",
            legacy: "INSERT INTO b VALUES (2), (2), (2)")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT count(*) FROM a UNION ALL SELECT count(*) FROM b") == ["2", "3"])
    }

    @Test func pairsEqualRowsOneByOne() throws {
        let rig = try MergeRig(
            "CREATE TABLE log (line, n)",
            group: "INSERT INTO log VALUES ('a', 1), ('a', 1), ('b', NULL), ('c', 1.0), ('é', x'00')",
            legacy: "INSERT INTO log VALUES ('a', 1), ('a', 1), ('a', 1), ('b', NULL), ('c', 1), ('A', 1), ('é', x'00')"
        )
        let report = try rig.merge(MergeOptions("log=*"))
        #expect(report.entities.map(\.equal) == [5])
        #expect(report.entities.map(\.onlyLegacy) == [2])
        #expect(try rig.rows("SELECT count(*) FROM log WHERE line = 'a'") == ["3"])
    }

    /// Rows that refer to each other in a circle match only if those references lead to matched rows too.
    @Test func comparesReferencesInACircle() throws {
        let rig = try MergeRig(
            "CREATE TABLE f (id INTEGER PRIMARY KEY, name, parent REFERENCES f (id))",
            group: "INSERT INTO f VALUES (1, 'a', NULL), (2, 'b', NULL), (3, 'x', 1), (4, 'y', 3)",
            legacy: "INSERT INTO f VALUES (1, 'b', NULL), (2, 'x', 1), (3, 'y', 2), (4, 'a', NULL)")
        let report = try rig.merge(MergeOptions("f=*"))
        #expect(report.entities.map(\.different) == [0])
        #expect(report.entities.map(\.equal) == [2])
        let paths = try rig.rows(
            "SELECT f.name || p.name || ifnull(q.name, '') FROM f JOIN f AS p ON p.id = f.parent "
                + "LEFT JOIN f AS q ON q.id = p.parent ORDER BY 1")
        #expect(paths == ["xa", "xb", "yxa", "yxb"])
    }

    /// A row whose key is NULL matches only a row that is equal in everything.
    @Test func matchesWholeRowsIfTheKeyIsNull() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT UNIQUE, v)",
            group: "INSERT INTO t VALUES (1, NULL, 'same'), (2, NULL, 'g')",
            legacy: "INSERT INTO t VALUES (1, NULL, 'l'), (2, NULL, 'same')")
        let report = try rig.merge(MergeOptions("t=k"))
        #expect(report.entities.map(\.equal) == [1])
        #expect(try rig.rows("SELECT v FROM t ORDER BY v") == ["g", "l", "same"])
    }

    /// A function of SQLite's takes 127 values by default.
    @Test(arguments: [128, 400]) func matchesWholeRowsOfManyColumns(_ count: Int) throws {
        let columns = (1...count).map { "c\($0)" }.joined(separator: ", ")
        let rig = try MergeRig(
            "CREATE TABLE t (\(columns))",
            group: "INSERT INTO t (c1, c\(count)) VALUES (1, 'same'), (1, 'g')",
            legacy: "INSERT INTO t (c1, c\(count)) VALUES (1, 'l'), (1, 'same')")
        let report = try rig.merge(MergeOptions("t=*"))
        #expect(report.entities.map(\.equal) == [1])
        #expect(try rig.rows("SELECT c\(count) FROM t ORDER BY 1") == ["g", "l", "same"])
    }

    @Test func comparesKeysByTheColumnsCollation() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT COLLATE NOCASE UNIQUE)",
            group: "INSERT INTO t VALUES (1, 'Key')", legacy: "INSERT INTO t VALUES (5, 'kEY')")
        let report = try rig.merge(MergeOptions("t=k", prefer: "legacy"))
        #expect(report.entities.map(\.takesLegacy) == [1])
        #expect(try rig.rows("SELECT * FROM t") == ["1|kEY"])
    }

    @Test func refusesAKeyThatIsNotUnique() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, k)", group: "INSERT INTO t VALUES (1, 'a')",
            legacy: "INSERT INTO t VALUES (1, 'b'), (2, 'b')")
        #expect(try failure(rig, MergeOptions("t=k")) == "merge_key_not_unique")
    }

    @Test(arguments: ["nothing=a", "t=nothing"]) func refusesAnUnknownKey(_ key: String) throws {
        let rig = try MergeRig("CREATE TABLE t (a PRIMARY KEY)", group: "", legacy: "")
        #expect(try failure(rig, MergeOptions(key)) == "unknown_merge_key")
    }

    @Test(arguments: [
        ("CREATE TABLE u (a)", "DROP TABLE u"), ("CREATE TABLE u (a)", "ALTER TABLE u ADD COLUMN b"),
        ("CREATE TABLE u (a INT)", "DROP TABLE u; CREATE TABLE u (a TEXT)"),
        ("CREATE TABLE u (a INT NOT NULL)", "DROP TABLE u; CREATE TABLE u (a INT)"),
        ("CREATE TABLE u (a PRIMARY KEY)", "DROP TABLE u; CREATE TABLE u (a PRIMARY KEY) WITHOUT ROWID"),
        ("CREATE TABLE u (a)", "PRAGMA user_version = 3"), ("CREATE TABLE u (a)", "PRAGMA application_id = 3"),
    ])
    func refusesOtherSchemas(_ schema: String, _ change: String) throws {
        for isLegacy in [false, true] {
            let rig = try MergeRig(schema, group: isLegacy ? "" : change, legacy: isLegacy ? change : "")
            #expect(try failure(rig) == "schemas_differ")
        }
    }

    /// SQLite compares names byte by byte: two Unicode forms of one text are two names.
    @Test func tellsNamesApartAsSQLiteDoes() throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let rig = try MergeRig(
            "CREATE TABLE t\(one) (id INTEGER PRIMARY KEY, \(one), \(two)); CREATE TABLE t\(two) (id INTEGER PRIMARY KEY)",
            group: "INSERT INTO t\(one) VALUES (1, 'a', 'g'); INSERT INTO t\(two) VALUES (1), (2)",
            legacy: "INSERT INTO t\(one) VALUES (1, 'a', 'l'), (2, 'b', 'l'); INSERT INTO t\(two) VALUES (3)")
        _ = try rig.merge(MergeOptions("t\(one)=\(one)", "t\(two)=id", prefer: "legacy"))
        #expect(try rig.rows("SELECT * FROM t\(one) ORDER BY id") == ["1|a|l", "2|b|l"])
        #expect(try rig.rows("SELECT count(*) FROM t\(two)") == ["3"])
    }

    @Test func acceptsColumnsInAnotherOrder() throws {
        let rig = try MergeRig(
            "", group: "CREATE TABLE t (a INTEGER PRIMARY KEY, b, c); INSERT INTO t VALUES (1, 'b', 'c')",
            legacy: "CREATE TABLE t (c, b, a INTEGER PRIMARY KEY); INSERT INTO t VALUES ('c2', 'b2', 2)")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT a, b, c FROM t ORDER BY a") == ["1|b|c", "2|b2|c2"])
    }

    // MARK: Numbers

    @Test func renumbersRowsAndTheirReferences() throws {
        let rig = try MergeRig(
            """
            CREATE TABLE p (id INTEGER PRIMARY KEY, k TEXT UNIQUE, parent REFERENCES p (id));
            CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p (id), n, UNIQUE (p, n))
            """,
            group: "INSERT INTO p VALUES (1, 'a', NULL), (2, 'b', 1); INSERT INTO c VALUES (1, 2, 1)",
            legacy: """
                INSERT INTO p VALUES (1, 'b', 2), (2, 'a', NULL), (3, 'c', 1), (9, 'd', 3);
                INSERT INTO c VALUES (1, 1, 1), (2, 3, 1), (3, 9, 7)
                """)
        let report = try rig.merge(MergeOptions("p=k", "c=p,n"))
        #expect(try rig.rows("SELECT * FROM p ORDER BY id") == ["1|a|-", "2|b|1", "3|c|2", "9|d|3"])
        #expect(try rig.rows("SELECT * FROM c ORDER BY id") == ["1|2|1", "2|3|1", "3|9|7"])
        #expect(report.entities.map(\.equal) == [2, 1])
    }

    @Test func givesNumbersBeyondAllThatWereUsed() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, k TEXT UNIQUE)",
            group: "INSERT INTO t VALUES (1, 'a'), (50, 'x'); DELETE FROM t WHERE id = 50",
            legacy: "INSERT INTO t VALUES (1, 'b'), (20, 'c'), (60, 'd'), (90, 'y'); DELETE FROM t WHERE id = 90")
        _ = try rig.merge(MergeOptions("t=k"))
        #expect(try rig.rows("SELECT * FROM t ORDER BY id") == ["1|a", "60|d", "91|b", "92|c"])
        #expect(try rig.rows("SELECT seq FROM sqlite_sequence") == ["92"])
    }

    @Test func keepsTheGreaterCounter() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v)", group: "INSERT INTO t VALUES (1, 'a')",
            legacy: "INSERT INTO t VALUES (1, 'a'), (70, 'b'); DELETE FROM t WHERE id = 70")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT seq FROM sqlite_sequence") == ["70"])
    }

    /// A table may extend another one: its number is the other one's.
    @Test func followsANumberThatIsAReference() throws {
        let rig = try MergeRig(
            """
            CREATE TABLE animal (id INTEGER PRIMARY KEY, chip TEXT UNIQUE);
            CREATE TABLE dog (id INTEGER PRIMARY KEY REFERENCES animal (id), name);
            CREATE TABLE walk (dog REFERENCES dog (id), day, PRIMARY KEY (dog, day))
            """,
            group: "INSERT INTO animal VALUES (1, 'x'), (2, 'y'); INSERT INTO dog VALUES (1, 'Rex')",
            legacy: """
                INSERT INTO animal VALUES (1, 'y'), (2, 'x'), (3, 'z'); INSERT INTO dog VALUES (2, 'Rex'), (1, 'Ada');
                INSERT INTO walk VALUES (2, 1), (1, 1)
                """)
        _ = try rig.merge(MergeOptions("animal=chip"))
        #expect(try rig.rows("SELECT * FROM dog ORDER BY id") == ["1|Rex", "2|Ada"])
        #expect(try rig.rows("SELECT * FROM walk ORDER BY dog") == ["1|1", "2|1"])
    }

    @Test func countsReferencesToNothing() throws {
        let rig = try MergeRig(
            "CREATE TABLE p (id INTEGER PRIMARY KEY, k UNIQUE); CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p (id))",
            group: "INSERT INTO p VALUES (7, 'g')", legacy: "INSERT INTO c VALUES (1, 7)")
        let report = try rig.merge(MergeOptions("p=k"))
        #expect(report.dangling == 1)
        #expect(try rig.rows("SELECT p FROM c") == ["-"])
    }

    /// What the group's and the legacy store's row refer to, and whether that is the same. The group has a parent 1 and
    /// no other; the legacy store has the parents 5, which is the group's 1, and 1, which is new.
    @Test(
        arguments: [
            ("7", "7", true), ("'seven'", "'seven'", true), ("x'07'", "x'07'", true), ("1", "5", true),
            ("NULL", "NULL", true),
            ("NULL", "7", false), ("7", "NULL", false), ("7", "8", false), ("1", "1", false), ("5", "5", false),
            ("'seven'", "x'736576656e'", false), ("7", "1", false), ("1", "7", false),
        ], ["WITHOUT ROWID", ""])
    func comparesReferencesToNothing(_ row: (group: String, legacy: String, areEqual: Bool), _ tail: String) throws {
        let schema = """
            CREATE TABLE p (id INTEGER PRIMARY KEY, k TEXT UNIQUE);
            CREATE TABLE c (u TEXT PRIMARY KEY, p INTEGER REFERENCES p (id)) \(tail)
            """
        let parents = ("INSERT INTO p VALUES (1, 'a')", "INSERT INTO p VALUES (5, 'a'), (1, 'b')")
        let rig = try MergeRig(
            schema, group: "\(parents.0); INSERT INTO c VALUES ('x', \(row.group))",
            legacy: "\(parents.1); INSERT INTO c VALUES ('x', \(row.legacy))")
        guard row.areEqual else { return #expect(try failure(rig, MergeOptions("p=k")) == "merge_undecided") }
        let before = try rig.rows("SELECT quote(p) FROM c")
        #expect(try rig.merge(MergeOptions("p=k")).entities.first { $0.table == "c" }?.equal == 1)
        #expect(try rig.rows("SELECT quote(p) FROM c") == before)
    }

    /// Rows are matched as wholes, or by a key with the reference.
    @Test(arguments: ["c=*", "c=p,v"])
    func matchesReferencesToNothing(_ key: String) throws {
        let schema = """
            CREATE TABLE p (id INTEGER PRIMARY KEY, k TEXT UNIQUE); CREATE TABLE c (p INTEGER REFERENCES p (id), v)
            """
        let rig = try MergeRig(
            schema, group: "INSERT INTO p VALUES (1, 'a'); INSERT INTO c VALUES (7, 'v'), (1, 'v'), (9, 'v')",
            legacy: "INSERT INTO p VALUES (5, 'a'); INSERT INTO c VALUES (7, 'v'), (5, 'v'), (1, 'v')")
        let report = try rig.merge(MergeOptions("p=k", key))
        let counts = report.entities.first { $0.table == "c" }
        #expect(counts?.equal == 2 && counts?.onlyLegacy == 1 && counts?.onlyGroup == 1)
        #expect(try rig.rows("SELECT p FROM c ORDER BY rowid") == ["7", "1", "9", "-"])
        #expect(report.dangling == 1)
    }

    /// One store has no rows to refer to.
    @Test(arguments: ["", "INSERT INTO p VALUES (1, 'a')"], ["", "INSERT INTO p VALUES (1, 'a')"])
    func matchesRowsWithoutAReference(_ group: String, _ legacy: String) throws {
        let rows = "INSERT INTO c VALUES (NULL, 'v'), (7, 'v')"
        let rig = try MergeRig(
            "CREATE TABLE p (id INTEGER PRIMARY KEY, k TEXT UNIQUE); CREATE TABLE c (p INTEGER REFERENCES p (id), v)",
            group: "\(group); \(rows)", legacy: "\(legacy); \(rows)")
        #expect(try rig.merge(MergeOptions("p=k", "c=*")).entities.first { $0.table == "c" }?.equal == 2)
    }

    /// A reference to nothing must not lead to a stranger afterwards.
    @Test func givesNoNumberThatALooseReferenceNames() throws {
        let rig = try MergeRig(
            """
            CREATE TABLE p (id INTEGER PRIMARY KEY, k TEXT UNIQUE);
            CREATE TABLE c (u TEXT PRIMARY KEY, p INTEGER REFERENCES p (id))
            """, group: "INSERT INTO p VALUES (1, 'a'); INSERT INTO c VALUES ('x', 7), ('z', 9)",
            legacy: "INSERT INTO p VALUES (7, 'stranger'); INSERT INTO c VALUES ('y', 7)")
        _ = try rig.merge(MergeOptions("p=k"))
        #expect(
            try rig.rows("SELECT u, k FROM c LEFT JOIN p ON p.id = c.p ORDER BY u") == ["x|-", "y|stranger", "z|-"])
    }

    @Test func keepsNumbersThatAreTheIdentity() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v)", group: "INSERT INTO t VALUES (7, 'seven')",
            legacy: "INSERT INTO t VALUES (2, 'two')")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT * FROM t ORDER BY id") == ["2|two", "7|seven"])
    }

    @Test func mergesTablesNamedLikeAHistorys() throws {
        let rig = try MergeRig(
            "CREATE TABLE gs_mine (id INTEGER PRIMARY KEY); CREATE TABLE GS_CHANGE (id INTEGER PRIMARY KEY)",
            group: "INSERT INTO gs_mine VALUES (1); INSERT INTO GS_CHANGE VALUES (1)",
            legacy: "INSERT INTO gs_mine VALUES (2); INSERT INTO GS_CHANGE VALUES (2)")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT count(*) FROM gs_mine") == ["2"])
        #expect(try rig.rows("SELECT count(*) FROM GS_CHANGE") == ["2"])
    }

    /// A history's tables are known by their statements.
    @Test(arguments: ["gs_replica", "GS_AUTHOR"]) func mergesATableOfThatNameBesideAHistorys(name: String) throws {
        let rig = try MergeRig(
            """
            CREATE TABLE GS_HISTORY (id INTEGER PRIMARY KEY CHECK (id = 1), identifier TEXT NOT NULL, \
            version INTEGER NOT NULL, schema_version INTEGER NOT NULL, trimmed INTEGER NOT NULL, trimmed_nonce INTEGER);
            CREATE TABLE \(name) (id INTEGER PRIMARY KEY, name TEXT)
            """, group: "INSERT INTO \(name) VALUES (1, 'one')", legacy: "INSERT INTO \(name) VALUES (2, 'two')")
        _ = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT id, name FROM \(name) ORDER BY id") == ["1|one", "2|two"])
    }

    @Test func keepsTheWholeRowWithTheTypesOfItsNumbers() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (k PRIMARY KEY, v) WITHOUT ROWID", group: "INSERT INTO t VALUES (1, 'g')",
            legacy: "INSERT INTO t VALUES (1.0, 'l')")
        _ = try rig.merge(MergeOptions(prefer: "legacy"))
        #expect(try rig.rows("SELECT typeof(k), v FROM t") == ["real|l"])
    }

    // MARK: Decisions

    @Test(arguments: [
        (["group"], "1|g|5;2|g|-;3|g|7"), (["legacy"], "1|l|9;2|l|3;3|l|7"),
        (["newer:t", "group"], "1|l|9;2|g|-;3|g|7"),
        (["newer:t", "legacy"], "1|l|9;2|l|3;3|l|7"),
    ])
    func keepsThePreferredRow(_ preferences: [String], _ result: String) throws {
        let rig = try MergeRig(
            "CREATE TABLE r (id INTEGER PRIMARY KEY, v, t)",
            group: "INSERT INTO r VALUES (1, 'g', 5), (2, 'g', NULL), (3, 'g', 7)",
            legacy: "INSERT INTO r VALUES (1, 'l', 9), (2, 'l', 3), (3, 'l', 7)")
        var options = MergeOptions()
        options.preferences = preferences.compactMap(MergePreference.init)
        _ = try rig.merge(options)
        #expect(try rig.rows("SELECT * FROM r ORDER BY id").joined(separator: ";") == result)
    }

    @Test func refusesWhatNobodyDecides() throws {
        let rig = try MergeRig(
            "CREATE TABLE r (id INTEGER PRIMARY KEY, v, t)", group: "INSERT INTO r VALUES (1, 'g', 5)",
            legacy: "INSERT INTO r VALUES (1, 'l', 'text')")
        #expect(try failure(rig) == "merge_undecided")
        #expect(try failure(rig, MergeOptions(prefer: "newer:t")) == "merge_undecided")
        #expect(try failure(rig, MergeOptions(prefer: "newer:nothing")) == "unknown_attribute")
    }

    // MARK: Constraints

    /// The unique values of two rows change places, and those of three go round.
    @Test func writesValuesThatChangePlaces() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, slot INT UNIQUE, v)",
            group: "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 5, 'e')",
            legacy: "INSERT INTO t VALUES (1, 2, 'a'), (2, 1, 'b'), (3, 4, 'c'), (4, 5, 'd'), (5, 3, 'e')")
        _ = try rig.merge(MergeOptions(prefer: "legacy"))
        #expect(try rig.rows("SELECT * FROM t ORDER BY id") == ["1|2|a", "2|1|b", "3|4|c", "4|5|d", "5|3|e"])
    }

    @Test(arguments: [
        ("k TEXT UNIQUE", "'same'", "'same'"),
        ("k INT CHECK (k < 5)", "1", "1); PRAGMA ignore_check_constraints = 1; UPDATE t SET (k) = (9"),
    ])
    func refusesAViolatedConstraint(_ column: String, _ group: String, _ legacy: String) throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, \(column))", group: "INSERT INTO t VALUES (1, \(group))",
            legacy: "INSERT INTO t VALUES (2, \(legacy))")
        #expect(try failure(rig) == "merge_constraint")
    }

    /// What a constraint's own clause says about conflicts is meant for the store's program: it would leave out or
    /// remove a row.
    @Test(
        arguments: [
            ("id INTEGER PRIMARY KEY, k TEXT UNIQUE @", "1, 'same'", "2, 'same'"),
            ("id INTEGER PRIMARY KEY, k, l, UNIQUE (k, l) @", "1, 1, 1", "2, 1, 1"),
            ("id INTEGER PRIMARY KEY, k TEXT NOT NULL @ DEFAULT 'd', u UNIQUE @", "1, 'a', 5", "2, 'b', 5"),
            ("id INTEGER PRIMARY KEY, u UNIQUE @, v UNIQUE ON CONFLICT REPLACE", "1, 5, 6", "2, 7, 6"),
        ], ["IGNORE", "REPLACE", "FAIL", "ROLLBACK", "ABORT"])
    func ignoresAConstraintsConflictClause(_ rows: (String, String, String), _ clause: String) throws {
        let columns = rows.0.replacing("@", with: "ON CONFLICT \(clause)")
        let rig = try MergeRig(
            "CREATE TABLE t (\(columns))", group: "INSERT INTO t VALUES (\(rows.1))",
            legacy: "INSERT INTO t VALUES (\(rows.2))")
        #expect(try failure(rig) == "merge_constraint")
    }

    /// Rows that take the legacy store's values, which a third row of the group has.
    @Test(arguments: ["IGNORE", "REPLACE", "FAIL", "ROLLBACK", "ABORT"])
    func ignoresAConflictClauseWhereRowsAreUpdated(_ clause: String) throws {
        let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, slot INT UNIQUE ON CONFLICT \(clause), v)"
        let rig = try MergeRig(
            schema, group: "INSERT INTO t VALUES (1, 1, 'a'), (3, 3, 'c')", legacy: "INSERT INTO t VALUES (1, 3, 'a')")
        #expect(try failure(rig, MergeOptions(prefer: "legacy")) == "merge_constraint")
        let circle = try MergeRig(
            schema, group: "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')",
            legacy: "INSERT INTO t VALUES (1, 2, 'a'), (2, 1, 'b')")
        _ = try circle.merge(MergeOptions(prefer: "legacy"))
        #expect(try circle.rows("SELECT * FROM t ORDER BY id") == ["1|2|a", "2|1|b"])
    }

    @Test func refusesANewViolationOfAForeignKey() throws {
        let rig = try MergeRig(
            "CREATE TABLE p (a TEXT UNIQUE, id INTEGER PRIMARY KEY); CREATE TABLE c (id INTEGER PRIMARY KEY, a REFERENCES p (a))",
            group: "INSERT INTO p VALUES ('x', 1)",
            legacy: "INSERT INTO p VALUES ('y', 1); INSERT INTO c VALUES (1, 'y')")
        #expect(try failure(rig, MergeOptions(prefer: "group")) == "merge_unsupported")
    }

    // MARK: Triggers, generated columns, full-text search

    @Test func firesNoTrigger() throws {
        let rig = try MergeRig(
            """
            CREATE TABLE t (id INTEGER PRIMARY KEY, v); CREATE TABLE log (line TEXT PRIMARY KEY);
            CREATE TRIGGER i AFTER INSERT ON t BEGIN INSERT INTO log VALUES ('i' || new.id); END;
            CREATE TRIGGER u AFTER UPDATE ON t BEGIN SELECT unknown_function(); END
            """, group: "INSERT INTO t VALUES (1, 'g')", legacy: "INSERT INTO t VALUES (1, 'l'), (2, 'l')")
        _ = try rig.merge(MergeOptions(prefer: "legacy"))
        #expect(try rig.rows("SELECT line FROM log ORDER BY 1") == ["i1", "i2"])
        #expect(try rig.rows("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'") == ["2"])
    }

    @Test func computesGeneratedColumns() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v, w AS (v || '!') STORED, x AS (v || '?'))",
            group: "INSERT INTO t (id, v) VALUES (1, 'g')", legacy: "INSERT INTO t (id, v) VALUES (1, 'l'), (2, 'm')")
        _ = try rig.merge(MergeOptions(prefer: "legacy"))
        #expect(try rig.rows("SELECT * FROM t ORDER BY id") == ["1|l|l!|l?", "2|m|m!|m?"])
    }

    @Test func rebuildsFullTextIndexes() throws {
        let schema = """
            CREATE TABLE n (id INTEGER PRIMARY KEY, k TEXT UNIQUE, body);
            CREATE VIRTUAL TABLE f USING fts5 (body, content = 'n', content_rowid = 'id')
            """
        let rig = try MergeRig(
            schema, group: "INSERT INTO n VALUES (1, 'a', 'apple'); INSERT INTO f (f) VALUES ('rebuild')",
            legacy: "INSERT INTO n VALUES (1, 'b', 'banana'); INSERT INTO f (f) VALUES ('rebuild')")
        _ = try rig.merge(MergeOptions("n=k"))
        #expect(try rig.rows("SELECT rowid FROM f WHERE f MATCH 'banana'") == ["2"])
        #expect(try rig.rows("SELECT rowid FROM f WHERE f MATCH 'apple'") == ["1"])
    }

    @Test func mergesFullTextTablesWithTheirOwnContent() throws {
        let rig = try MergeRig(
            "CREATE VIRTUAL TABLE f USING fts5 (body); CREATE TABLE t (id INTEGER PRIMARY KEY)",
            group: "INSERT INTO f (rowid, body) VALUES (1, 'apple'), (2, 'pear'); INSERT INTO t VALUES (1)",
            legacy: "INSERT INTO f (rowid, body) VALUES (2, 'plum'), (3, 'banana'); INSERT INTO t VALUES (2)")
        #expect(try failure(rig) == "merge_undecided")
        _ = try rig.merge(MergeOptions(prefer: "legacy"))
        #expect(try rig.rows("SELECT rowid, body FROM f ORDER BY 1") == ["1|apple", "2|plum", "3|banana"])
        #expect(try rig.rows("SELECT rowid FROM f WHERE f MATCH 'pear'") == [])
    }

    @Test func refusesOtherVirtualTablesWithRows() throws {
        let rig = try MergeRig(
            "CREATE VIRTUAL TABLE r USING rtree (id, a, b); CREATE TABLE t (id INTEGER PRIMARY KEY)",
            group: "INSERT INTO t VALUES (1)", legacy: "INSERT INTO r VALUES (1, 0, 1); INSERT INTO t VALUES (2)")
        #expect(try failure(rig) == "merge_unsupported")
    }

    @Test func keepsBytesThatAreNoText() throws {
        let rig = try MergeRig(
            "CREATE TABLE t (k TEXT PRIMARY KEY, v) WITHOUT ROWID", group: "INSERT INTO t VALUES ('a', 1)",
            legacy: "INSERT INTO t VALUES ('b', CAST(x'ff41' AS TEXT)), ('c', 'x' || char(0) || 'y'), ('d', 9e999)")
        _ = try rig.merge(MergeOptions())
        #expect(
            try rig.rows("SELECT k, typeof(v), hex(v) FROM t WHERE k > 'a'") == [
                "b|text|FF41", "c|text|780079", "d|real|496E66",
            ])
    }
}
