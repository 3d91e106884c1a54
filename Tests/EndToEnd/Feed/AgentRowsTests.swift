import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// The rows that an agent tells from the pages of a store without history.
@Suite(.ownThreads) struct AgentRowsTests {
    /// An agent that follows the rows of one store, and can be killed.
    private final class Scene {
        let places: Places
        let store: FilePath
        let name = "\(AgentProcess.group)/Notes.sqlite"
        private let configuration: FilePath
        private(set) var agent: AgentProcess
        private var number: Int64 = 0

        init(_ sql: String) throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            try sqlite(store, sql)
            configuration = places.scratch("config.yaml")
            let text = """
                groups:
                  - id: \(AgentProcess.group)
                    directory: \(places.group.string)
                    stores: [{ name: Notes.sqlite, rows: true }]
                """
            try Descriptor(opening: configuration, flags: O_WRONLY | O_CREAT, mode: 0o600)
                .write(Array(text.utf8), at: 0, path: configuration)
            agent = try Self.start(configuration, places)
        }

        private static func start(_ configuration: FilePath, _ places: Places) throws -> AgentProcess {
            try AgentProcess(["--config", Word(configuration)], socket: places.scratch("agent.sock"))
        }

        func killAgent(_ meanwhile: () throws -> Void = {}) throws {
            try agent.process.killAtOnce()
            try meanwhile()
            agent = try Self.start(configuration, places)
        }

        /// Returns the lines before the reply to a request, and the reply.
        func ask(_ request: JSONObject) throws -> (lines: [JSONObject], reply: JSONObject) {
            number += 1
            var request = request
            request["id"] = .integer(number)
            request["store"] = .string(name)
            let connection = try agent.connect()
            try connection.send(request)
            var lines: [JSONObject] = []
            let reply = try connection.next { line in
                guard line["ok"] == nil else { return true }
                lines.append(line)
                return false
            }
            return (lines, reply)
        }

        /// Waits until the agent's log has so many steps, without a request that would make it read the store.
        func awaitSteps(_ number: Int) throws {
            let deadline = Deadline(after: .ample)
            while true {
                let shown = try groupstore("rows", "show", Word(name), "--json", environment: agent.environment)
                if shown.objects.first?["steps"] == .integer(Int64(number)) { return }
                try #require(!deadline.hasPassed, "\(shown.output)")
            }
        }

        /// Returns the present position.
        func token() throws -> String {
            let reply = try ask(["op": "subscribe", "durable": true]).reply
            return try #require(SubscriptionToken(reply.string("token") ?? "")?.history, "\(reply.text)")
        }
    }

    /// A copy of the table `t`, which is changed by what the agent tells alone.
    private struct Copy {
        var token: String
        var rows: [String: JSONValue] = [:]
        var exact = 0

        /// Applies everything up to now.
        mutating func update(_ scene: Scene) throws {
            #expect(try scene.ask(["op": "sync"]).reply.bool("ok") == true)
            while true {
                let (lines, reply) = try scene.ask([
                    "op": "changes", "values": true, "since": .string(token), "limit": 7,
                ])
                #expect(reply.string("outcome") == "changes", "\(reply.text)")
                for line in lines where line.type == "row" {
                    let key = try #require(line["key"]?.text)
                    #expect(line["before"]?.text == rows[key]?.text, "\(line.text)")
                    rows[key] = line["values"]
                    if line.object("transaction")?.bool("exact") == true { exact += 1 }
                }
                token = try #require(reply.string("token"), "\(reply.text)")
                if reply.bool("more") != true { return }
            }
        }

        var text: String {
            rows.values.map(\.text).sorted().map { $0 + "\n" }.joined()
        }

        static func text(of store: FilePath) throws -> String {
            let lines = try sqlite(store, "SELECT json_array(id, x, y) FROM t").split(separator: "\n")
            return lines.map { String($0) }.sorted().map { $0 + "\n" }.joined()
        }
    }

    private static let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT, y INTEGER)"

    @Test func aSubscriberContinuesAfterTheAgentWasKilled() throws {
        let scene = try Scene("PRAGMA journal_mode = WAL; \(Self.table)")
        var copy = Copy(token: try scene.token())
        let writer = try sqliteShell(scene.store)
        try writer.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2); UPDATE t SET y = 3 WHERE id = 1")
        try copy.update(scene)
        // Each transaction in the log is told by itself.
        #expect(copy.exact == 3 && copy.rows.count == 2)
        try scene.killAgent { try writer.execute("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, 'c', 4)") }
        try copy.update(scene)
        #expect(try copy.text == Copy.text(of: scene.store))
        writer.closeInput()
        try writer.wait()
        let directory = scene.places.group.appending(".groupstore").appending("rows")
        #expect(FileStatus(following: directory)?.permissions == 0o700)
    }

    /// Nobody subscribes, so only the agent itself can know that there were two commits.
    @Test func tellsTheCommitsApartThatNobodyListenedTo() throws {
        let scene = try Scene(Self.table)
        let token = try scene.token()
        for (number, sql) in ["INSERT INTO t VALUES (1, 'a', 1)", "UPDATE t SET y = 2"].enumerated() {
            try sqlite(scene.store, sql)
            try scene.awaitSteps(number + 1)
        }
        var position = token
        var operations: [String] = []
        while true {
            let (lines, reply) = try scene.ask(["op": "changes", "since": .string(position)])
            operations += lines.compactMap { $0.string("op") }
            position = try #require(reply.string("token"), "\(reply.text)")
            if reply.bool("more") != true { break }
        }
        #expect(operations == ["insert", "update"])
        let refused = try groupstore("rows", "disable", Word(scene.name), environment: scene.agent.environment)
        #expect(refused.status == 75 && refused.errors.contains("remove 'rows: true'"), "\(refused.errors)")
    }

    @Test func watchPrintsTheRowsOfAStoreThatTheAgentFollows() throws {
        let scene = try Scene("PRAGMA journal_mode = WAL; \(Self.table)")
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--agent", "--rows", "--values", "--json", Word(scene.name)],
            environment: scene.agent.environment)
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }
        try sqlite(scene.store, "INSERT INTO t VALUES (1, 'a', 1)")
        var types: [String] = []
        var last = JSONObject()
        try watch.line {
            guard let line = JSONObject(line: $0) else { return false }
            types.append(line.type ?? "")
            last = line
            return line.type == "change"
        }
        #expect(types == ["batch", "table", "row", "change"])
        #expect(last.objects("rows").first?["key"] == 1, "\(last.text)")
        try watch.killAtOnce()
    }

    /// Without a filter by author, pages tell all. With one, only a history can.
    @Test func refusesAuthorsWithoutAHistory() throws {
        let scene = try Scene(Self.table)
        let token = try scene.token()
        let reply = try scene.ask(["op": "changes", "authors": ["me"], "since": .string(token)]).reply
        #expect(reply.object("error")?.string("code") == "no_history", "\(reply.text)")
    }

    /// The log is the agent's own file; the copy is made anew, and a subscriber reads again.
    @Test func aDamagedLogIsMadeAnew() throws {
        let scene = try Scene(Self.table)
        let token = try scene.token()
        try sqlite(scene.store, "INSERT INTO t VALUES (1, 'a', 1)")
        try scene.awaitSteps(1)
        let place = scene.places.group.appending(".groupstore/rows/Notes.sqlite/0")
        let log = try #require(try Directory(place).names().first { $0.string.hasPrefix("log-") })
        #expect(truncate(place.appending(log).string, 100) == 0)
        _ = try scene.ask(["op": "changes", "since": .string(token)])
        let (lines, reply) = try scene.ask(["op": "changes", "since": .string(token)])
        #expect(reply.string("outcome") == "reset" && lines.first?.string("reason") == "epoch", "\(reply.text)")
        let present = try scene.token()
        try sqlite(scene.store, "INSERT INTO t VALUES (2, 'b', 2)")
        let rows = try scene.ask(["op": "changes", "since": .string(present)]).lines
        #expect(rows.map { $0["key"] } == [2])
    }

    @Test func aTokenOfAnotherCopyIsReset() throws {
        let scene = try Scene(Self.table)
        let (lines, reply) = try scene.ask(["op": "changes", "values": true, "since": "h1.pages-1.0.0"])
        #expect(reply.string("outcome") == "reset" && lines.first?.string("reason") == "epoch", "\(reply.text)")
    }

    @Test(arguments: ["WAL", "DELETE"]) func replayingWhatIsToldGivesTheStore(_ mode: String) throws {
        try storm(mode, steps: 40, seed: 37)
    }

    @Test(.soak, arguments: ["WAL", "DELETE", "PERSIST", "TRUNCATE"])
    func replayingALongStormGivesTheStore(_ mode: String) throws { try storm(mode, steps: 1500, seed: 3737) }

    private func storm(_ mode: String, steps: Int, seed: UInt64) throws {
        let scene = try Scene("PRAGMA journal_mode = \(mode); \(Self.table)")
        var copy = Copy(token: try scene.token())
        var random = SeededGenerator(seed: seed)
        func statements() -> String {
            (0..<Int.random(in: 1...6, using: &random)).map { _ in
                let key = Int.random(in: 1...200, using: &random)
                return switch Int.random(in: 0...9, using: &random) {
                case 0...5: "REPLACE INTO t VALUES (\(key), hex(zeroblob(\(key * 7))), \(key))"
                case 6, 7: "UPDATE t SET y = y + 1 WHERE id BETWEEN \(key) AND \(key + 20)"
                default: "DELETE FROM t WHERE id BETWEEN \(key) AND \(key + 9)"
                }
            }.joined(separator: "; ")
        }
        var writer = try sqliteShell(scene.store)
        for step in 1...steps {
            switch Int.random(in: 0...11, using: &random) {
            case 0...3: try writer.execute(statements())
            case 4: try writer.execute("BEGIN; \(statements()); COMMIT")
            case 5: try writer.execute("BEGIN; \(statements()); ROLLBACK")
            case 6: try writer.execute("VACUUM")
            case 7: try writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            case 8: try sqlite(scene.store, statements())
            case 9: try scene.killAgent { try writer.execute(statements()) }
            case 10:
                try writer.execute("BEGIN; \(statements())")
                try writer.killAtOnce()
                writer = try sqliteShell(scene.store)
            default:
                writer.closeInput()
                try writer.wait()
                let copy = scene.places.scratch("copy-\(step)")
                try sqlite(scene.store, "VACUUM INTO '\(copy.string)'")
                try sqlite(copy, "PRAGMA journal_mode = \(mode); \(statements())")
                #expect(try run("cp", [Word(copy), Word(scene.store)]).status == 0)
                writer = try sqliteShell(scene.store)
            }
            try copy.update(scene)
            #expect(try copy.text == Copy.text(of: scene.store), "step \(step)")
        }
        writer.closeInput()
        try writer.wait()
    }
}
