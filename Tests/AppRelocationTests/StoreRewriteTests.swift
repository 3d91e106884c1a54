import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// Paths in stores: changed on the way, and given back by `--undo`.
@Suite(.ownThreads) struct StoreRewriteTests {
    private func sqlite(_ store: FilePath, _ sql: String) throws -> String {
        let done = try run("sqlite3", ["-batch", "-bail", "-init", "/dev/null", Word(store), Word(sql)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
        return done.output
    }

    /// Adds tables with paths of the rig to its store. `/OLD` stands for the old place.
    private func addPaths(_ rig: AppRig) throws {
        let sql = """
            CREATE TABLE book (id INTEGER PRIMARY KEY, path TEXT UNIQUE, note, size AS (length(path)));
            INSERT INTO book (path, note) VALUES ('/OLD/b/1', 'see /OLD/b'), ('/OLD', 7), ('/OLDER/x', '/OLD/n'),
                (NULL, x'2f4f4c44'), ('file:///OLD/%41', '{"p":"/OLD/q"}');
            CREATE TABLE keyed (path TEXT, n, PRIMARY KEY (path)) WITHOUT ROWID;
            INSERT INTO keyed VALUES ('/OLD/a', 1), ('/x', 2);
            CREATE TABLE log (text);
            CREATE TRIGGER watch AFTER UPDATE ON book BEGIN INSERT INTO log VALUES ('changed'); END;
            CREATE VIRTUAL TABLE found USING fts5(path);
            INSERT INTO found VALUES ('/OLD/in/index');
            """
        _ = try sqlite(rig.source.appending("store.db"), sql.replacing("/OLD", with: rig.source.string))
    }

    private func dump(_ path: FilePath) throws -> String {
        let rows = try sqlite(path.appending("store.db"), "SELECT * FROM book; SELECT * FROM keyed; SELECT * FROM log")
        return try rows + sqlite(path.appending("store.db"), ".dump")
    }

    private func request(_ rig: AppRig) throws -> AppMoveRequest {
        var request = rig.request()
        request.rewrites = [try #require(PathRewrite(old: rig.source, new: rig.destination))]
        return request
    }

    @Test func changesWhatSQLByHandChanges() throws {
        let rig = try AppRig(.same)
        try addPaths(rig)
        let preview = try AppRelocation(request(rig)).dryRun()
        let summary = try AppRelocation(request(rig)).run()
        #expect(summary.method == .copy)
        #expect(preview.rewritten == summary.rewritten)
        let counts = summary.rewritten.map { "\($0.table).\($0.column) \($0.count)" }
        #expect(counts.sorted() == ["book.note 2", "book.path 3", "keyed.path 1"])
        let (old, new) = (rig.source.string, rig.destination.string)
        let rows = try sqlite(rig.destination.appending("store.db"), "SELECT path, note FROM book ORDER BY id")
        #expect(
            rows == """
                \(new)/b/1|see \(old)/b
                \(new)|7
                \(old)ER/x|\(new)/n
                |/OLD
                file://\(new)/%41|{"p":"\(new)/q"}

                """)
        let rest = "SELECT * FROM log; SELECT path FROM found; SELECT path FROM keyed; PRAGMA integrity_check"
        let found = try sqlite(rig.destination.appending("store.db"), rest)
        #expect(found == "\(old)/in/index\n\(["\(new)/a", "/x"].sorted().joined(separator: "\n"))\nok\n")
    }

    @Test func undoGivesEachCellBack() throws {
        let rig = try AppRig(.another)
        try addPaths(rig)
        let before = try dump(rig.source)
        _ = try AppRelocation(request(rig)).run()
        #expect(try dump(rig.destination) != before)
        // A cell that the program changes meanwhile stays as the program left it.
        _ = try sqlite(rig.destination.appending("store.db"), "UPDATE keyed SET n = 3 WHERE n = 2")
        _ = try AppRelocation(rig.request()).undo()
        let expected = before.replacing("'/x',2)", with: "'/x',3)").replacing("/x|2\n", with: "/x|3\n")
        #expect(try dump(rig.source) == expected)
        #expect(FileStatus(following: rig.destination) == nil)
    }

    /// `VACUUM` numbers rows anew that have no INTEGER PRIMARY KEY. No cell is given back for another one.
    @Test func undoFindsCellsByTheirDeclaredKey() throws {
        let rig = try AppRig(.another)
        let (store, moved) = (rig.source.appending("store.db"), rig.destination.appending("store.db"))
        let (old, new) = (rig.source.string, rig.destination.string)
        let sql = """
            CREATE TABLE numbered (id INTEGER PRIMARY KEY, path); CREATE TABLE named (name TEXT PRIMARY KEY, path);
            CREATE TABLE plain (path);
            INSERT INTO numbered VALUES (1, '/x'), (5, 'OLD/a'), (9, 'NEW/a');
            INSERT INTO named VALUES ('gone', 1), ('theirs', 'NEW/a'), ('ours', 'OLD/a'), (NULL, 'OLD/null');
            INSERT INTO plain VALUES ('gone'), ('NEW/a'), ('OLD/a'), ('OLD/b'), ('OLD/c'), ('OLD/c');
            """
        _ = try sqlite(store, sql.replacing("OLD", with: old).replacing("NEW", with: new))
        _ = try AppRelocation(request(rig)).run()
        _ = try sqlite(
            moved,
            """
            DELETE FROM numbered WHERE id = 1; DELETE FROM named WHERE name = 'gone';
            DELETE FROM plain WHERE path = 'gone' OR rowid = 5; VACUUM
            """)
        let summary = try AppRelocation(rig.request()).undo()
        let rows = try sqlite(
            store, "SELECT id, path FROM numbered; SELECT * FROM named ORDER BY 1; SELECT path FROM plain ORDER BY 1")
        let expected = """
            5|OLD/a
            9|NEW/a
            |OLD/null
            ours|OLD/a
            theirs|NEW/a

            """
        let plain =
            ["NEW/a", "NEW/a", "OLD/b", "OLD/c"]
            .map { $0.replacing("OLD", with: old).replacing("NEW", with: new) }.sorted().joined(separator: "\n") + "\n"
        #expect(rows == expected.replacing("OLD", with: old).replacing("NEW", with: new) + plain)
        let left = summary.left.map { "\($0.table).\($0.column) \($0.reason) \($0.count)" }
        #expect(left.sorted() == ["plain.path ambiguous 1", "plain.path changed 1"])
    }

    @Test func undoCountsWhatItCannotFind() throws {
        let rig = try AppRig(.another)
        let (store, moved) = (rig.source.appending("store.db"), rig.destination.appending("store.db"))
        let sql = """
            CREATE TABLE a (id INTEGER PRIMARY KEY, path, other); INSERT INTO a VALUES (1, '/OLD/1', '/OLD/2');
            CREATE TABLE b (id INTEGER PRIMARY KEY, path); INSERT INTO b VALUES (1, '/OLD/1'), (2, '/OLD/2');
            """
        _ = try sqlite(store, sql.replacing("/OLD", with: rig.source.string))
        let other = rig.source.pushing("sub/small.db")
        _ = try sqlite(other, "INSERT INTO t VALUES ('\(rig.source)/x')")
        _ = try AppRelocation(request(rig)).run()
        _ = try sqlite(
            moved,
            "ALTER TABLE a RENAME COLUMN path TO place; UPDATE a SET other = 'mine'; ALTER TABLE b RENAME TO c")
        try run("mv", [Word(rig.destination.pushing("sub/small.db")), Word(rig.destination.pushing("sub/renamed.db"))])
        let summary = try AppRelocation(rig.request()).undo()
        #expect(summary.outcome == .undone)
        let left = summary.left.map { "\($0.store.path):\($0.table).\($0.column) \($0.reason) \($0.count)" }
        #expect(
            left.sorted() == [
                "store.db:a.other changed 1", "store.db:a.path column 1", "store.db:b.path table 2",
                "sub/small.db:t.x store 1",
            ])
        #expect(summary.left.filter(\.isIntended).count == 1)
        #expect(try sqlite(store, "SELECT other FROM a") == "mine\n")
    }

    /// A write by an ordinary user takes the set-user bit from a file, and needs the right to write.
    @Test(arguments: [0o6755, 0o400]) func keepsTheModeOfAStore(_ mode: mode_t) throws {
        let rig = try AppRig(.another)
        let store = FilePath("sub/small.db")
        _ = try sqlite(rig.source.pushing(store), "INSERT INTO t VALUES ('\(rig.source)/x')")
        try run("chmod", [Word(String(mode, radix: 8)), Word(rig.source.pushing(store))])
        try run("chmod", ["555", Word(rig.source.appending("sub"))])
        let summary = try AppRelocation(request(rig)).run()
        #expect(summary.rewritten.map(\.table) == ["t"])
        #expect(FileStatus(following: rig.destination.pushing(store))?.permissions == mode)
        #expect(FileStatus(following: rig.destination.appending("sub"))?.permissions == 0o2555)
    }

    @Test func refusesAPathThatWouldCollide() throws {
        let rig = try AppRig(.another)
        let sql = "CREATE TABLE p (path TEXT UNIQUE); INSERT INTO p VALUES ('\(rig.source)'), ('\(rig.destination)')"
        _ = try sqlite(rig.source.appending("store.db"), sql)
        let before = try rig.files(rig.source)
        #expect(throws: RelocationFailure.self) { try AppRelocation(request(rig)).run() }
        #expect(try rig.files(rig.source) == before)
        #expect(try rig.leftovers() == [])
        #expect(FileStatus(following: rig.destination) == nil)
    }

    /// The second row has the new path of the first one only until it is changed itself.
    @Test func aRowGetsThePathThatAnotherOneLeaves() throws {
        let rig = try AppRig(.same)
        let paths = ["x", "music/x", "music/music/x"].map { rig.source.pushing(FilePath($0)).string }
        let values = paths.map { "('\($0)')" }.joined(separator: ", ")
        _ = try sqlite(rig.source.appending("store.db"), "CREATE TABLE p (path UNIQUE); INSERT INTO p VALUES \(values)")
        var request = rig.request()
        request.rewrites = [try #require(PathRewrite(old: rig.source, new: rig.source.appending("music")))]
        #expect(try AppRelocation(request).run().rewritten.map(\.count) == [3])
        let query = "SELECT path FROM p ORDER BY rowid"
        let moved = paths.map { $0.replacing(rig.source.string, with: rig.source.string + "/music") }
        #expect(try sqlite(rig.destination.appending("store.db"), query) == moved.joined(separator: "\n") + "\n")
        #expect(try AppRelocation(rig.request()).undo().left.isEmpty)
        #expect(try sqlite(rig.source.appending("store.db"), query) == paths.joined(separator: "\n") + "\n")
    }

    /// Another row has the new path already: nothing moves, and the printed command shows that row.
    @Test func namesTheRowThatHasTheNewPath() throws {
        let rig = try AppRig(.same)
        let sql = """
            CREATE TABLE "a b" (n, "the path" UNIQUE); INSERT INTO "a b" VALUES (1, '/OLD/it''s'), (2, '/NEW/it''s');
            """
        let filled = sql.replacing("/OLD", with: rig.source.string).replacing("/NEW", with: rig.destination.string)
        _ = try sqlite(rig.source.appending("store.db"), filled)
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request(rig)).run() }
        #expect(failure?.code == "constraint")
        #expect(failure?.message.contains("table a b") == true && failure?.message.contains("UNIQUE") == true)
        let command = try #require(failure?.remedy.split(separator: ": ", maxSplits: 1).last)
        #expect(try run("sh", ["-c", Word(String(command))]).output == "2|\(rig.destination)/it's\n")
        #expect(try !rig.isLink(rig.source))
    }

    /// No row is in the way of a path that the table's rules forbid: the printed command shows these.
    @Test func printsTheRuleThatForbidsTheNewPath() throws {
        let rig = try AppRig(.same)
        let sql = "CREATE TABLE ruled (path CHECK (path NOT LIKE '\(rig.destination)%'))"
        _ = try sqlite(
            rig.source.appending("store.db"), "\(sql); INSERT INTO ruled VALUES ('\(rig.source)/x')")
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request(rig)).run() }
        #expect(failure?.code == "constraint" && failure?.message.contains("CHECK") == true)
        let command = try #require(failure?.remedy.split(separator: ": ").last)
        #expect(try run("sh", ["-c", Word(String(command))]).output == sql + "\n")
    }

    @Test func theDryRunSaysWhatCannotBeUndone() throws {
        let rig = try AppRig(.same)
        try addPaths(rig)
        let sql = """
            CREATE TABLE bag (path); INSERT INTO bag VALUES ('/OLD/x'), ('/OLD/x'), ('/NEW/y'), ('/OLD/y');
            CREATE TABLE hidden (rowid, oid, _rowid_, path); INSERT INTO hidden VALUES (1, 1, 1, '/OLD/z');
            """
        let filled = sql.replacing("/OLD", with: rig.source.string).replacing("/NEW", with: rig.destination.string)
        _ = try sqlite(rig.source.appending("store.db"), filled)
        let preview = try AppRelocation(request(rig)).dryRun()
        let bag = "store.db: 3 paths of table bag, in rows without a key, of which 1 can't be undone: "
        let expected = [
            bag + "other rows have the same value",
            "store.db: table hidden has no key to change a row by, and is left alone",
            "store.db: the content of virtual table found is left alone",
            "store.db: the triggers of table book don't run",
        ]
        for note in expected { #expect(preview.notes.contains(note), "\(preview.notes)") }
        let summary = try AppRelocation(request(rig)).run()
        for note in expected { #expect(summary.notes.contains(note), "\(summary.notes)") }
        #expect(try AppRelocation(rig.request()).undo().left.map(\.count) == [1])
    }
}
