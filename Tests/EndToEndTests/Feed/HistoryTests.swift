import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// Row-level changes, as the commands and the agent report them.
@Suite(.ownThreads) struct HistoryTests {
    private struct Scene {
        let places: Places
        let store: FilePath
        let name = "\(AgentProcess.group)/Notes.sqlite"

        init(enabled: Bool = true) throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try sqlite(
                store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT)")
            if enabled { #expect(try groupstore("history", "enable", Word(store)).status == 0) }
        }

        func agent() throws -> AgentProcess {
            try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        }
    }

    private func changes(_ store: FilePath, _ more: Word...) throws -> FinishedProcess {
        try run(
            Programs.groupstore, ["changes", "--json", Word(store)] + more,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    @Test func printsChangesPageByPageWithoutAnAgent() throws {
        let scene = try Scene()
        try sqlite(
            scene.store, "INSERT INTO note (title) VALUES ('a'), ('b'), ('c'); UPDATE note SET body = 'x' WHERE id = 2")
        let first = try changes(scene.store, "--limit", "3")
        #expect(first.status == 0, "\(first.errors)")
        #expect(first.objects.filter { $0.type == "row" }.map { $0["key"] } == [1, 2, 3])
        #expect(first.summary.bool("more") == true)
        let second = try changes(scene.store, "--since", Word(try #require(first.summary.string("token"))))
        #expect(second.objects.map(\.type) == ["row", "summary"])
        #expect(second.objects[0].string("op") == "update" && second.objects[0]["columns"] == ["body"])
        let third = try changes(scene.store, "--since", Word(try #require(second.summary.string("token"))))
        #expect(third.objects.map(\.type) == ["summary"])
    }

    /// SQLite 3.38 to 3.40 consider their own JSON functions unsafe in a schema.
    @Test func readsTablesWithJSONFunctions() throws {
        let scene = try Scene(enabled: false)
        try sqlite(
            scene.store,
            """
            CREATE TABLE doc (id INTEGER PRIMARY KEY, body TEXT, name AS (json_extract(body, '$.name')));
            CREATE INDEX docByAge ON doc (json_extract(body, '$.age'));
            CREATE INDEX docByTags ON doc (id) WHERE json_type(body, '$.tags') = 'array'
            """)
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        try sqlite(scene.store, "INSERT INTO doc (body) VALUES ('{\"name\":\"a\",\"age\":3,\"tags\":[]}')")
        let read = try changes(scene.store)
        #expect(read.status == 0, "\(read.errors)")
        #expect(read.objects.filter { $0.type == "row" }.map { $0["key"] } == [1])
        let inspected = try groupstore("inspect", Word(scene.store), "--json")
        #expect(inspected.status == 0 && inspected.output.contains("doc"), "\(inspected.errors)")
    }

    /// VACUUM renumbers the rows of a table without an INTEGER PRIMARY KEY. A new table isn't recorded.
    @Test(arguments: [
        ("DELETE FROM tag WHERE rowid = 1; VACUUM", ["tag"]),
        ("CREATE TABLE \"new\u{7}one\" (id INTEGER PRIMARY KEY)", ["tag", "new"]),
        ("DELETE FROM note", []),
    ])
    func namesTheTablesWhoseChangesAreInDoubt(_ statements: String, _ doubtful: [String]) throws {
        let scene = try Scene(enabled: false)
        try sqlite(scene.store, "CREATE TABLE tag (word); INSERT INTO tag VALUES ('a'), ('b')")
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        try sqlite(scene.store, statements)
        let read = try groupstore("changes", Word(scene.store))
        let line = read.output.split(separator: "\n").first { $0.hasPrefix("outdated") }
        #expect((line == nil) == doubtful.isEmpty, "\(read.output)")
        for table in doubtful { #expect(line?.contains(table) == true) }
        #expect(line?.contains(" note") != true)
        // JSON and `history show` say the same.
        let shown = try groupstore("history", "show", Word(scene.store), "--json").objects
        for object in [try changes(scene.store).summary, try #require(shown.first { $0.type == "history" })] {
            #expect((object.bool("outdated") ?? false) == !doubtful.isEmpty)
            let message = object.string("message") ?? ""
            #expect(message.contains("until groupstore history enable") == !doubtful.isEmpty)
            guard !doubtful.isEmpty, case .array(let tables)? = object["doubtful_tables"] else {
                #expect(doubtful.isEmpty && object["doubtful_tables"] == nil)
                continue
            }
            for table in doubtful {
                #expect(tables.contains { if case .string(let name) = $0 { name.hasPrefix(table) } else { false } })
            }
        }
        let table = try groupstore("history", "show", Word(scene.store)).output
        for name in doubtful { #expect(table.contains("changes of ") && table.contains(name)) }
    }

    @Test func printsReasonsAndExitCodes() throws {
        let scene = try Scene(enabled: false)
        let none = try changes(scene.store)
        #expect(none.status == 65 && none.errors.contains("history enable"), "\(none.errors)")
        #expect(try changes(scene.store, "--since", "nonsense").status == 64)
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        try sqlite(scene.store, "INSERT INTO note (title) VALUES ('a'), ('b'), ('c')")
        let token = try changes(scene.store, "--limit", "1").summary.string("token")
        #expect(try groupstore("history", "purge", "--keep", "1", Word(scene.store)).status == 0)
        let trimmed = try changes(scene.store, "--since", Word(try #require(token)))
        #expect(trimmed.objects.first?.string("reason") == "history_trimmed", "\(trimmed.output)")
        #expect(trimmed.outcome == "reset" && trimmed.status == 0)
        #expect(try groupstore("history", "disable", "--json", Word(scene.store)).outcome == "disabled")
        #expect(try sqlite(scene.store, "SELECT count(*) FROM sqlite_schema").hasPrefix("1"))
        #expect(try groupstore("history", "purge", Word(scene.store)).status == 64)
        #expect(try groupstore("history", "show", "/nonexistent/x.sqlite").status == 74)
    }

    @Test func keepsUnacknowledgedChangesOfANamedSubscriber() throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note (title) VALUES ('a'), ('b'), ('c')")
        let token = try #require(try changes(scene.store, "--limit", "1").summary.string("token"))
        let acknowledged = try groupstore(
            "history", "acknowledge", Word(scene.store), "--subscriber", "index", "--token", Word(token))
        #expect(acknowledged.status == 0, "\(acknowledged.errors)")
        let purged = try groupstore("history", "purge", "--json", "--keep", "0", Word(scene.store))
        #expect(purged.summary["purged"] == 1 && purged.summary.string("held_by") == "index", "\(purged.output)")
        let shown = try groupstore("history", "show", "--json", Word(scene.store))
        #expect(shown.objects.map(\.type) == ["history", "subscriber", "row", "row", "summary"], "\(shown.output)")
    }

    @Test func tokensSurviveARelocationAndAnotherAgent() throws {
        let places = try Places()
        let legacy = places.legacy.appending("Notes.sqlite")
        try sqlite(legacy, "CREATE TABLE note (id INTEGER PRIMARY KEY, title)")
        #expect(try groupstore("history", "enable", Word(legacy)).status == 0)
        try sqlite(legacy, "INSERT INTO note VALUES (1, 'before')")
        let token = try #require(try changes(legacy).summary.string("token"))
        #expect(try groupstore("relocate", Word(legacy), Word(places.group)).status == 0)
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "INSERT INTO note VALUES (2, 'after')")
        #expect(try changes(store, "--since", Word(token)).objects.compactMap { $0["key"] } == [2])
        let agent = try AgentProcess(places, legacy: [legacy])
        let connection = try agent.connect()
        try connection.send([
            "id": 1, "op": "changes", "store": .string("\(AgentProcess.group)/Notes.sqlite"), "since": .string(token),
        ])
        #expect(try connection.next("row")["key"] == 2)
        #expect(try connection.next { $0["id"] == 1 && $0.bool("ok") != nil }.bool("more") == false)
    }

    @Test func theAgentAnswersChangesAckAndSync() throws {
        let scene = try Scene()
        let agent = try scene.agent()
        let connection = try agent.subscribe("Notes.sqlite")
        try sqlite(
            scene.store,
            """
            BEGIN; UPDATE GS_AUTHOR SET name = 'me'; INSERT INTO note (title) VALUES ('mine');
            UPDATE GS_AUTHOR SET name = NULL; COMMIT; INSERT INTO note (title) VALUES ('theirs');
            """)
        // Every commit before the barrier is reported before the barrier's answer.
        try connection.send(["id": 2, "op": "sync", "store": .string(scene.name)])
        var changes = 0
        let synced = try connection.next { object in
            if object.type == "change" { changes += 1 }
            return object["id"] == 2
        }
        #expect(synced.bool("ok") == true && synced.string("token") != nil && changes > 0)
        try connection.send([
            "id": 3, "op": "changes", "store": .string(scene.name), "except_authors": ["me"], "operations": ["insert"],
        ])
        let row = try connection.next("row")
        #expect(row["id"] == 3 && row["key"] == 2 && row.string("table") == "note", "\(row.text)")
        let reply = try connection.next { $0["id"] == 3 && $0.bool("ok") != nil }
        let token = try #require(reply.string("token"))
        try connection.send([
            "id": 4, "op": "ack", "store": .string(scene.name), "subscriber": "index", "token": .string(token),
        ])
        #expect(try connection.next { $0["id"] == 4 }.bool("ok") == true)
        try connection.send([
            "id": 5, "op": "ack", "store": .string(scene.name), "subscriber": "index", "token": "h1.other.1.0",
        ])
        #expect(try connection.next { $0["id"] == 5 }.object("error")?.string("code") == "epoch")
        try connection.send(["id": 6, "op": "changes", "store": .string(scene.name), "limit": 0])
        #expect(try connection.next { $0["id"] == 6 }.object("error")?.string("code") == "bad_request")
    }

    /// Filters accept table names with commas, through the agent and its child process and in the commands.
    @Test func filtersByATableWithACommaInItsName() throws {
        let scene = try Scene(enabled: false)
        try sqlite(scene.store, #"CREATE TABLE "weird, \name" (a); CREATE TABLE weird (a)"#)
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        try sqlite(scene.store, #"INSERT INTO weird VALUES (1); INSERT INTO "weird, \name" VALUES (1)"#)
        let agent = try scene.agent()
        let connection = try agent.connect()
        try connection.send([
            "id": 1, "op": "changes", "store": .string(scene.name), "tables": [#"weird, \name"#],
        ])
        let row = try connection.next("row")
        #expect(row.string("table") == #"weird, \name"#, "\(row.text)")
        #expect(try connection.next { $0["id"] == 1 && $0.bool("ok") != nil }.integer("changes") == 1)
        let time = try #require(row.string("time"))
        #expect(time.contains(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/), "\(time)")
        let done = try changes(scene.store, "--tables", #"weird\, \name"#)
        #expect(done.objects.filter { $0.type == "row" }.map { $0.string("time") } == [time])
    }

    /// groupstore only reads Core Data's own history.
    @Test func neverPurgesCoreDatasHistory() throws {
        let places = try Places()
        let model = try ModelBundle.make(in: places.scratch("models"), [("Notes", "<entity name='Note'/>")])
        let store = places.group.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model)).status == 0)
        try sqlite(
            store,
            """
            CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTIMESTAMP TIMESTAMP);
            CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER,
                ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB);
            INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 1), (16002, 'TRANSACTION', 0, 1),
                (16003, 'TRANSACTIONSTRING', 0, 0);
            """)
        let show = try groupstore("history", "show", Word(store), "--json")
        #expect(show.objects[0]["tables"] == ["ZNOTE"], "\(show.output)")
        let purge = try groupstore("history", "purge", Word(store), "--keep", "1", "--json")
        #expect(purge.status == 65)
        let error = try #require(purge.summary.object("error"))
        #expect(error.string("code") == "core_data_history")
        #expect(error.string("message")?.contains("keeps no history") == false, "\(error.text)")
    }

    @Test func anAppReceivesRows() async throws {
        let scene = try Scene()
        let agent = try scene.agent()
        try sqlite(scene.store, "INSERT INTO note (title) VALUES ('a'); UPDATE note SET title = 'b'")
        let address = try #require(StoreAddress(bytes: Array(scene.name.utf8)))
        let page = try await SharedStore.ask(
            .history(.changes(address, since: nil, limit: nil, .init())), socket: agent.socket, RowChangePage.init)
        #expect(
            page.changes.map(\.operation) == [.insert, .update]
                && page.changes.map(\.key) == [[.integer(1)], [.integer(1)]])
        #expect(page.changes[1].columns == ["title"] && page.reset == nil && !page.hasMore)
        let stale = try await SharedStore.ask(
            .history(.changes(address, since: "h1.other.1.0", limit: nil, .init())), socket: agent.socket,
            RowChangePage.init)
        #expect(stale.changes.isEmpty && stale.reset == "epoch" && stale.token == page.token)
    }

    /// Many rows in one answer, or one long row, don't exhaust the agent's memory, and no row is left out.
    @Test func boundsAnswersWithLongRows() throws {
        let scene = try Scene()
        let agent = try scene.agent()
        try sqlite(
            scene.store,
            """
            UPDATE GS_AUTHOR SET name = hex(zeroblob(1000000));
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
            INSERT INTO note (title) SELECT i FROM n;
            UPDATE GS_AUTHOR SET name = hex(zeroblob(15000));
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
            INSERT INTO note (title) SELECT i FROM n;
            """)
        let connection = try agent.connect()
        let before = try Self.peak(agent.process.pid)
        var rows: [JSONObject] = []
        var since: String?
        var answers = 0
        while true {
            var request: JSONObject = ["id": 2, "op": "changes", "store": .string(scene.name), "limit": 1000]
            request["since"] = since.map { .string($0) }
            try connection.send(request)
            let summary = try connection.next { object in
                if object.type == "row" { rows.append(object) }
                return object["ok"] != nil
            }
            answers += 1
            let token = try #require(summary.string("token"))
            since = token
            if summary.bool("more") == false { break }
        }
        #expect(rows.compactMap { $0.integer("number") } == Array(1...360))
        #expect(rows.prefix(60).allSatisfy { $0["author"] == nil && $0.bool("truncated") == true })
        #expect(rows.suffix(300).allSatisfy { $0.string("author")?.utf8.count == 30_000 })
        #expect(answers > 1)
        let grown = try Self.peak(agent.process.pid) - before
        #expect(grown < 64 << 20, "\(grown) bytes")
    }

    /// Returns the process's peak memory, in bytes.
    private static func peak(_ pid: pid_t) throws -> Int {
        let status = try run("cat", ["/proc/\(pid)/status"]).lines
        let words = status.first { $0.hasPrefix("VmHWM:") }?.split(whereSeparator: \.isWhitespace) ?? []
        return try #require(words.count > 1 ? Int(words[1]) : nil) * 1024
    }

    /// A user with write access to the group's directory can't redirect the agent, which may run as root, to a store
    /// that only the agent may write.
    @Test func refusesALinkToAnotherStore() throws {
        let scene = try Scene(enabled: false)
        let victim = scene.places.scratch("victim.sqlite")
        try run("mv", [Word(scene.store), Word(victim)])
        try run("ln", ["-s", Word(victim), Word(scene.store)])
        let agent = try agentOfConfiguredStore(scene)
        let connection = try agent.connect()
        for op in ["changes", "ack"] {
            try connection.send([
                "id": .string(op), "op": .string(op), "store": .string(scene.name), "subscriber": "s",
                "token": "h1.other.1.0",
            ])
            let answer = try connection.next { $0["id"] == .string(op) }
            #expect(answer.object("error")?.string("code") == "not_a_file", "\(answer.text)")
        }
        #expect(try sqlite(victim, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'GS_%'").hasPrefix("0"))
    }

    /// The agent makes its child processes open only the file that it granted.
    @Test func refusesAFileThatWasNotGranted() throws {
        let scene = try Scene(enabled: false)
        let found = try #require(FileStatus(following: scene.store)?.identity)
        let commands: [[Word]] = [["history", "enable"], ["changes"]]
        for command in commands {
            for isRefused in [true, false] {
                let inode = isRefused ? found.inode + 1 : found.inode
                let words = command + ["--json", Word("--only-file=\(found.device):\(inode)"), Word(scene.store)]
                let ended = try run(Programs.groupstore, words)
                let code = ended.summary.object("error")?.string("code")
                #expect(code == (isRefused ? "in_use" : nil), "\(ended.output)\(ended.errors)")
            }
        }
    }

    @Test func enablesHistoryOfAConfiguredStore() throws {
        let scene = try Scene(enabled: false)
        let agent = try agentOfConfiguredStore(scene)
        // The request queues behind the agent's own task of enabling the history.
        let connection = try agent.subscribe("Notes.sqlite")
        try connection.send(["id": 2, "op": "changes", "store": .string(scene.name)])
        #expect(try connection.next { $0["id"] == 2 }.string("outcome") == "changes")
        #expect(try changes(scene.store).status == 0)
    }

    /// The agent updates the triggers after the swap, and a subscriber for one of the tables is sent the gap.
    @Test func followsASwapOfTables() throws {
        let scene = try Scene(enabled: false)
        try sqlite(scene.store, "CREATE TABLE twin (id INTEGER PRIMARY KEY, title TEXT, body TEXT)")
        let agent = try agentOfConfiguredStore(scene)
        let connection = try agent.connect()
        // The request queues behind the agent's own task of enabling the history.
        try connection.send(["id": 1, "op": "changes", "store": .string(scene.name)])
        _ = try connection.next { $0["id"] == 1 }
        try connection.send([
            "id": 2, "op": "subscribe", "store": .string(scene.name), "rows": true, "tables": ["twin"],
        ])
        #expect(try connection.next { $0["id"] == 2 }.bool("ok") == true)
        try sqlite(
            scene.store,
            "BEGIN; ALTER TABLE note RENAME TO x; ALTER TABLE twin RENAME TO note; ALTER TABLE x RENAME TO twin; COMMIT"
        )
        let event = try connection.next { $0.string("type") == "reset" }
        #expect(event.string("reason") == "history_gap")
        #expect(try changes(scene.store).summary["outdated"] == nil)
    }

    private func agentOfConfiguredStore(_ scene: Scene) throws -> AgentProcess {
        let file = scene.places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(scene.places.group.string)
                stores:
                  - name: Notes.sqlite
                    history: { keep: 7d }
            """, to: file)
        return try AgentProcess(["--config", Word(file)], socket: scene.places.scratch("agent.sock"))
    }
}
