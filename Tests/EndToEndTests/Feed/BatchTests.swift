import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// Changed rows with their values, as the commands, the agent and the library report them.
@Suite(.ownThreads) struct BatchTests {
    private struct Scene {
        let places: Places
        let store: FilePath
        let name = "\(AgentProcess.group)/Notes.sqlite"

        init(_ table: String = "CREATE TABLE note (id INTEGER PRIMARY KEY, title, body)") throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try sqlite(store, "PRAGMA journal_mode = WAL; \(table)")
            #expect(try groupstore("history", "enable", Word(store)).status == 0)
        }

        func agent() throws -> AgentProcess {
            try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        }

        func batch(_ more: Word...) throws -> FinishedProcess {
            try run(
                Programs.groupstore, ["changes", "--values", "--json", Word(store)] + more,
                environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        }
    }

    @Test func printsEachRowOnceAsItIsNow() throws {
        let scene = try Scene()
        let start = try #require(try scene.batch("--now").summary.string("token"))
        try sqlite(
            scene.store,
            """
            INSERT INTO note VALUES (1, 'a', 1.0), (2, 'b', X'00'), (3, 'c', 9007199254740993);
            UPDATE note SET title = 'd' WHERE id = 1; DELETE FROM note WHERE id = 2;
            INSERT OR REPLACE INTO note VALUES (3, 'e', -9e999); UPDATE note SET id = 7 WHERE id = 1;
            """)
        let batch = try scene.batch("--since", Word(start))
        let types = ["batch", "table", "row", "row", "row", "row", "summary"]
        #expect(batch.objects.map(\.type) == types, "\(batch.output)")
        let rows = batch.objects.filter { $0.type == "row" }
        #expect(rows.map { $0["key"] } == [1, 2, 3, 7])
        #expect(rows.map { $0.string("op") } == ["delete", "delete", "insert", "insert"])
        #expect(rows[2]["values"] == [3, "e", .object(["real": "-inf"])])
        #expect(rows[3]["values"] == [7, "d", .object(["real": "1.0"])])
        let token = try #require(batch.summary.string("token"))
        #expect(try scene.batch("--since", Word(token)).objects.map(\.type) == ["batch", "summary"])
    }

    @Test func endsAPageAtItsLimit() throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note (title) VALUES ('a'), ('b'), ('c')")
        let first = try scene.batch("--limit", "2")
        #expect(first.summary["changes"] == 2 && first.summary.bool("more") == true, "\(first.output)")
        let second = try scene.batch("--since", Word(try #require(first.summary.string("token"))))
        #expect(second.summary["changes"] == 1 && second.summary.bool("more") == false)
    }

    /// More than is kept in memory.
    @Test func printsALargeBatchAndALongRowWhole() throws {
        let scene = try Scene()
        try sqlite(
            scene.store,
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
            INSERT INTO note (title, body) SELECT i, hex(randomblob(5000)) FROM n;
            INSERT INTO note (title, body) VALUES ('long', hex(zeroblob(6000000)));
            """)
        let batch = try scene.batch()
        #expect(batch.status == 0, "\(batch.errors)")
        #expect(batch.summary["changes"] == 1201 && batch.summary.bool("more") == false)
        #expect(batch.lines.map(\.utf8.count).max() ?? 0 > 12_000_000)
    }

    @Test func namesTheReasonWhereRowsCannotBeKnown() throws {
        let scene = try Scene()
        let start = try scene.batch("--now")
        let (token, schema) = (Word(try #require(start.summary.string("token"))), start.summary.string("schema") ?? "")
        try sqlite(scene.store, "CREATE TABLE tag (id INTEGER PRIMARY KEY, name)")
        let outdated = try scene.batch("--since", token)
        #expect(outdated.status == 65 && outdated.errors.contains("tag"), "\(outdated.errors)")
        #expect(outdated.summary.object("error")?.string("code") == "outdated_history")
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        let changed = try scene.batch("--since", token, "--schema", Word(schema))
        #expect(changed.objects.first?.string("reason") == "schema_changed" && changed.outcome == "reset")
        // Nothing was missed, for who doesn't need the former schema.
        #expect(try scene.batch("--since", token).objects.map(\.type) == ["batch", "summary"])
        try sqlite(scene.store, "DROP TABLE tag; CREATE TABLE tag (id INTEGER PRIMARY KEY, name)")
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        #expect(try scene.batch("--since", token).objects.first?.string("reason") == "history_gap")
        #expect(try groupstore("changes", "--schema", "x", Word(scene.store)).status == 64)
    }

    /// The schema's text is what it was, and no row was recorded.
    @Test(arguments: [
        "ALTER TABLE note DROP COLUMN body; ALTER TABLE note ADD COLUMN body",
        """
        ALTER TABLE note RENAME TO passing; ALTER TABLE twin RENAME TO note; ALTER TABLE passing RENAME TO twin
        """,
    ])
    func resetsACopyAfterASchemaChangeThatKeepsTheText(_ change: String) throws {
        let table = "(id INTEGER PRIMARY KEY, title, body)"
        let scene = try Scene("CREATE TABLE \"note\" \(table); CREATE TABLE \"twin\" \(table)")
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a', 'b')")
        let start = try scene.batch("--now")
        let (token, schema) = (Word(try #require(start.summary.string("token"))), start.summary.string("schema") ?? "")
        #expect(try scene.batch("--since", token, "--schema", Word(schema)).outcome == "changes")
        try sqlite(scene.store, "BEGIN; \(change); COMMIT; INSERT INTO note VALUES (2, 'c', 'd')")
        for _ in 1...2 {
            let changed = try scene.batch("--since", token, "--schema", Word(schema))
            #expect(changed.objects.first?.string("reason") == "schema_changed" && changed.outcome == "reset")
            #expect(changed.objects.first?.string("schema")?.prefix(64) == schema.prefix(64))
            // It stays one after the history was enabled again.
            #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        }
        let now = try scene.batch("--now")
        let (last, state) = (now.summary.string("token") ?? "", now.summary.string("schema") ?? "")
        #expect(try scene.batch("--since", Word(last), "--schema", Word(state)).outcome == "changes")
    }

    /// VACUUM renumbers the rows of a table without an INTEGER PRIMARY KEY.
    @Test func takesNoRowForAnother() throws {
        let scene = try Scene("CREATE TABLE note (title)")
        try sqlite(scene.store, "INSERT INTO note VALUES ('a'), ('b'), ('c'); DELETE FROM note WHERE rowid = 1; VACUUM")
        let batch = try scene.batch()
        #expect(batch.status == 65, "\(batch.output)")
        #expect(batch.summary.object("error")?.string("code") == "outdated_history")
        let kept = try Scene()
        try sqlite(kept.store, "INSERT INTO note (title) VALUES ('a'), ('b'); DELETE FROM note WHERE id = 1; VACUUM")
        #expect(try kept.batch().objects.filter { $0.type == "row" }.map { $0["key"] } == [1, 2])
    }

    @Test func namesTheCommitsInTheLog() throws {
        let scene = try Scene()
        let writer = try sqliteShell(scene.store)
        for text in ["INSERT INTO note VALUES (1, 'a', 0)", "INSERT INTO note VALUES (2, 'b', 0), (3, 'c', 0)"] {
            try writer.execute(text)
        }
        try writer.execute("BEGIN; UPDATE note SET body = 1 WHERE id = 2; INSERT INTO note VALUES (4, 'd', 0); COMMIT")
        let rows = try scene.batch().objects.filter { $0.type == "row" }
        #expect(rows.map { $0.object("transaction")?["exact"] } == [false, true, true, true], "\(rows)")
        let ids = rows.map { $0.object("transaction")?["id"] }
        #expect(ids[1] == ids[3] && ids[1] != ids[2])
        writer.closeInput()
        try writer.wait()
        // The log is gone with its last user.
        #expect(
            try scene.batch().objects.filter { $0.type == "row" }.allSatisfy {
                $0.object("transaction") == ["exact": false]
            })
    }

    @Test func printsDebeziumsEnvelope() throws {
        let scene = try Scene("CREATE TABLE note (id INTEGER PRIMARY KEY, title, body); CREATE TABLE tag (name)")
        let start = Word(try #require(try scene.batch("--now").summary.string("token")))
        try sqlite(
            scene.store,
            "INSERT INTO note VALUES (1, 'a', 2.0), (2, X'00FF', 9e999); DELETE FROM note WHERE id = 2; "
                + "INSERT INTO tag VALUES (9007199254740993)")
        let done = try groupstore("changes", "--format", "debezium", "--since", start, Word(scene.store))
        #expect(done.status == 0 && done.errors.hasPrefix("token h1."), "\(done.errors)")
        let events = done.objects
        #expect(events.map { $0.string("op") } == ["c", "d", "c"], "\(done.output)")
        let members: Set = ["before", "after", "source", "op", "ts_ms", "transaction"]
        #expect(events.allSatisfy { Set($0.members.map(\.key)) == members })
        #expect(events.allSatisfy { $0["before"] == .null && $0.integer("ts_ms") ?? 0 > 1_600_000_000_000 })
        #expect(events[0].object("after")?["title"] == "a" && events[1]["after"] == .null)
        #expect(done.output.contains(#""body":2.0"#))
        #expect(events[2].object("after") == ["name": 9_007_199_254_740_993])
        let source = try #require(events[2].object("source"))
        #expect(source.string("connector") == "groupstore" && source.string("db") == "Notes.sqlite")
        #expect(source.string("table") == "tag" && source.object("key") == ["rowid": 1])
    }

    @Test func recordsWhatRowsHeldBefore() throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a', 1), (2, 'b', X'00'), (3, 'c', NULL), (4, 'd', 4)")
        let enabled = try groupstore("history", "enable", "--before", "--json", Word(scene.store))
        // An existing history goes on without a gap.
        #expect(enabled.outcome == "updated" && !enabled.objects.contains { $0.type == "gap" }, "\(enabled.output)")
        let start = Word(try #require(try scene.batch("--now").summary.string("token")))
        #expect(try groupstore("history", "enable", Word(scene.store)).output.contains("unchanged"))
        try sqlite(
            scene.store,
            """
            UPDATE note SET title = 'x' WHERE id = 1; UPDATE note SET title = 'y', body = 2 WHERE id = 1;
            DELETE FROM note WHERE id = 2; REPLACE INTO note VALUES (3, 'z', 1.5); INSERT INTO note VALUES (5, 'e', 0);
            UPDATE OR IGNORE note SET id = 5 WHERE id = 4;
            """)
        let rows = try scene.batch("--since", start).objects.filter { $0.type == "row" }
        #expect(rows.map { $0["key"] } == [1, 2, 3, 5])
        let former: [JSONValue?] = [[1, "a", 1], [2, "b", .object(["base64": "AA=="])], [3, "c", .null], nil]
        #expect(rows.map { $0["before"] } == former)
        let events = try groupstore("changes", "--format", "debezium", "--since", start, Word(scene.store)).objects
        #expect(events.map { $0.object("before")?["title"] } == ["a", "b", "c", nil])
        let shown = try groupstore("history", "show", "--json", Word(scene.store))
        #expect(shown.objects[0].bool("before") == true, "\(shown.output)")
        #expect(shown.objects.filter { $0.type == "row" }.count == 9)
        // Columns can be renamed and dropped as without history.
        try sqlite(
            scene.store,
            """
            ALTER TABLE note RENAME COLUMN body TO text; UPDATE note SET text = 7;
            ALTER TABLE note DROP COLUMN text; UPDATE note SET title = 'w'; ALTER TABLE note ADD COLUMN body;
            UPDATE note SET body = 8; DELETE FROM note WHERE id = 1;
            """)
        #expect(try sqlite(scene.store, "SELECT count(*), sum(body) FROM note") == "3|24\n")
        #expect(try groupstore("history", "enable", "--no-before", Word(scene.store)).status == 0)
        #expect(try sqlite(scene.store, "SELECT version FROM GS_HISTORY").hasPrefix("3"))
        #expect(try sqlite(scene.store, "SELECT count(*) FROM GS_CHANGE WHERE operation = 5").hasPrefix("0"))
    }

    @Test(arguments: [true, false]) func watchPrintsTheRowsBeforeTheChange(withAgent: Bool) throws {
        let scene = try Scene()
        let agent = withAgent ? try scene.agent() : nil
        let writer = try sqliteShell(scene.store)
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--values", "--json", withAgent ? Word(scene.name) : Word(scene.store)],
            environment: ["GROUPSTORE_SOCKET": agent?.socket.string ?? "/nonexistent/agent.sock"])
        _ = try watch.line()
        try writer.execute("INSERT INTO note VALUES (1, 'a', hex(zeroblob(30000)))")
        let lines = try (0..<4).map { _ in try #require(try watch.line()) }
        let objects = try lines.map { line -> JSONObject in
            guard case .object(let object) = try JSONValue(parsing: Array(line.utf8)) else { return [:] }
            return object
        }
        #expect(objects.map(\.type) == ["batch", "table", "row", "change"])
        #expect(objects[2]["values"] == [1, "a", .string(String(repeating: "0", count: 60_000))])
        #expect(objects.allSatisfy { $0["store"] != nil })
        watch.signal(15)
        try watch.wait()
        writer.closeInput()
        try writer.wait()
    }

    /// The rows come from the store's pages, and a killed watch goes on where it was. What it printed just before it
    /// was killed may come again, with the same number.
    @Test func watchTellsTheRowsOfAStoreWithoutHistory() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "CREATE TABLE note (id INTEGER PRIMARY KEY, title); INSERT INTO note VALUES (1, 'a')")
        try sqlite(store, "CREATE TABLE word (text TEXT PRIMARY KEY) WITHOUT ROWID")
        let names = try Directory(places.group).names().count
        let environment = ["XDG_STATE_HOME": places.scratch("state").string]
        let tokens = places.scratch("token")
        let words: [Word] = [
            "watch", "--direct", "--values", "--json", "--token-file", Word(tokens), Word(store),
        ]
        var known: Set<Int64> = []
        func rows(_ sql: String, killing: Bool) throws -> [JSONObject] {
            let watch = try RunningProcess(Programs.groupstore, words, environment: environment)
            if killing { try watch.line { JSONObject(line: $0)?.type == "watching" } }
            if killing { try sqlite(store, sql) }
            var rows: [JSONObject] = []
            var number: Int64?
            try watch.line {
                guard let line = JSONObject(line: $0) else { return false }
                #expect(line.type != "reset")
                number = line.object("transaction")?.integer("id") ?? number
                if line.type == "row", number.map(known.contains) == false { rows.append(line) }
                return line.type == "change" && !rows.isEmpty
            }
            known.insert(try #require(number))
            try watch.killAtOnce()
            return rows
        }
        let first = try rows("UPDATE note SET title = 'b'", killing: true)
        #expect(first.map { $0.string("op") } == ["update"])
        #expect(first.first?["before"] == .array([1, "a"]) && first.first?["values"] == .array([1, "b"]))
        try sqlite(
            store,
            """
            BEGIN; INSERT INTO note VALUES (2, 'c'); DELETE FROM note WHERE id = 1; INSERT INTO word VALUES ('x'), ('y');
            COMMIT
            """)
        let second = try rows("", killing: false)
        #expect(second.count == 4)
        #expect(Set(second.compactMap { $0.integer("number") }).count == 4)
        #expect(Set(second.compactMap { $0.string("op") }) == ["insert", "delete"])
        #expect(try Directory(places.group).names().count == names)
        #expect(try groupstore("rows", "disable", Word(store), environment: environment).status == 0)
    }

    @Test func boundsAnswers() throws {
        let scene = try Scene()
        try sqlite(
            scene.store,
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)
            INSERT INTO note (title, body) SELECT i, hex(zeroblob(5000)) FROM n;
            INSERT INTO note (title, body) VALUES ('long', hex(zeroblob(3500000)));
            INSERT INTO note (title, body) VALUES ('too long', hex(zeroblob(4500000)));
            """)
        let agent = try scene.agent()
        let connection = try agent.connect()
        var (since, sizes, refusal): (JSONValue, [Int], String?) = (.null, [], nil)
        for id in 1...9 {
            try connection.send([
                "id": .integer(Int64(id)), "op": "changes", "store": .string(scene.name), "values": true,
                "limit": 1000, "since": since,
            ])
            let before = connection.readCount
            let reply = try connection.next { $0["ok"] != nil }
            refusal = reply.object("error")?.string("code")
            if refusal != nil { break }
            sizes.append(connection.readCount - before)
            since = reply["token"] ?? .null
        }
        #expect(sizes.count == 4 && sizes.dropLast().allSatisfy { $0 < 5 << 20 }, "\(sizes)")
        #expect(sizes.last ?? 0 > 7_000_000 && sizes.last ?? 0 < 9 << 20, "\(sizes)")
        #expect(refusal == "row_too_large")
    }

    @Test func theLibraryReturnsValues() async throws {
        let scene = try Scene(
            "CREATE TABLE note (id INTEGER PRIMARY KEY, title, body); CREATE VIRTUAL TABLE f USING fts5(t)")
        try sqlite(
            scene.store,
            """
            INSERT INTO note VALUES (1, 'a', 2.0), (2, CAST(X'FF' AS TEXT), 9007199254740993), (3, NULL, X'00');
            INSERT INTO note VALUES (4, hex(zeroblob(40000)), -9e999); DELETE FROM note WHERE id = 3;
            """)
        let agent = try scene.agent()
        let address = try #require(StoreAddress(bytes: Array(scene.name.utf8)))
        let operation = HistoryOperation.changes(address, since: nil, limit: 256, .init(), .values(schema: nil))
        let page = try await SharedStore.ask(.history(operation), socket: agent.socket, RowChangePage.init)
        #expect(page.changes.map(\.key) == [[.integer(1)], [.integer(2)], [.integer(3)], [.integer(4)]])
        #expect(page.changes.map(\.operation) == [.insert, .insert, .delete, .insert])
        #expect(page.changes[0].values?["title"] == .text("a") && page.changes[0].values?["body"] == .real(2))
        #expect(page.changes[1].values?["title"] == .malformedText([0xFF]))
        #expect(page.changes[1].values?["body"] == .integer(9_007_199_254_740_993))
        #expect(page.changes[2].values == nil)
        #expect(page.changes[3].values?["title"] == .text(String(repeating: "0", count: 80_000)))
        #expect(page.changes[3].values?["body"] == .real(-.infinity) && page.changes[3].values?["nothing"] == nil)
        #expect(page.unrecordedTables == ["f"] && page.schema?.prefix { $0 != "." }.utf8.count == 64 && !page.hasMore)
    }

    /// The tables are those of a model with an inheritance and both kinds of relationships.
    @Test func namesCoreDataProperties() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        let model = try ModelBundle.make(
            in: places.scratch("."),
            [
                (
                    "Notes",
                    """
                    <entity name="Note"><attribute name="title" optional="YES" attributeType="String"/>\
                    <attribute name="created" optional="YES" attributeType="Date"/>\
                    <relationship name="folder" optional="YES" maxCount="1" destinationEntity="Folder" \
                    inverseName="notes" inverseEntity="Folder"/></entity>\
                    <entity name="Folder"><attribute name="name" optional="YES" attributeType="String"/>\
                    <relationship name="notes" optional="YES" toMany="YES" destinationEntity="Note" \
                    inverseName="folder" inverseEntity="Note"/></entity>
                    """
                )
            ])
        let made = try groupstore("create", Word(store), "--model", Word(model))
        #expect(made.status == 0, "\(made.errors)")
        #expect(try groupstore("history", "enable", Word(store)).status == 0)
        let entity = try sqlite(store, "SELECT Z_ENT FROM Z_PRIMARYKEY WHERE Z_NAME = 'Note'")
        try sqlite(
            store,
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZCREATED, ZFOLDER) VALUES (1, \(entity), 1, 'a', 0.5, 7)")
        let batch = try groupstore("changes", "--values", "--json", "--tables", "ZNOTE", Word(store))
        let table = try #require(batch.objects.first { $0.type == "table" }, "\(batch.output)\(batch.errors)")
        #expect(table.string("entity") == "Note" && table["key"] == ["Z_PK"])
        guard case .array(let columns)? = table["columns"], case .array(let properties)? = table["properties"] else {
            throw Unexpected("\(table)")
        }
        let named = Dictionary(zip(columns.map(\.text), properties), uniquingKeysWith: { first, _ in first })
        #expect(named["\"ZTITLE\""] == .object(["attribute": "title", "type": "String"]))
        #expect(named["\"ZCREATED\""] == .object(["attribute": "created", "type": "Date"]))
        #expect(named["\"ZFOLDER\""] == .object(["relationship": "folder", "destination": "Folder", "holds": "key"]))
        #expect(named["\"Z_ENT\""] == .null)
        #expect(batch.objects.first { $0.type == "row" }?.string("entity") == "Note")
    }
}
