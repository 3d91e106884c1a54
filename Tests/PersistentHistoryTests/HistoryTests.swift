import GRDB
import SQLiteStore
import TestSupport
import Testing

@testable import PersistentHistory

struct HistoryTests {
    @Test func recordsKeyColumnsAuthorAndTime() throws {
        let store = try Fixture()
        #expect(try store.enable().kind == .enabled)
        try store.write(
            """
            BEGIN; UPDATE GS_AUTHOR SET name = 'editor';
            INSERT INTO note (title, body) VALUES ('a', 'b'); UPDATE GS_AUTHOR SET name = NULL; COMMIT;
            UPDATE note SET body = 'c'; DELETE FROM note;
            """)
        let changes = try store.changes()
        #expect(changes.map(\.operation) == [.insert, .update, .delete])
        #expect(changes.map(\.key) == [[.integer(1)], [.integer(1)], [.integer(1)]])
        #expect(changes.map(\.table) == ["note", "note", "note"])
        #expect(changes.map(\.columns) == [nil, ["body"], nil])
        #expect(changes.map(\.author) == ["editor", nil, nil])
        #expect(changes.allSatisfy { $0.time > 1_600_000_000 })
        #expect(Set(changes.map(\.nonce)).count == 3)
    }

    /// A tool that compares the schema with a model of its own drops what the model doesn't have.
    @Test(arguments: HistorySchema.requiredTables + ["all"]) func repairsADroppedHistory(_ dropped: String) throws {
        let store = try Fixture()
        let before = try store.schema()
        _ = try store.enable()
        let token = try store.read { try $0.current() }
        for table in HistorySchema.requiredTables where [table, "all"].contains(dropped) {
            try store.write("DROP TABLE \(table)")
        }
        #expect(try store.enable().kind == .enabled)
        try store.write("INSERT INTO note (title) VALUES ('a'); UPDATE note SET title = 'b'; DELETE FROM note")
        #expect(try store.changes().map(\.operation) == [.insert, .update, .delete])
        // A token from before is another history's.
        #expect(try store.read { try $0.current() }.history != token.history)
        for table in HistorySchema.requiredTables where [table, "all"].contains(dropped) {
            try store.write("DROP TABLE \(table)")
        }
        #expect(try HistoryInstallation(store.location).disable().kind == .disabled)
        #expect(try store.schema() == before)
        try store.write("INSERT INTO note (title) VALUES ('c')")
        #expect(try HistoryInstallation(store.location).disable().kind == .unchanged)
    }

    /// A program's own table may have a name of history's: beside a history that was dropped in part, or alone.
    @Test(arguments: HistorySchema.requiredTables, [false, true])
    func keepsAProgramsOwnTable(_ name: String, besideAHistory: Bool) throws {
        let store = try Fixture()
        if besideAHistory {
            _ = try store.enable()
            try store.write("DROP TABLE \(name)")
        }
        try store.write("CREATE TABLE \(name) (id, name, own); INSERT INTO \(name) VALUES (1, 'a', 'b')")
        let before = try store.schema()
        #expect(throws: (any Error).self) { try store.enable() }
        let disabled = try? HistoryInstallation(store.location).disable()
        #expect(disabled?.kind == (besideAHistory ? nil : .unchanged))
        #expect(try store.schema() == before)
    }

    /// SQLite compares names without regard to case, and so do `CREATE TABLE` and `DROP TABLE`.
    @Test(arguments: [
        "CREATE TABLE Gs_History (id)", "CREATE TABLE gs_author (id, name)", "CREATE TABLE GS_SUBSCRIBER (id)",
        "CREATE VIRTUAL TABLE gs_change USING fts5(text)", "CREATE VIEW GS_TABLE AS SELECT 1",
        "CREATE INDEX gs_change ON note (title)",
    ])
    func leavesAnObjectWithANameOfHistoryAlone(_ creation: String) throws {
        for trigger in ["", "CREATE TRIGGER GS_7_I AFTER INSERT ON note BEGIN SELECT 'GS_CHANGE'; END"] {
            let store = try Fixture()
            try store.write(creation + ";" + trigger)
            let before = try store.schema()
            let error = #expect(throws: HistoryError.self) { try store.enable() }
            #expect(error?.errorCode == "foreign_table")
            #expect(try store.schema() == before)
            _ = try? HistoryInstallation(store.location).disable()
            #expect(try store.schema() == before)
        }
    }

    /// Only replicas have the table, so a program's own stands beside a history.
    @Test(arguments: ["gs_replica", "GS_REPLICA"], [false, true])
    func recordsATableNamedLikeAReplicas(_ name: String, isLater: Bool) throws {
        let store = try Fixture()
        let creation = "CREATE TABLE \(name) (id INTEGER PRIMARY KEY, a)"
        if !isLater { try store.write(creation) }
        _ = try store.enable()
        if isLater {
            try store.write(creation)
            #expect(throws: HistoryError.outdated(table: name, store.location.path)) {
                try StoreReader.read(store.location) { try ChangeBatch($0) }
            }
            #expect(try store.enable().kind == .updated)
        }
        try store.write("INSERT INTO \(name) VALUES (7, 1)")
        #expect(try store.changes().last?.table == name)
        #expect(try HistoryInstallation(store.location).disable().kind == .disabled)
        #expect(try store.schema().filter { $0.contains("GS_") || $0.contains("gs_") }.count == 1)
        try store.write("INSERT INTO \(name) VALUES (8, 1)")
    }

    @Test func recordsAKeyOfSeveralColumns() throws {
        let store = try Fixture("CREATE TABLE t (a TEXT COLLATE NOCASE, b, PRIMARY KEY (a, b)) WITHOUT ROWID")
        _ = try store.enable()
        try store.write("INSERT INTO t VALUES ('it''s, so', x'00ff'), ('n', 1.5); REPLACE INTO t VALUES ('N', 1.5)")
        let changes = try store.changes()
        #expect(changes.map(\.operation) == [.insert, .insert, .delete, .insert])
        #expect(
            changes.map(\.key) == [
                [.text("it's, so"), .blob([0, 255])], [.text("n"), .real(1.5)], [.text("n"), .real(1.5)],
                [.text("N"), .real(1.5)],
            ])
    }

    /// A trigger that only has the name of one of history's is a program's own.
    @Test(arguments: ["GS_1_I", "gs_3_x", "GS_12_C3"], [false, true])
    func leavesAProgramsOwnTriggerAlone(_ name: String, besideAHistory: Bool) throws {
        let store = try Fixture()
        let name = besideAHistory ? name.replacing("_", with: "_9", maxReplacements: 1) : name
        let trigger = "CREATE TRIGGER \(name) AFTER INSERT ON note BEGIN UPDATE note SET body = 'no GS_CHANGE'; END"
        if !besideAHistory { try store.write(trigger) }
        let before = try store.schema()
        if besideAHistory {
            _ = try store.enable()
            try store.write(trigger)
        }
        #expect(throws: HistoryError.foreign("the trigger \(name)", store.location.path)) { try store.enable() }
        _ = try HistoryInstallation(store.location).disable()
        #expect(try store.schema().filter { !$0.hasSuffix(trigger) } == before.filter { !$0.hasSuffix(trigger) })
        #expect(try store.schema().contains { $0.hasSuffix(trigger) })
    }

    /// In a trigger, NEW and OLD are the row, and history's own tables begin with GS_.
    @Test(arguments: ["new", "OLD", "gs_notes", "GS_NOTES"], ["", "WITHOUT ROWID"])
    func recordsATableOfAnyName(_ name: String, _ kind: String) throws {
        let store = try Fixture("CREATE TABLE \(name) (a INTEGER PRIMARY KEY, b UNIQUE, c UNIQUE) \(kind)")
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO \(name) VALUES (1, 10, 100), (2, 20, 200), (3, 30, 300);
            REPLACE INTO \(name) VALUES (4, 10, 200); UPDATE OR REPLACE \(name) SET b = 30 WHERE a = 4
            """)
        let gone = try store.changes().filter { $0.operation == .delete }.map(\.key)
        #expect(gone.count == 3)
        for key: Int64 in 1...3 { #expect(gone.contains([.integer(key)])) }
        #expect(try store.changes().allSatisfy { $0.table == name })
    }

    /// TEMP triggers run before all others: their changes to the row are recorded before the change that fired them.
    @Test(
        arguments: ["id INTEGER PRIMARY KEY, u UNIQUE", "id TEXT COLLATE NOCASE, u, PRIMARY KEY (id, u)"],
        [
            ("DELETE", "INSERT INTO t VALUES (old.id, old.u)", "DELETE FROM t WHERE id = 1", true),
            ("UPDATE", "DELETE FROM t WHERE id = new.id", "UPDATE t SET u = 20 WHERE id = 1", false),
            ("UPDATE", "DELETE FROM t WHERE id = new.id", "UPDATE t SET id = 7 WHERE id = 1", false),
            ("UPDATE", "INSERT INTO t VALUES (old.id, old.u)", "UPDATE t SET id = 7, u = 20 WHERE id = 1", true),
            ("INSERT", "DELETE FROM t WHERE id = new.id", "INSERT OR REPLACE INTO t VALUES (1, 10)", false),
        ])
    func recordsTheTrueStateLastDespiteATemporaryTrigger(
        _ columns: String, _ change: (event: String, trigger: String, statement: String, isThere: Bool)
    ) throws {
        let store = try Fixture("CREATE TABLE t (\(columns))\(columns.contains("TEXT") ? " WITHOUT ROWID" : "")")
        _ = try store.enable()
        try store.write("INSERT INTO t VALUES (1, 10)")
        let inserted = try store.changes()
        try store.write(
            "CREATE TEMP TRIGGER tr AFTER \(change.event) ON main.t BEGIN \(change.trigger); END; \(change.statement)")
        let last = try #require(try store.changes().last { $0.key == inserted[0].key })
        #expect((last.operation != .delete) == change.isThere)
        let changes = try store.changes()
        let moved = changes.last { $0.key.first == .integer(7) || $0.key.first == .text("7") }
        #expect(moved.map { $0.operation != .delete } ?? change.isThere == change.isThere)
    }

    /// In a trigger, `new` and `old` are the row.
    @Test(arguments: ["new", "OLD", "excluded"]) func recordsATableRenamedToAnyName(_ name: String) throws {
        let store = try Fixture("CREATE TABLE t (a INT, b BLOB, c, PRIMARY KEY (a, b)); INSERT INTO t VALUES (1, 1, 1)")
        _ = try store.enable()
        try store.write("ALTER TABLE t RENAME TO \(name); INSERT INTO \(name) VALUES (2, 2, 2), (3, 3, 3)")
        try store.write("REPLACE INTO \(name) VALUES (1, 1, 4)")
        let gone = try store.changes().filter { $0.operation == .delete }
        #expect(gone.map(\.key) == [[.integer(1)]] && gone.map(\.table) == [name])
    }

    /// A TEMP trigger writes in the middle of the statement that fired it.
    @Test func recordsAReplacedRowThoughATemporaryTriggerReplacesToo() throws {
        let store = try Fixture("CREATE TABLE t (a INTEGER PRIMARY KEY, u UNIQUE)")
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO t VALUES (1, 10), (2, 20);
            CREATE TEMP TRIGGER tr AFTER INSERT ON main.t WHEN new.u = 10 BEGIN REPLACE INTO t VALUES (9, 20); END;
            REPLACE INTO t VALUES (5, 10); DROP TRIGGER tr;
            CREATE TEMP TRIGGER tr AFTER INSERT ON main.t WHEN new.a = 6 BEGIN INSERT INTO t VALUES (7, new.u); END;
            REPLACE INTO t VALUES (6, 10)
            """)
        let changes = try store.changes()
        let there: [(Int64, Bool)] = [(1, false), (2, false), (5, false), (6, false), (7, true), (9, true)]
        for (key, isThere) in there {
            let last = changes.last { $0.key == [.integer(key)] }
            #expect(last.map { $0.operation != .delete } == isThere, "\(key)")
        }
    }

    /// The triggers don't know the new column yet.
    @Test func reportsUnknownColumnsAfterAColumnIsAdded() throws {
        let store = try Fixture("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c)")
        _ = try store.enable()
        try store.write("INSERT INTO t VALUES (1, 1, 1); UPDATE t SET b = 2")
        #expect(try store.changes().last?.columns == ["b"])
        try store.write("ALTER TABLE t ADD COLUMN d; UPDATE t SET b = 3, d = 3")
        #expect(try store.changes().last?.columns == nil)
        _ = try store.enable()
        try store.write("UPDATE t SET b = 4, d = 4")
        #expect(try store.changes().last?.columns == ["b", "d"])
    }

    /// SQLite computes an index's expressions only for rows that are in the index.
    @Test func evaluatesAPartialIndexOnlyForRowsInIt() throws {
        let store = try Fixture(
            """
            CREATE TABLE t (a INTEGER PRIMARY KEY, kind, body);
            CREATE UNIQUE INDEX i ON t (json_extract(body, '$.id')) WHERE kind = 'json'
            """)
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO t VALUES (1, 'text', 'no JSON {'), (2, 'json', '{"id": 7}'), (3, NULL, '[');
            UPDATE t SET body = '{{' WHERE a = 1; REPLACE INTO t VALUES (4, 'json', '{"id": 7}')
            """)
        let gone = try store.changes().filter { $0.operation == .delete }
        #expect(gone.map(\.key) == [[.integer(2)]])
    }

    @Test func leavesNoTraceAfterDisabling() throws {
        let store = try Fixture(
            "CREATE TABLE note (id INTEGER PRIMARY KEY, u UNIQUE); CREATE INDEX i ON note (u); CREATE TABLE t (a)")
        let before = try store.schema()
        _ = try store.enable()
        try store.write("REPLACE INTO note VALUES (1, 2), (3, 2)")
        #expect(try store.schema().count > before.count)
        #expect(try HistoryInstallation(store.location).disable().kind == .disabled)
        #expect(try store.schema() == before)
        #expect(try HistoryInstallation(store.location).disable().kind == .unchanged)
        #expect(throws: HistoryError.disabled(store.location.path)) { () throws in try store.current() }
    }

    @Test func changesNothingWhenEnabledTwice() throws {
        let store = try Fixture()
        _ = try store.enable()
        let schema = try store.schema()
        try store.write("INSERT INTO note (title) VALUES ('a')")
        #expect(try store.enable().kind == .unchanged)
        #expect(try store.schema() == schema)
        #expect(try store.changes().count == 1)
    }

    @Test func recordsWithUntrustedSchemaAndIgnoredConflicts() throws {
        let store = try Fixture("CREATE TABLE note (id INTEGER PRIMARY KEY, u UNIQUE NOT NULL)")
        _ = try store.enable()
        try store.write(
            """
            PRAGMA trusted_schema = OFF; INSERT INTO note VALUES (1, 'a');
            INSERT OR IGNORE INTO note VALUES (2, 'a'), (1, 'b'); INSERT OR REPLACE INTO note VALUES (2, 'a');
            INSERT INTO note VALUES (2, 'c') ON CONFLICT DO UPDATE SET u = excluded.u;
            """)
        #expect(try store.changes().map(\.operation) == [.insert, .delete, .insert, .update])
    }

    // MARK: The schema changes

    @Test func followsCreatedAndDroppedTables() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("CREATE TABLE tag (id INTEGER PRIMARY KEY); ALTER TABLE note RENAME TO page")
        #expect(try store.read { try $0.summary().isOutdated })
        let token = try store.current()
        #expect(try store.enable().gaps == ["note", "page"])
        try store.write("INSERT INTO tag VALUES (1); INSERT INTO page (title) VALUES ('a')")
        #expect(try store.changes(after: token).map(\.table) == ["note", "page", "tag", "page"])
        try store.write("DROP TABLE tag")
        #expect(try store.enable().gaps == ["tag"])
        #expect(try store.changes(after: token).map(\.operation) == [.gap, .gap, .insert, .insert, .gap])
    }

    @Test func recordsAGapForARecreatedTable() throws {
        let store = try Fixture()
        _ = try store.enable()
        let token = try store.current()
        try store.write(
            """
            CREATE TABLE new (id INTEGER PRIMARY KEY, title TEXT NOT NULL); INSERT INTO new SELECT id, title FROM note;
            DROP TABLE note; ALTER TABLE new RENAME TO note; INSERT INTO note VALUES (7, 'unrecorded');
            """)
        #expect(try store.enable().gaps == ["note"])
        try store.write("INSERT INTO note VALUES (8, 'recorded')")
        #expect(try store.changes(after: token).map(\.operation) == [.gap, .insert])
    }

    @Test func survivesADroppedColumn() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write(
            "ALTER TABLE note DROP COLUMN body; INSERT INTO note (title) VALUES ('a'); UPDATE note SET title = 'b'")
        #expect(try store.changes().map(\.columns) == [nil, ["title"]])
        #expect(try store.enable().gaps == [])
    }

    @Test func survivesARenamedColumn() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("ALTER TABLE note RENAME COLUMN body TO content; UPDATE note SET content = 'a'")
        #expect(try store.enable().gaps == [])
        try store.write("INSERT INTO note (title) VALUES ('a'); UPDATE note SET content = 'b'")
        #expect(try store.changes().map(\.columns) == [nil, ["content"]])
    }

    @Test func recordsReplacedRowsFirst() throws {
        let store = try Fixture("CREATE TABLE note (id INTEGER PRIMARY KEY, u UNIQUE, title)")
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO note VALUES (1, 'a', 0), (2, 'b', 0); REPLACE INTO note VALUES (3, 'a', 0), (2, 'c', 1);
            UPDATE OR REPLACE note SET u = 'c' WHERE id = 3; UPDATE OR REPLACE note SET id = 4, u = 'd';
            """)
        let changes = try store.changes()
        #expect(
            changes.map(\.operation) == [
                .insert, .insert, .delete, .insert, .update, .delete, .update, .delete, .insert,
            ])
        #expect(
            changes.map(\.key) == [1, 2, 1, 3, 2, 2, 3, 3, 4].map { [.integer($0)] })
        #expect(changes[6].columns == ["u"] && changes[4].columns == nil)
    }

    @Test func appliesADefaultInAPartialIndex() throws {
        let store = try Fixture("CREATE TABLE t (c NOT NULL DEFAULT 2, d); CREATE UNIQUE INDEX p ON t (d) WHERE c > 1")
        _ = try store.enable()
        try store.write("INSERT INTO t VALUES (4, 'x'); INSERT OR REPLACE INTO t VALUES (NULL, 'x')")
        #expect(try store.changes().map(\.operation) == [.insert, .delete, .insert])
    }

    // MARK: Tokens

    @Test func continuesAfterAToken() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("INSERT INTO note (title) VALUES ('a'), ('b')")
        let token = try #require(HistoryToken(try store.current().description))
        #expect(try store.changes(after: token).isEmpty)
        try store.write("INSERT INTO note (title) VALUES ('c')")
        #expect(try store.changes(after: token).map(\.key) == [[.integer(3)]])
        let page = try store.read { try $0.changes(after: $0.start(), limit: 2) }
        #expect(!page.isLast && page.token == token)
    }

    @Test func rejectsATokenInARestoredStore() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("INSERT INTO note (title) VALUES ('a')")
        try store.write("VACUUM INTO '\(store.directory.path.appending("backup").string)'")
        try store.write("INSERT INTO note (title) VALUES ('b')")
        let token = try store.current()
        let restored = try Fixture("SELECT 1", name: "b.sqlite")
        let queue = try DatabaseQueue(path: store.directory.path.appending("backup").string)
        try queue.backup(to: DatabaseQueue(path: restored.location.path.string))
        try queue.close()
        #expect(try restored.discontinuity(after: token) == .epoch)
        try restored.write("INSERT INTO note (title) VALUES ('another')")
        #expect(try restored.current().number == token.number)
        #expect(try restored.discontinuity(after: token) == .epoch)
        let foreign = HistoryToken(history: "other", number: token.number, nonce: token.nonce)
        #expect(try store.discontinuity(after: foreign) == .epoch)
    }

    @Test(arguments: [
        "", "h1", "h1..1.0", "h1.a.-1.0", "h1.a.1.g", "0123456789ab-5", "h2.a.1.0", "h1.a.1.0.g", "h1.a.1.0.0.0",
    ])
    func rejectsAnInvalidToken(_ text: String) { #expect(HistoryToken(text) == nil) }

    // MARK: Purging

    @Test func keepsUnacknowledgedChangesInAPurge() throws {
        let store = try Fixture()
        _ = try store.enable()
        let maintenance = HistoryMaintenance(store.location)
        let start = try store.current()
        try store.write("INSERT INTO note (title) VALUES ('a'), ('b'), ('c'), ('d')")
        let first = try store.changes()[0]
        let token = HistoryToken(history: start.history, number: first.number, nonce: first.nonce)
        try maintenance.acknowledge(token, by: "index")
        var purge = HistoryMaintenance.Purge()
        purge.count = 1
        #expect(try maintenance.purge(purge) == .init(purged: 1, left: 3, heldBy: "index"))
        #expect(try store.discontinuity(after: start) == .trimmed)
        #expect(try store.changes(after: token).count == 3)
        #expect(throws: StoreHistory.Discontinuity.trimmed) {
            () throws in try maintenance.acknowledge(start, by: "late")
        }
        purge.force = true
        #expect(try maintenance.purge(purge) == .init(purged: 2, left: 1, heldBy: nil))
        #expect(try store.discontinuity(after: token) == .trimmed)
        #expect(try maintenance.forget(subscriber: "index"))
        #expect(try !maintenance.forget(subscriber: "index"))
    }

    @Test func purgesAnUpdateWithItsColumns() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO note (title) VALUES ('a'); UPDATE note SET title = 'b', body = 'b';
            UPDATE note SET body = 'c'
            """)
        let start = try store.read { try $0.start() }
        var purge = HistoryMaintenance.Purge()
        purge.count = 2
        let maintenance = HistoryMaintenance(store.location)
        #expect(try maintenance.purge(purge) == .init(purged: 1, left: 2, heldBy: nil))
        #expect(try store.changes().map(\.columns) == [["title", "body"], ["body"]])
        #expect(try store.discontinuity(after: start) == .trimmed)
        let first = try store.changes()[0]
        let known = HistoryToken(history: start.history, number: first.number, nonce: first.nonce)
        #expect(try store.changes(after: known).map(\.columns) == [["body"]])
        purge.count = 0
        #expect(try maintenance.purge(purge) == .init(purged: 1, left: 1, heldBy: nil))
        #expect(try store.changes().map(\.columns) == [["body"]])
        #expect(try store.changes(after: known).count == 1)
    }

    @Test func keepsTheChangesOfVersion1() throws {
        let store = try Fixture()
        _ = try store.enable()
        // Version 1 kept an update's columns in its own row.
        try store.write(
            """
            DROP TRIGGER GS_1_C0; DROP TRIGGER GS_1_C1; DROP TRIGGER GS_1_C2; UPDATE GS_HISTORY SET version = 1;
            INSERT INTO note (title) VALUES ('a'); UPDATE note SET title = 'b';
            UPDATE GS_CHANGE SET columns = 2 WHERE operation = 1
            """)
        let outcome = try store.enable()
        #expect(outcome.kind == .updated && outcome.gaps.isEmpty)
        try store.write("UPDATE note SET body = 'c'")
        #expect(try store.changes().map(\.columns) == [nil, ["title"], ["body"]])
    }

    @Test func neverReusesANumber() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("INSERT INTO note (title) VALUES ('a'), ('b')")
        let token = try store.current()
        var purge = HistoryMaintenance.Purge()
        purge.count = 0
        purge.age = 0
        _ = try HistoryMaintenance(store.location).purge(purge)
        try store.write("DELETE FROM note")
        #expect(try store.changes(after: token).map(\.number) == [3, 4])
    }

    // MARK: Filters

    @Test func advancesTheTokenPastFilteredChanges() throws {
        let store = try Fixture("CREATE TABLE a (x); CREATE TABLE b (x)")
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO a VALUES (1); BEGIN; UPDATE GS_AUTHOR SET name = 'me'; INSERT INTO b VALUES (1);
            UPDATE GS_AUTHOR SET name = NULL; COMMIT; DELETE FROM a;
            """)
        var filter = HistoryFilter()
        filter.exceptAuthors = ["me"]
        #expect(try store.changes(filter: filter).map(\.table) == ["a", "a"])
        filter.operations = [.delete]
        #expect(try store.changes(filter: filter).map(\.operation) == [.delete])
        filter = HistoryFilter()
        filter.tables = ["b"]
        let page = try store.read { try $0.changes(after: $0.start(), limit: 10, filter: filter) }
        #expect(page.changes.map(\.author) == ["me"])
        #expect(page.token == (try store.current()))
    }
}
