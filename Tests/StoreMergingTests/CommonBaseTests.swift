import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreMerging

/// Merges of two stores whose last common state is known.
@Suite struct CommonBaseTests {
    private static let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);"
    private static let rows = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd');"

    @Test func takesWhatOneSideAloneHasDoneOfBoth() throws {
        let rig = try BaseRig(
            Self.schema + Self.rows,
            group: "DELETE FROM t WHERE id = 1; UPDATE t SET v = 'B' WHERE id = 2; INSERT INTO t VALUES (5, 'e')",
            legacy: "DELETE FROM t WHERE id = 3; UPDATE t SET v = 'D' WHERE id = 4; INSERT INTO t VALUES (6, 'f')")
        let report = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT id, v FROM t") == ["2|B", "4|D", "5|e", "6|f"])
        let base = try #require(report.base.first)
        #expect(base.deletedByGroup.count == 1 && base.deletedByLegacy.count == 1)
        #expect(base.deletedByLegacy.samples.map(\.key) == [[.init(name: "id", value: .integer(3))]])
        #expect(base.changedByGroup.count == 1 && base.changedByLegacy.count == 1 && base.keptChanged.count == 0)
        #expect(report.sum(\.different) == 0)
    }

    @Test func keepsARowThatOneSideHasDeletedAndTheOtherChanged() throws {
        let rig = try BaseRig(
            Self.schema + Self.rows, group: "DELETE FROM t WHERE id = 1; UPDATE t SET v = 'B' WHERE id = 2",
            legacy: "UPDATE t SET v = 'A' WHERE id = 1; DELETE FROM t WHERE id = 2")
        let report = try rig.merge(MergeOptions(prefer: "group"))
        #expect(try rig.rows("SELECT id, v FROM t") == ["1|A", "2|B", "3|c", "4|d"])
        #expect(report.base.first?.keptChanged.count == 2)
    }

    @Test func leavesAConflictToThePreference() throws {
        let rig = try BaseRig(
            Self.schema + Self.rows, group: "UPDATE t SET v = 'g' WHERE id < 3; UPDATE t SET v = 'same' WHERE id = 4",
            legacy: "UPDATE t SET v = 'l' WHERE id = 2; UPDATE t SET v = 'same' WHERE id = 4")
        let failure = #expect(throws: RelocationFailure.self) { try rig.merge(MergeOptions()) }
        #expect(failure?.code == "merge_undecided")
    }

    @Test func saysThatRowsWithoutKeyHaveNoBase() throws {
        let rig = try BaseRig(
            "CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT); INSERT INTO t VALUES ('a', 'a'), ('b', 'b'), (NULL, 'n');",
            group: "DELETE FROM t WHERE k = 'a'", legacy: "DELETE FROM t WHERE k IS NULL")
        let report = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT v FROM t ORDER BY v") == ["b", "n"])
        #expect(report.base.first?.hasRowsWithoutKey == true && report.base.first?.deletedByGroup.count == 1)
    }

    /// One side deletes a parent with its children; the other adds a child.
    @Test func keepsARowThatOthersReferTo() throws {
        let rig = try BaseRig(
            """
            CREATE TABLE p (id TEXT PRIMARY KEY);
            CREATE TABLE c (id INTEGER PRIMARY KEY, p TEXT REFERENCES p ON DELETE CASCADE);
            INSERT INTO p VALUES ('a'), ('b'), ('c');
            INSERT INTO c VALUES (1, 'a'), (2, 'b'), (3, 'c');
            """,
            group: "DELETE FROM c WHERE id < 3; DELETE FROM p WHERE id IN ('a', 'b')",
            legacy: "INSERT INTO c VALUES (4, 'a'); UPDATE c SET p = 'b' WHERE id = 3")
        let report = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT id FROM p ORDER BY id") == ["a", "b", "c"])
        #expect(try rig.rows("SELECT id, p FROM c") == ["3|b", "4|a"])
        #expect(report.base.first { $0.table == "p" }?.keptReferenced == 2)
        #expect(try rig.rows("PRAGMA foreign_key_check").isEmpty)
    }

    /// Both kinds of full-text tables, kept by triggers that must not fire, unique values that change places, and a
    /// table whose key is a text in two columns.
    @Test func keepsIndexesAndUniqueValues() throws {
        let rig = try BaseRig(
            """
            CREATE TABLE n (id INTEGER PRIMARY KEY, text TEXT);
            CREATE VIRTUAL TABLE outer_fts USING fts5(text, content='n', content_rowid='id');
            CREATE VIRTUAL TABLE own_fts USING fts5(text);
            CREATE TRIGGER i AFTER INSERT ON n BEGIN
                INSERT INTO outer_fts (rowid, text) VALUES (new.id, new.text);
                INSERT INTO own_fts (rowid, text) VALUES (new.id, new.text); END;
            CREATE TRIGGER d AFTER DELETE ON n BEGIN
                INSERT INTO outer_fts (outer_fts, rowid, text) VALUES ('delete', old.id, old.text);
                DELETE FROM own_fts WHERE rowid = old.id; END;
            CREATE TABLE w (a TEXT, b TEXT COLLATE NOCASE, v INTEGER UNIQUE, PRIMARY KEY (a, b)) WITHOUT ROWID;
            INSERT INTO n VALUES (1, 'one'), (2, 'two'), (3, 'three');
            INSERT INTO w VALUES ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 3);
            """,
            group: "DELETE FROM n WHERE id = 1; DELETE FROM w WHERE v = 3; INSERT INTO n VALUES (7, 'seven')",
            legacy: "DELETE FROM n WHERE id = 2; UPDATE w SET v = -v; UPDATE w SET v = 3 + v WHERE v > -3")
        let report = try rig.merge(MergeOptions())
        #expect(try rig.rows("SELECT id FROM n") == ["3", "7"])
        for table in ["outer_fts", "own_fts"] {
            #expect(try rig.rows("SELECT rowid FROM \(table) ORDER BY 1") == ["3", "7"])
            #expect(try rig.rows("SELECT rowid FROM \(table) WHERE \(table) MATCH 'one OR two OR three'") == ["3"])
            #expect(try rig.rows("INSERT INTO \(table) (\(table)) VALUES ('integrity-check')").isEmpty)
        }
        // The changed row stays, as it is, and the values of the others have changed places.
        #expect(try rig.rows("SELECT a, b, v FROM w") == ["a|x|2", "a|y|1", "b|x|-3"])
        #expect(report.base.first { $0.table == "w" }?.keptChanged.count == 1)
    }

    @Test func saysWhichTablesHaveNoKey() throws {
        let rig = try BaseRig(
            "CREATE TABLE log (v TEXT); INSERT INTO log VALUES ('a'), ('b');", group: "DELETE FROM log WHERE v = 'a'",
            legacy: "")
        let report = try rig.merge(MergeOptions("log=*"))
        #expect(try rig.rows("SELECT v FROM log ORDER BY v") == ["a", "b"])
        #expect(report.base == [.init(table: "log", obstacle: "its rows have no key")])
    }

    /// SQL takes such numbers for equal.
    @Test func takesAChangeOfTheTypeOrTheSign() throws {
        let rig = try BaseRig(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 1), (2, 1), (3, 0.0), (4, 0.0), (5, 1);",
            group: "UPDATE t SET v = 1.0 WHERE id IN (1, 5); UPDATE t SET v = -0.0 WHERE id = 3",
            legacy: "UPDATE t SET v = 1.0 WHERE id = 2; UPDATE t SET v = -0.0 WHERE id = 4; DELETE FROM t WHERE id = 5")
        let base = try #require(try rig.merge(MergeOptions()).base.first)
        #expect(base.changedByGroup.count == 2 && base.changedByLegacy.count == 2 && base.keptChanged.count == 1)
        #expect(try rig.rows("SELECT typeof(v) FROM t") == ["real", "real", "real", "real", "real"])
        let store = try rig.values("SELECT v FROM t WHERE id IN (3, 4)")
        #expect(store.allSatisfy { if case .real(let number) = $0 { number.sign == .minus } else { false } })
    }

    /// One side comes to refer to a value that the other changes.
    @Test func refusesAForeignKeyThatNeitherSideViolates() throws {
        let rig = try BaseRig(
            """
            CREATE TABLE p (id INTEGER PRIMARY KEY, u TEXT UNIQUE);
            CREATE TABLE c (id INTEGER PRIMARY KEY, u TEXT REFERENCES p (u));
            INSERT INTO p VALUES (1, 'a'), (2, 'b');
            INSERT INTO c VALUES (1, 'a'), (2, NULL);
            """, group: "UPDATE p SET u = 'bb' WHERE id = 2", legacy: "UPDATE c SET u = 'b' WHERE id = 2")
        let failure = #expect(throws: RelocationFailure.self) { try rig.merge(MergeOptions()) }
        #expect(failure?.code == "merge_foreign_key")
    }
}

/// Two stores that come from a third one.
private struct BaseRig {
    private let rig: MergeRig
    private let place: TemporaryDirectory
    private let base: StoreLocation

    init(_ script: String, group: String, legacy: String) throws {
        rig = try MergeRig(script, group: group, legacy: legacy)
        place = try TemporaryDirectory()
        base = try MergeRig.location("Base.sqlite", Directory(place.path))
        try StoreWriter(base.path, creating: true).execute(script: script)
    }

    func merge(_ options: MergeOptions) throws -> MergeReport {
        try StoreMerge(options, base: base).run(
            on: rig.group, of: rig.group.path, merging: rig.legacy, report: { _ in })
    }

    func rows(_ sql: String) throws -> [String] { try rig.rows(sql) }

    /// The values of the first column.
    func values(_ sql: String) throws -> [SQLiteValue] {
        let store = try StoreWriter(rig.group.path)
        let statement = try store.prepare(sql)
        var found: [SQLiteValue] = []
        while try statement.step() { found.append(statement.value(0)) }
        return found
    }
}
