import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Subscribes to the tests' store, and returns once the agent knows the tables of a change. Before that the agent
/// reports changes that a filter would leave out.
func awaitCompleteChanges(_ agent: AgentProcess, _ commit: () throws -> Void) throws -> WireConnection {
    let watcher = try agent.subscribe("Notes.sqlite")
    repeat { try commit() } while try watcher.next("change").bool("complete") != true
    return watcher
}

/// Subscriptions that make the agent read a store's history.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct RowSubscriptionTests {
    private final class Scene {
        let places: Places
        let store: FilePath
        var agent: AgentProcess
        /// Keeps the store open all the time.
        let writer: RunningProcess
        /// Subscribes to every change, so that the agent knows which tables change.
        var watcher: WireConnection?
        static let name = "\(AgentProcess.group)/Notes.sqlite"

        init(history: Bool = true) throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try sqlite(
                store,
                "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, title); CREATE TABLE tag (name)")
            if history { #expect(try groupstore("history", "enable", Word(store)).status == 0) }
            writer = try sqliteShell(store)
            agent = try Self.agent(places)
            watcher = try awaitCompleteChanges(agent) { try self.writer.execute("INSERT INTO tag VALUES ('x')") }
        }

        static func agent(_ places: Places) throws -> AgentProcess {
            try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        }

        func restart() throws {
            try agent.process.killAtOnce()
            agent = try Self.agent(places)
        }

        func write(_ sql: String, by author: String? = nil) throws {
            guard let author else { return try writer.execute(sql) }
            try writer.execute(
                "BEGIN; UPDATE GS_AUTHOR SET name = '\(author)'; \(sql); UPDATE GS_AUTHOR SET name = NULL; COMMIT")
        }

        func subscribe(_ more: JSONObject = [:]) throws -> (WireConnection, reply: JSONObject) {
            let connection = try agent.connect()
            var request: JSONObject = ["id": 1, "op": "subscribe", "store": .string(Self.name)]
            for member in more.members { request[member.key] = member.value }
            try connection.send(request)
            return (connection, try connection.next { $0["id"] == 1 })
        }

        /// Returns all events before a barrier's answer, and that answer's token.
        func pendingEvents(_ connection: WireConnection) throws -> (events: [JSONObject], token: String) {
            try connection.send(["id": "sync", "op": "sync", "store": .string(Self.name)])
            var events: [JSONObject] = []
            let reply = try connection.next { object in
                if object["id"] != "sync" { events.append(object) }
                return object["id"] == "sync"
            }
            return (events, try #require(reply.string("token")))
        }
    }

    @Test func leavesOutUnwantedRowsAndAdvancesTheToken() throws {
        let scene = try Scene()
        let (others, reply) = try scene.subscribe(["except_authors": ["me"], "rows": true])
        #expect(reply.bool("history") == true)
        let (deletes, _) = try scene.subscribe(["operations": ["delete"]])
        let (mine, _) = try scene.subscribe(["authors": ["me"]])
        let start = try #require(reply.string("token"))
        try scene.write("INSERT INTO note VALUES (1, 'mine')", by: "me")
        let quiet = try scene.pendingEvents(others)
        #expect(quiet.events.isEmpty && quiet.token != start)
        #expect(try scene.pendingEvents(deletes).events.isEmpty)
        #expect(try scene.pendingEvents(mine).events.map(\.type) == ["change"])
        try scene.write("INSERT INTO note VALUES (2, 'theirs')", by: "you")
        let change = try others.next("change")
        let rows = change.objects("rows")
        #expect(rows.count == 1 && rows[0]["key"] == 2 && rows[0].string("author") == "you", "\(change.text)")
        try scene.write("DELETE FROM note WHERE id = 1", by: "me")
        #expect(try scene.pendingEvents(others).events.isEmpty)
        #expect(try scene.pendingEvents(deletes).events.map(\.type) == ["change"])
        // A token from a silent period yields only later changes.
        let (again, _) = try scene.subscribe(["since": .string(quiet.token), "except_authors": ["me"]])
        #expect(try again.next("change")["token"] != nil)
        let (nothing, _) = try scene.subscribe(["since": .string(try scene.pendingEvents(others).token), "rows": true])
        #expect(try scene.pendingEvents(nothing).events.isEmpty)
    }

    @Test func reportsChangesWithoutRecordedRows() throws {
        let scene = try Scene()
        let (subscriber, _) = try scene.subscribe(["authors": ["nobody"], "rows": true])
        // History doesn't know this table, and its writes bypass the triggers.
        for sql in [
            "CREATE TABLE other (x)", "INSERT INTO other VALUES (1)",
            "BEGIN; INSERT INTO other VALUES (2); INSERT INTO note VALUES (1, 'x'); COMMIT",
        ] {
            try scene.write(sql)
            let change = try subscriber.next("change", "reset")
            #expect(change.type == "change" && change["rows"] == nil, "\(sql): \(change.text)")
        }
        #expect(try scene.pendingEvents(subscriber).events.isEmpty)
        try scene.write("INSERT INTO note VALUES (2, 'x')")
        #expect(try scene.pendingEvents(subscriber).events.isEmpty)
        // History follows the schema, and reports what it missed.
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        #expect(try subscriber.next("change", "reset")["token"] != nil)
        #expect(try groupstore("history", "disable", Word(scene.store)).status == 0)
        #expect(try subscriber.next("change")["token"] != nil)
        try scene.write("INSERT INTO note VALUES (3, 'x')")
        #expect(try subscriber.next { ($0.string("token")?.contains("/") ?? true) == false }.type == "change")
    }

    @Test func reportsEveryChangeWithoutAHistory() throws {
        let scene = try Scene(history: false)
        let (subscriber, reply) = try scene.subscribe(["authors": ["me"], "operations": ["delete"], "rows": true])
        #expect(reply.bool("history") == false)
        try scene.write("INSERT INTO note VALUES (1, 'x')")
        let change = try subscriber.next("change")
        #expect(change["tables"] == ["note"] && change["rows"] == nil, "\(change.text)")
    }

    @Test func reportsAnUnseenMigrationAsAReset() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        #expect(try groupstore("history", "enable", Word(stores.group)).status == 0)
        func subscribe(_ agent: AgentProcess, since: String? = nil) throws -> (WireConnection, reply: JSONObject) {
            let connection = try agent.connect()
            var request: JSONObject = ["id": 1, "op": "subscribe", "store": .string(Scene.name), "durable": true]
            if let since { request["since"] = .string(since) }
            try connection.send(request)
            return (connection, try connection.next { $0["id"] == 1 })
        }
        var agent = try Scene.agent(stores.places)
        let token = try #require(try subscribe(agent).reply.string("token"))
        try agent.process.killAtOnce()
        #expect(try groupstore("migrate", Word(stores.group), "--model", Word(stores.model)).status == 0)
        agent = try Scene.agent(stores.places)
        let reset = try subscribe(agent, since: token).0.next("reset", "change")
        #expect(reset.string("reason") == "migrated", "\(reset.text)")
        let asked = try groupstore("changes", Word(stores.group), "--since", Word(token), "--json")
        #expect(asked.objects.first?.string("reason") == "migrated", "\(asked.output)")
        // The subscription continues normally from that token.
        let now = try #require(reset.string("token"))
        let (again, _) = try subscribe(agent, since: now)
        try sqlite(stores.group, "UPDATE ZNOTE SET ZCAPTION = 'new'")
        #expect(try again.next("change", "reset").type == "change")
    }

    @Test func durableTokensSurviveAnotherAgent() throws {
        let scene = try Scene()
        let (subscriber, _) = try scene.subscribe(["durable": true])
        try scene.write("INSERT INTO note VALUES (1, 'x')", by: "me")
        let token = try #require(try subscriber.next("change").string("token"))
        try scene.restart()
        let (none, _) = try scene.subscribe(["since": .string(token)])
        #expect(try scene.pendingEvents(none).events.isEmpty)
        try scene.agent.process.killAtOnce()
        try scene.write("INSERT INTO note VALUES (2, 'meanwhile')", by: "you")
        try scene.restart()
        let (all, _) = try scene.subscribe(["since": .string(token), "rows": true])
        let change = try all.next("change", "reset")
        #expect(change.type == "change" && change.objects("rows").map { $0["key"] } == [2], "\(change.text)")
        let (own, _) = try scene.subscribe(["since": .string(token), "authors": ["me"]])
        #expect(try scene.pendingEvents(own).events.isEmpty)
        // `changes` and `ack` accept the same token.
        let known = try #require(change.string("token"))
        try all.send(["id": 7, "op": "changes", "store": .string(Scene.name), "since": .string(known)])
        #expect(try all.next { $0["id"] == 7 }["changes"] == 0)
        try all.send([
            "id": 8, "op": "ack", "store": .string(Scene.name), "subscriber": "s", "token": .string(known),
        ])
        #expect(try all.next { $0["id"] == 8 }.bool("ok") == true)
        // This token's position no longer exists.
        try scene.write("INSERT INTO note VALUES (3, 'x')")
        #expect(try groupstore("history", "purge", "--keep", "1", "--force", Word(scene.store)).status == 0)
        let (late, _) = try scene.subscribe(["since": .string(try durable(token))])
        #expect(try late.next("change", "reset").string("reason") == "history_trimmed")
        let (foreign, _) = try scene.subscribe(["since": "h1.another.1.0"])
        #expect(try foreign.next("change", "reset").string("reason") == "epoch")
    }

    /// Returns a subscription's token without the agent's part.
    private func durable(_ token: String) throws -> String {
        try #require(token.split(separator: "/").last.map(String.init))
    }

    @Test func tokensSurviveARelocation() throws {
        let places = try Places()
        let legacy = places.legacy.appending("Notes.sqlite")
        try sqlite(legacy, "CREATE TABLE note (id INTEGER PRIMARY KEY, title)")
        #expect(try groupstore("history", "enable", Word(legacy)).status == 0)
        let known = try groupstore("changes", "--json", "--now", Word(legacy)).summary.string("token")
        try sqlite(legacy, "INSERT INTO note VALUES (1, 'on its way')")
        let agent = try AgentProcess(places, legacy: [legacy])
        let first = try agent.subscribe("Notes.sqlite")
        let arrived = places.group.appending("Notes.sqlite")
        if FileStatus(following: arrived) == nil { try first.next("relocated") }
        let connection = try agent.connect()
        try connection.send([
            "id": 1, "op": "subscribe", "store": .string(Scene.name), "since": .string(try #require(known)),
            "rows": true,
        ])
        #expect(try connection.next { $0["id"] == 1 }.bool("ok") == true)
        let change = try connection.next("change", "reset", "relocated")
        #expect(change.type == "change" && change.objects("rows").map { $0["key"] } == [1], "\(change.text)")
    }

    /// Two authors write at once. The agent reports every row of the other author, and own rows only if it can't tell
    /// them apart.
    @Test func missesNoRowOfOtherAuthorsUnderLoad() throws {
        let scene = try Scene()
        let (subscriber, _) = try scene.subscribe(["except_authors": ["me"], "rows": true])
        let (mine, yours) = (try sqliteShell(scene.store), try sqliteShell(scene.store))
        for shell in [mine, yours] { try shell.execute("PRAGMA busy_timeout = 20000; PRAGMA synchronous = OFF") }
        let count = 150
        for number in 1...count {
            for (shell, author, key) in [(mine, "me", number), (yours, "you", 1000 + number)] {
                shell.send(
                    Word(
                        "BEGIN IMMEDIATE; UPDATE GS_AUTHOR SET name = '\(author)'; INSERT INTO note VALUES (\(key), 'x');"
                            + " UPDATE GS_AUTHOR SET name = NULL; COMMIT;"))
            }
        }
        for shell in [mine, yours] { try shell.execute("SELECT 1") }
        var seen: Set<Int64> = []
        var isUnsure = false
        for event in try scene.pendingEvents(subscriber).events {
            if event["rows"] == nil { isUnsure = true }
            for row in event.objects("rows") {
                #expect(row.string("author") == "you")
                #expect(seen.insert(row.integer("key") ?? 0).inserted, "reported twice")
            }
        }
        #expect(isUnsure || seen.count == count, "\(seen.count) of \(count)")
    }
}
