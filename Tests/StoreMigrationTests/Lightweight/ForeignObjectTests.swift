import CoreDataStore
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Foreign objects of a store, which the app or another program created, after a migration by a mapping model.
struct ForeignObjectTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private static func entity(_ attributes: String...) -> String {
        let all = attributes.map { "<attribute name='\($0)' optional='YES' attributeType='String'/>" }
        return "<entity name='A'>\(all.joined())</entity>"
    }

    /// Migrates from an entity A with x and y to one with x alone.
    private func migrated(
        _ statements: [String], to new: String = entity("x"), named name: String = "A"
    ) throws -> MigratedStore {
        let source = try model(Self.entity("x", "y"))
        let path = try MigratedStore.make(source, in: directory, statements)
        let mapping = try YAMLMappingReader.read(Array("mapping: 1\nentities:\n  - {from: A, to: \(name)}".utf8))
        return try MigratedStore(mapping, path, from: source, to: model(new), in: directory)
    }

    private static let row = "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZX, ZY) VALUES (1, 1, 1, 'q', 'r')"

    @Test func keysAndRowNumbersAreKept() throws {
        let store = try migrated([
            "CREATE TABLE seq (i INTEGER PRIMARY KEY AUTOINCREMENT, v)",
            "INSERT INTO seq (v) VALUES ('a'), ('b'), ('c')",
            "DELETE FROM seq WHERE i = 3", "CREATE TABLE plain (v, doubled AS (v * 2), CHECK (v < 100))",
            "INSERT INTO plain (rowid, v) VALUES (7, 1), (9, 2)", "CREATE TABLE keyed (k PRIMARY KEY, v) WITHOUT ROWID",
            "INSERT INTO keyed VALUES ('a', 1)", "PRAGMA user_version = 42", "PRAGMA application_id = 77",
        ])
        #expect(try store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'seq'") == ["3"])
        #expect(try store.rows("SELECT rowid, v, doubled FROM plain") == ["7|1|2", "9|2|4"])
        #expect(try store.rows("SELECT * FROM keyed") == ["a|1"])
        #expect(try store.rows("PRAGMA user_version") + store.rows("PRAGMA application_id") == ["42", "77"])
        #expect(store.notes.isEmpty, "\(store.notes)")
    }

    @Test func dropsAndReportsObjectsThatUseDroppedColumns() throws {
        let store = try migrated([
            Self.row, "CREATE INDEX ix ON ZA (ZX)", "CREATE INDEX iy ON ZA (ZY)",
            "CREATE VIEW above AS SELECT * FROM vx", "CREATE VIEW vx AS SELECT ZX FROM ZA",
            "CREATE VIEW over AS SELECT * FROM vy", "CREATE VIEW vy AS SELECT ZY FROM ZA", "CREATE TABLE log (what)",
            "CREATE TRIGGER tx AFTER UPDATE OF ZX ON ZA BEGIN INSERT INTO log VALUES (NEW.ZX); END",
            "CREATE TRIGGER ty AFTER UPDATE OF ZY ON ZA BEGIN DELETE FROM log; END",
            "CREATE TRIGGER moved AFTER UPDATE OF rowid, _rowid_, oid ON ZA BEGIN DELETE FROM log; END",
            "CREATE TRIGGER seen INSTEAD OF INSERT ON vx BEGIN INSERT INTO log VALUES (NEW.ZX); END",
        ])
        #expect(
            try store.rows(
                "SELECT name FROM sqlite_schema WHERE type <> 'table' AND name NOT LIKE 'sqlite%' ORDER BY 1")
                == ["above", "ix", "moved", "seen", "tx", "vx"])
        for name in ["iy", "over", "vy", "ty"] {
            #expect(store.notes.contains { $0.contains(" \(name) is dropped") }, "\(name): \(store.notes)")
        }
        #expect(store.notes.count == 4, "\(store.notes)")
        // A view of a dropped column would make every change of the schema fail.
        #expect(try store.rows("ALTER TABLE log RENAME TO logged").isEmpty)
    }

    @Test func virtualTablesAreCarriedOverWhole() throws {
        let store = try migrated([
            Self.row, "CREATE VIRTUAL TABLE ft USING fts5 (a)", "INSERT INTO ft (rowid, a) VALUES (5, 'hello world')",
            "CREATE VIRTUAL TABLE four USING fts4 (a)", "INSERT INTO four (docid, a) VALUES (8, 'hello there')",
            "CREATE VIRTUAL TABLE box USING rtree (id, x0, x1)", "INSERT INTO box VALUES (3, 1, 2)",
            "CREATE VIRTUAL TABLE of_a USING fts5 (ZX, content = 'ZA', content_rowid = 'Z_PK')",
            "INSERT INTO of_a (of_a) VALUES ('rebuild')",
            "CREATE TRIGGER indexed AFTER INSERT ON ZA BEGIN INSERT INTO ft (a) VALUES (NEW.ZX); END",
        ])
        #expect(try store.rows("SELECT rowid, a FROM ft WHERE ft MATCH 'hello'") == ["5|hello world"])
        #expect(try store.rows("SELECT docid FROM four WHERE four MATCH 'there'") == ["8"])
        #expect(try store.rows("SELECT id FROM box WHERE x0 < 2 AND x1 > 1") == ["3"])
        #expect(try store.rows("SELECT rowid FROM of_a WHERE of_a MATCH 'q'") == ["1"])
        _ = try store.rows("INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZX) VALUES (2, 1, 1, 'later')")
        #expect(try store.rows("SELECT rowid FROM ft WHERE ft MATCH 'later'") == ["6"])
        #expect(try store.rows("INSERT INTO ft (ft) VALUES ('integrity-check')").isEmpty)
        #expect(try store.rows("PRAGMA integrity_check") == ["ok"])
        _ = try store.rows("DROP TABLE ft")
        #expect(try store.rows("SELECT name FROM sqlite_schema WHERE name LIKE 'ft%'").isEmpty)
        #expect(store.notes.count == 1 && store.notes[0].contains("of_a"), "\(store.notes)")
    }

    /// Only the store's programs have the module, but the table is theirs and must be kept.
    @Test func aVirtualTableOfAnUnknownModuleIsCarriedOver() throws {
        let sql = "CREATE VIRTUAL TABLE theirs USING their_module (a)"
        let store = try migrated([
            "CREATE TABLE theirs_data (id INTEGER PRIMARY KEY, a)", "INSERT INTO theirs_data VALUES (4, 'x')",
            "PRAGMA writable_schema = ON",
            "INSERT INTO sqlite_schema VALUES ('table', 'theirs', 'theirs', 0, '\(sql)')",
            "PRAGMA writable_schema = RESET",
        ])
        #expect(try store.rows("SELECT sql FROM sqlite_schema WHERE name = 'theirs'") == [sql])
        #expect(try store.rows("SELECT * FROM theirs_data") == ["4|x"])
    }

    /// Only the store's program has the tokenizer: the table works as little in the older store.
    @Test func aVirtualTableOfAnUnknownTokenizerIsCarriedOver() throws {
        let sql = "CREATE VIRTUAL TABLE words USING fts5 (a, tokenize = ''theirs'')"
        let store = try migrated([
            "CREATE VIRTUAL TABLE words USING fts5 (a)", "INSERT INTO words (rowid, a) VALUES (5, 'hello')",
            "PRAGMA writable_schema = ON", "UPDATE sqlite_schema SET sql = '\(sql)' WHERE name = 'words'",
            "PRAGMA writable_schema = RESET",
        ])
        #expect(try store.rows("SELECT count(*) FROM sqlite_schema WHERE name = 'words'") == ["1"])
        #expect(try store.rows("SELECT c0 FROM words_content") == ["hello"])
        #expect(store.notes.isEmpty, "\(store.notes)")
    }

    /// The entity, whose rows `a` reads, has another table in the new model. The shadow tables of `a_b` begin with the
    /// name of `a` too.
    @Test func droppingAVirtualTableKeepsTheOthersContent() throws {
        let store = try migrated(
            [
                Self.row, "CREATE VIRTUAL TABLE a USING fts4 (content='ZA')",
                "CREATE VIRTUAL TABLE a_b USING fts5 (t)", "INSERT INTO a_b (rowid, t) VALUES (5, 'hello world')",
            ], to: Self.entity("x").replacing("'A'", with: "'B'"), named: "B")
        #expect(store.notes.contains { $0.hasPrefix("the virtual table a is dropped: ") }, "\(store.notes)")
        #expect(try store.rows("SELECT name FROM sqlite_schema WHERE name IN ('a', 'a_segdir')").isEmpty)
        #expect(try store.rows("SELECT rowid, t FROM a_b WHERE a_b MATCH 'hello'") == ["5|hello world"])
    }

    /// The table holds a row that its own constraint forbids, and the constraint's clause would leave the row out or
    /// change it.
    @Test(arguments: ["IGNORE", "REPLACE"])
    func refusesARowThatAConflictClauseWouldLose(_ clause: String) throws {
        let constraint = "a NOT NULL ON CONFLICT \(clause) DEFAULT 5"
        let refused = #expect(throws: MigrationError.self) {
            try migrated([
                "CREATE TABLE f (a)", "INSERT INTO f VALUES (NULL), ('x')", "PRAGMA writable_schema = ON",
                "UPDATE sqlite_schema SET sql = 'CREATE TABLE f (\(constraint))' WHERE name = 'f'",
                "PRAGMA writable_schema = RESET",
            ])
        }
        #expect(refused?.message.contains("f.a") == true)
    }

    @Test func refusesATableWhoseNameTheModelNeeds() throws {
        let taken = #expect(throws: MigrationError.self) {
            try migrated(
                ["CREATE TABLE zb (a)", "INSERT INTO zb VALUES (1)"], to: Self.entity("x") + "<entity name='B'/>")
        }
        #expect(taken?.message.contains("zb") == true)
    }

    @Test func parsesATriggersEvent() {
        func event(_ sql: String) -> TriggerEvent? { TriggerEvent(creation: "CREATE TRIGGER " + sql) }
        let odd = event(
            "\"update of\" /* x */ BEFORE UPDATE OF a, \"b c\", [d], `e``f` -- on\n ON t BEGIN SELECT 1; END")
        #expect(odd?.operation == .update && odd?.columns == ["a", "b c", "d", "e`f"])
        #expect(event("t INSTEAD OF INSERT ON v BEGIN SELECT 1; END")?.operation == .insert)
        #expect(event("t delete on v begin select 1; end")?.operation == .delete)
        #expect(event("t AFTER UPDATE ON v BEGIN UPDATE x SET b = 1; END")?.columns == [])
    }
}
