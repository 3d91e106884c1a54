import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// The rows that an agent tells from the pages of a store without history.
@Suite(.ownThreads) struct AgentRowsTests {
    /// A copy of the table `t`, which is changed by what the agent tells alone.
    private struct Copy {
        var token: String
        var rows: [String: JSONValue] = [:]
        var exact = 0

        /// Applies everything up to now.
        mutating func update(_ scene: RowsScene) throws {
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
        let scene = try RowsScene("PRAGMA journal_mode = WAL; \(Self.table)")
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
        let scene = try RowsScene(Self.table)
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
        let scene = try RowsScene("PRAGMA journal_mode = WAL; \(Self.table)")
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

    /// Whoever is killed in a long backlog goes on after the last change.
    @Test func tellsEachStepOfABacklogWithItsChange() throws {
        let scene = try RowsScene("PRAGMA journal_mode = WAL; \(Self.table)")
        let start = try scene.token()
        for number in 1...4 {
            try sqlite(scene.store, "INSERT INTO t VALUES (\(number), 'a', 1)")
            try scene.awaitSteps(number)
        }
        let options: [Word] = ["--agent", "--values", "--json", Word(scene.name), "--since"]
        var (token, keys) = (start, [JSONValue?]())
        for _ in 1...4 {
            let once = try groupstore(
                "watch", "--once", options: options + [Word(token)], environment: scene.agent.environment)
            #expect(once.objects.compactMap(\.type) == ["subscribed", "batch", "table", "row", "change", "summary"])
            keys += once.objects.filter { $0.type == "row" }.map { $0["key"] }
            token = try #require(once.summary.string("token"), "\(once.output)")
        }
        #expect(keys == [1, 2, 3, 4])

        let watch = try RunningProcess(
            Programs.groupstore, ["watch"] + options + [Word(start)], environment: scene.agent.environment)
        var printed: [JSONObject] = []
        try watch.line {
            printed += [JSONObject(line: $0)].compactMap(\.self)
            return printed.last?.type == "row"
        }
        watch.signal(SIGINT)
        let ended = try watch.wait()
        printed += ended.objects
        let left = try #require(SubscriptionToken(ended.summary.string("token") ?? "")?.history, "\(ended.output)")
        let rows = try printed.filter { $0.type == "row" } + scene.rows(after: left)
        #expect(Set(rows.compactMap { $0.integer("key") }) == [1, 2, 3, 4], "\(ended.output)")
    }

    /// Without a filter by author, pages tell all. With one, only a history can.
    @Test func refusesAuthorsWithoutAHistory() throws {
        let scene = try RowsScene(Self.table)
        let token = try scene.token()
        let reply = try scene.ask(["op": "changes", "authors": ["me"], "since": .string(token)]).reply
        #expect(reply.object("error")?.string("code") == "no_history", "\(reply.text)")
    }

    /// The log is the agent's own file; the copy is made anew, and a subscriber reads again.
    @Test func aDamagedLogIsMadeAnew() throws {
        let scene = try RowsScene(Self.table)
        let token = try scene.token()
        try sqlite(scene.store, "INSERT INTO t VALUES (1, 'a', 1)")
        try scene.awaitSteps(1)
        // The last step is in the agent's memory too.
        try sqlite(scene.store, "INSERT INTO t VALUES (0, 'z', 0)")
        try scene.awaitSteps(2)
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

    /// A difference from a page that isn't what was written would be a wrong row.
    @Test func aDamagedCopyIsMadeAnew() throws {
        let scene = try RowsScene("\(Self.table); INSERT INTO t VALUES (1, 'a', 1)")
        _ = try scene.token()
        // The pages that are in memory are the right ones. These push them out.
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
        try sqlite(scene.store, "CREATE TABLE filler AS \(many) SELECT zeroblob(3000) FROM n")
        try scene.awaitSteps(1)
        let token = try scene.token()
        let copy = scene.places.group.appending(".groupstore/rows/Notes.sqlite/0/pages")
        let file = try Descriptor(opening: copy, flags: O_RDWR)
        let byte = try file.read(count: 1, at: 2 * 4096 - 1, path: copy)
        try file.write([(byte.first ?? 0) ^ 1], at: 2 * 4096 - 1, path: copy)
        try sqlite(scene.store, "UPDATE t SET x = 'b'")
        let (lines, reply) = try scene.ask(["op": "changes", "values": true, "since": .string(token)])
        #expect(lines.map(\.type) == ["reset"] && lines.first?.string("reason") == "epoch", "\(reply.text)")
        let present = try #require(reply.string("token"))
        try sqlite(scene.store, "UPDATE t SET x = 'c'")
        let rows = try scene.ask(["op": "changes", "values": true, "since": .string(present)]).lines
        #expect(rows.last?["before"]?.text == #"[1,"b",1]"#, "\(rows.map(\.text))")
    }

    /// The store is locked while the agent starts. Nobody may take that for a store without rows.
    @Test func watchWaitsForAWriterThatLocksTheStore() throws {
        let scene = try RowsScene(Self.table)
        let writer = try sqliteShell(scene.store)
        try scene.killAgent { try writer.execute("BEGIN EXCLUSIVE; INSERT INTO t VALUES (1, 'a', 1)") }
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--agent", "--values", "--json", Word(scene.name)],
            environment: scene.agent.environment)
        try watch.line(.errors) { $0.contains("can't be read now") && $0.contains("waiting") }
        try writer.execute("COMMIT")
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }
        try writer.execute("INSERT INTO t VALUES (2, 'b', 2)")
        var keys: [JSONValue?] = []
        try watch.line {
            guard let line = JSONObject(line: $0) else { return false }
            if line.type == "row" { keys.append(line["key"]) }
            // The first commit may be told after the subscription, whose position has its row.
            return line.type == "change" && !keys.isEmpty
        }
        #expect(keys == [2])
        writer.closeInput()
        try writer.wait()
        try watch.killAtOnce()
    }

    /// The copy is made anew at once, also of a file with the same pages, and the next commit is told by its rows.
    @Test func tellsTheFirstCommitToAnotherFile() throws {
        let scene = try RowsScene("\(Self.table); INSERT INTO t VALUES (1, 'a', 1)")
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--agent", "--values", "--json", Word(scene.name)],
            environment: scene.agent.environment)
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }
        let (before, other) = (try scene.token(), scene.places.group.appending("other"))
        try run("cp", [Word(scene.store), Word(other)])
        try run("mv", [Word(other), Word(scene.store)])
        var found: [String] = []
        func next(_ type: String) throws -> JSONObject {
            var last = JSONObject()
            try watch.line {
                guard let line = JSONObject(line: $0) else { return false }
                found.append(line.string("reason") ?? line.type ?? "")
                last = line
                return found.last == type
            }
            return last
        }
        let token = try next("replaced").string("token").flatMap { SubscriptionToken($0)?.history }
        #expect(try token == scene.token() && token != before)
        try sqlite(scene.store, "INSERT INTO t VALUES (2, 'b', 2)")
        #expect(try next("row")["key"] == 2)
        #expect(found == ["replaced", "batch", "table", "row"])
        let (lines, _) = try scene.ask(["op": "changes", "since": .string(before)])
        #expect(lines.map { $0.string("reason") } == ["epoch"])
        try watch.killAtOnce()
    }

    /// A subscriber gets changes without rows, and needs to find out why.
    @Test func statusSaysWhyRowsAreNotRecorded() throws {
        let scene = try RowsScene(Self.table)
        let rows = scene.places.group.appending(".groupstore/rows")
        _ = try scene.token()
        func status(_ words: Word...) throws -> FinishedProcess {
            try groupstore("status", options: words + ["--json"], environment: scene.agent.environment)
        }
        #expect(try status("--check").status == 0)
        try scene.killAgent { #expect(chmod(rows.string, 0o755) == 0) }
        for _ in 1...3 {
            let reply = try scene.ask(["op": "changes"]).reply
            #expect(reply.object("error")?.string("code") == "not_private", "\(reply.text)")
        }
        let failure = try #require(try status().objects.first { $0.type == "store" }?.object("rows_failed"))
        #expect(failure.string("code") == "not_private" && failure.string("hint")?.contains("rm -r") == true)
        let check = try status("--check")
        #expect(check.status == 77 && check.objects.first?.string("check") == "rows", "\(check.output)")
        #expect(chmod(rows.string, 0o700) == 0)
        #expect(try scene.ask(["op": "changes"]).reply.bool("ok") == true)
        #expect(try status("--check").status == 0)
    }

    /// Nothing is written to the store, so nothing records who has read how far.
    @Test func refusesAnAcknowledgement() throws {
        let scene = try RowsScene(Self.table)
        let token = try scene.token()
        let reply = try scene.ask(["op": "ack", "subscriber": "index", "token": .string(token)]).reply
        let error = try #require(reply.object("error"), "\(reply.text)")
        #expect(error.string("code") == "not_supported" && error.string("hint")?.contains("history") == false)
    }

    /// The log and the index have lost their names when the agent reads them. It has opened them before.
    @Test func tellsTheCommitsApartOfAProgramThatHasClosedTheStore() throws {
        let scene = try RowsScene("PRAGMA journal_mode = WAL; \(Self.table)")
        let token = try scene.token()
        let writer = try sqliteShell(scene.store)
        try writer.execute("SELECT * FROM t")
        #expect(try scene.ask(["op": "sync"]).reply.bool("ok") == true)
        try scene.agent.process.suspend()
        try writer.execute("INSERT INTO t VALUES (1, 'a', 1)")
        try writer.execute("UPDATE t SET y = 2")
        writer.closeInput()
        try writer.wait()
        #expect(FileStatus(following: scene.places.group.appending("Notes.sqlite-wal")) == nil)
        scene.agent.process.signal(SIGCONT)
        #expect(try scene.ask(["op": "sync"]).reply.bool("ok") == true)
        let rows = try scene.rows(after: token)
        #expect(rows.map { $0.string("op") } == ["insert", "update"])
        #expect(rows.allSatisfy { $0.object("transaction")?.bool("exact") == true }, "\(rows.map(\.text))")
    }

    /// Each page begins where the one before it ended, whatever the table, and however many rows the step has.
    @Test(arguments: ["", "WITHOUT ROWID"]) func pagesOfOneStepHaveEachRowOnce(_ kind: String) throws {
        let scene = try RowsScene(
            "CREATE TABLE a (id INTEGER PRIMARY KEY, x); CREATE TABLE b (id INTEGER PRIMARY KEY, x) \(kind);"
                + "CREATE TABLE c (id INTEGER PRIMARY KEY, x); INSERT INTO b VALUES (1, 'old'), (2, 'old'), (40, 'old')"
        )
        let token = try scene.token()
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) "
        try sqlite(
            scene.store,
            "BEGIN; \(numbers) INSERT INTO a SELECT i, 'a' || i FROM n; DELETE FROM b WHERE id = 1;"
                + "\(numbers) INSERT OR REPLACE INTO b SELECT i, 'b' || i FROM n WHERE i > 1;"
                + "\(numbers) INSERT INTO c SELECT i, 'c' || i FROM n; COMMIT")
        for (limit, values) in [(7, true), (50, true), (50, false), (1000, true)] {
            let rows = try scene.rows(after: token, limit: limit, values: values)
            let expected =
                (1...50).map { "a \($0) insert" }
                + (1...50).map { "b \($0) \($0 == 1 ? "delete" : [2, 40].contains($0) ? "update" : "insert")" }
                + (1...50).map { "c \($0) insert" }
            let found = rows.map { "\($0.string("table") ?? "") \($0["key"]?.text ?? "") \($0.string("op") ?? "")" }
            #expect(found.sorted() == expected.sorted(), "limit \(limit)")
        }
        let deletes = try scene.rows(after: token, limit: 1, operations: ["delete", "update"])
        #expect(deletes.compactMap { $0["key"] }.count == 3)
    }

    /// A client that does what a table's line says must not do it again for each page of the step.
    @Test func pagesOfOneStepTellOnceWhatBecameOfATable() throws {
        let scene = try RowsScene("CREATE TABLE item (id INTEGER PRIMARY KEY, value)")
        var token = try scene.token()
        let before: JSONObject = ["op": "changes", "values": true, "limit": 7, "since": .string(token)]
        let schema = try #require(try scene.ask(before).reply.string("schema"))
        try sqlite(
            scene.store,
            "BEGIN; ALTER TABLE item RENAME TO thing; CREATE TABLE empty (x); CREATE TABLE made (id INTEGER PRIMARY KEY);"
                + "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 21)"
                + "INSERT INTO made SELECT i FROM n; INSERT INTO thing VALUES (1, 'a'); CREATE TABLE last (x); COMMIT")
        // Whoever doesn't follow these lines names the schema that it knows.
        var other = before
        other["schema"] = .string(schema)
        let (reset, present) = try scene.ask(other)
        #expect(reset.first?.string("reason") == "schema_changed" && present.string("outcome") == "reset")
        var (tables, rowCount) = ([String](), 0)
        while true {
            var request = before
            request["since"] = .string(token)
            let (lines, reply) = try scene.ask(request)
            for line in lines {
                rowCount += line.type == "row" ? 1 : 0
                if let change = line.string("schema"), line.type == "table" {
                    tables.append("\(line.string("table") ?? "") \(change)")
                }
            }
            token = try #require(reply.string("token"))
            if reply.bool("more") != true { break }
        }
        #expect(tables.sorted() == ["empty created", "last created", "made created", "thing altered"])
        #expect(rowCount == 22 && present.string("token") == token)
    }

    @Test func aTokenOfAnotherCopyIsReset() throws {
        let scene = try RowsScene(Self.table)
        let (lines, reply) = try scene.ask(["op": "changes", "values": true, "since": "h1.pages-1.0.0"])
        #expect(reply.string("outcome") == "reset" && lines.first?.string("reason") == "epoch", "\(reply.text)")
    }

    /// The group's directory is put back in place, and the next step gets the number of the token's. The agent has told
    /// it before anybody comes with the token.
    @Test func aTokenNewerThanTheGroupsDirectoryIsReset() throws {
        let scene = try RowsScene(Self.table)
        let group = Word(scene.places.group), saved = Word(scene.places.scratch("saved"))
        // The copy is made.
        _ = try scene.token()
        try sqlite(scene.store, "INSERT INTO t VALUES (1, 'a', 1)")
        try scene.awaitSteps(1)
        let first = try scene.token()
        try scene.killAgent { try run("cp", ["-a", group, saved]) }
        try sqlite(scene.store, "INSERT INTO t VALUES (2, 'a', 1)")
        try scene.awaitSteps(2)
        let second = try scene.token()
        try scene.killAgent {
            let script = "cd \"$2\" && find . -type f | while read -r f; do cat \"$f\" > \"$1/$f\"; done"
            try run("sh", ["-c", Word(script), "sh", group, saved])
            try sqlite(scene.store, "INSERT INTO t VALUES (3, 'a', 1)")
        }
        try scene.awaitSteps(2)
        let (lines, reply) = try scene.ask(["op": "changes", "since": .string(second)])
        #expect(reply.string("outcome") == "reset" && lines.first?.string("reason") == "epoch", "\(reply.text)")
        #expect(try scene.rows(after: first).map { $0["key"] } == [3])
        let third = try scene.token()
        #expect(third != second)
        #expect(try scene.rows(after: third) == [])
    }

    @Test(arguments: ["WAL", "DELETE"]) func replayingWhatIsToldGivesTheStore(_ mode: String) throws {
        try storm(mode, steps: 40, seed: 37)
    }

    @Test(.soak, arguments: ["WAL", "DELETE", "PERSIST", "TRUNCATE"])
    func replayingALongStormGivesTheStore(_ mode: String) throws { try storm(mode, steps: 1500, seed: 3737) }

    private func storm(_ mode: String, steps: Int, seed: UInt64) throws {
        let scene = try RowsScene("PRAGMA journal_mode = \(mode); \(Self.table)")
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
