import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `watch` and `rows` on a store that keeps no history.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct PageRowTests {
    private final class Scene {
        let places: Places
        let store: FilePath
        let tokens: FilePath
        let environment: [String: String]

        init() throws {
            places = try Places()
            store = places.group.appending("Notes.sqlite")
            tokens = places.scratch("token")
            environment = ["XDG_STATE_HOME": places.scratch("state").string]
            try sqlite(
                store, "CREATE TABLE note (id INTEGER PRIMARY KEY, title); CREATE TABLE tag (name); VACUUM")
        }

        /// The token in the file, once it differs from that one.
        func token(after former: String?) throws -> String {
            let directory = try Directory(tokens.removingLastComponent())
            let deadline = Deadline(after: .ample)
            while !deadline.hasPassed {
                let bytes = try DurableFile.read("token", in: directory) ?? []
                let token = String(decoding: bytes.dropLast(), as: UTF8.self)
                if token != former ?? "" { return token }
                pause(.milliseconds(1))
            }
            throw Unexpected("the token stays \(former ?? "away")")
        }

        func watch(_ words: Word...) throws -> RunningProcess {
            let all: [Word] = ["watch", "--direct", "--token-file", Word(tokens), Word(store)] + words
            return try RunningProcess(Programs.groupstore, all, environment: environment)
        }

        func next(_ watch: RunningProcess, _ types: String...) throws -> JSONObject {
            var found = JSONObject()
            try watch.line {
                guard let line = JSONObject(line: $0) else { return false }
                found = line
                return types.contains(line.type ?? "")
            }
            return found
        }
    }

    @Test func rowsAloneHaveTheirKeysOnly() throws {
        let scene = try Scene()
        let watch = try scene.watch("--rows", "--json")
        _ = try scene.next(watch, "watching")
        try sqlite(scene.store, "INSERT INTO note VALUES (7, 'a')")
        let row = try scene.next(watch, "row", "change")
        #expect(row["key"] == 7 && row["values"] == nil && row["before"] == nil)
        #expect(try scene.next(watch, "change")["tables"] == ["note"])
    }

    /// The watch goes on meanwhile, and nothing waits for it.
    @Test func changesReadsTheRowsThatAreLoggedAfterAToken() throws {
        let scene = try Scene()
        let watch = try scene.watch("--values", "--json")
        let first = try #require(try scene.next(watch, "watching").string("token"))
        var told: [String] = []
        for sql in ["INSERT INTO note VALUES (7, 'a'); INSERT INTO tag VALUES ('t')", "UPDATE note SET title = 'b'"] {
            try sqlite(scene.store, "BEGIN; \(sql); COMMIT")
            try watch.line { line in
                if JSONObject(line: line)?.type != "change" { told.append(line) }
                return JSONObject(line: line)?.type == "change"
            }
        }
        func changes(_ words: Word...) throws -> FinishedProcess {
            try groupstore(
                "changes", options: [Word(scene.store), "--json", "--since"] + words, environment: scene.environment)
        }
        let whole = try changes(Word(first), "--values")
        #expect(Array(whole.lines.dropLast()) == told)
        #expect(whole.summary["changes"] == 3 && whole.summary["more"] == false)
        let page = try changes(Word(first), "--tables", "NOTE", "--limit", "1")
        #expect(page.objects.map(\.type) == ["row", "summary"] && page.summary["more"] == true, "\(page.output)")
        let rest = try changes(Word(page.summary.string("token") ?? ""), "--operations", "update")
        #expect(rest.objects.first?["key"] == 7 && rest.summary["token"] == whole.summary["token"])
        #expect(try changes("rows1-1-0").objects.first?.string("reason") == "epoch")
        #expect(try changes(Word(first), "--authors", "me").status == 64)
    }

    /// The rows are the difference from what was told before, so nobody has to read the store again.
    @Test func rowsOfExclusiveModeComeWithoutAReset() throws {
        let scene = try Scene()
        let watch = try scene.watch("--rows", "--json")
        _ = try scene.next(watch, "watching")
        let writer = try sqliteShell(scene.store)
        try writer.execute("PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note VALUES (1, 'a')")
        try writer.execute("INSERT INTO note VALUES (2, 'b')")
        try watch.line(.errors) { $0.contains("a program keeps it locked") }
        writer.closeInput()
        try writer.wait()
        #expect(try [scene.next(watch, "row", "reset")["key"], scene.next(watch, "row", "reset")["key"]] == [1, 2])
        #expect(try scene.next(watch, "change", "reset").type == "change")
        try sqlite(scene.store, "INSERT INTO note VALUES (3, 'c')")
        #expect(try scene.next(watch, "row", "reset")["key"] == 3)
    }

    @Test func anInterruptedWatchEndsWithItsToken() throws {
        let scene = try Scene()
        let watch = try scene.watch("--values", "--json")
        let token = try #require(try scene.next(watch, "watching").string("token"))
        watch.signal(SIGINT)
        #expect(try watch.wait().summary.string("token") == token)
    }

    /// The store's writers need the last bytes.
    @Test(.enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
    func leavesSpaceOnTheStoresDisk() throws {
        let places = try Places()
        let script = """
            set -e
            mount -t tmpfs -o size=16m none "$1"
            cd "$1"
            export XDG_STATE_HOME="$1/state"
            free() { df --output=avail -k . | tail -n 1; }
            tell() { "$2" watch --direct --values --json --once --since "$token" "$1/Notes.sqlite" || echo "$?"; }
            sqlite3 Notes.sqlite "CREATE TABLE note (id INTEGER PRIMARY KEY, text)"
            "$2" rows enable Notes.sqlite >/dev/null
            token=$("$2" rows show Notes.sqlite --json | sed -n 's/.*"token":"\\([^"]*\\)".*/\\1/p')
            head -c $((($(free) - 800) * 1024)) /dev/zero >fill
            sqlite3 Notes.sqlite "INSERT INTO note VALUES (1, 'a')"
            before=$(free)
            tell "$1" "$2"
            echo "lost $((before - $(free)))"
            rm fill
            tell "$1" "$2"
            """
        let done = try run(
            "unshare",
            ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script), "sh", Word(places.group)]
                + [Programs.groupstore])
        let lines = done.lines
        let refused = try #require(lines.firstIndex(of: "74"), "\(done.output)\(done.errors)")
        #expect(JSONObject(line: lines[refused - 1])?.object("error")?.string("code") == "no_space", "\(done.output)")
        #expect(Int(lines[refused + 1].dropFirst(5)).map { $0 < 100 } ?? false, "\(done.output)")
        let told = lines[(refused + 2)...].compactMap(JSONObject.init(line:))
        let types = told.compactMap(\.type)
        #expect(types == ["watching", "batch", "table", "row", "change", "summary"], "\(done.output)")
    }

    /// The step was logged but not printed, as after a kill.
    @Test func aDamagedLogIsAReset() throws {
        let scene = try Scene()
        var watch = try scene.watch("--values", "--json")
        let first = try #require(try scene.next(watch, "watching").string("token"))
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'secret')")
        _ = try scene.token(after: first)
        try watch.killAtOnce()
        let script = "cd \"$1\"/groupstore && f=$(grep -rl secret --include='log-*') && sed -i s/secret/sacred/ \"$f\""
        try run("sh", ["-c", Word(script), "sh", Word(scene.places.scratch("state"))])
        try write(first + "\n", to: scene.tokens)
        watch = try scene.watch("--values", "--json")
        #expect(try scene.next(watch, "row", "change", "reset").type == "reset")
        try sqlite(scene.store, "INSERT INTO note VALUES (2, 'b')")
        #expect(try scene.next(watch, "row", "reset")["values"] == [2, "b"])
        _ = try scene.next(watch, "change")
    }

    /// The token is newer than the state directory that was put back, whose next step has the token's number.
    @Test func aTokenNewerThanTheStateDirectoryIsAReset() throws {
        let scene = try Scene()
        let state = Word(scene.places.scratch("state")), saved = Word(scene.places.scratch("saved"))
        var token: String?
        for key in 1...2 {
            let watch = try scene.watch("--values", "--json")
            let first = try scene.next(watch, "watching").string("token")
            try sqlite(scene.store, "INSERT INTO note VALUES (\(key), 'a')")
            _ = try scene.next(watch, "change")
            token = try scene.token(after: first)
            try watch.killAtOnce()
            if key == 1 { try run("cp", ["-a", state, saved]) }
        }
        try run("sh", ["-c", "rm -r \"$1\" && cp -a \"$2\" \"$1\"", "sh", state, saved])
        try sqlite(scene.store, "INSERT INTO note VALUES (3, 'a')")
        let watch = try scene.watch("--values", "--json")
        let reset = try scene.next(watch, "reset", "row", "change")
        #expect(reset.type == "reset" && reset.string("reason") == "epoch", "\(reset.text)")
        let changes = try groupstore(
            "changes", Word(scene.store), "--json", "--since", Word(token ?? ""), environment: scene.environment)
        #expect(changes.objects.first?.string("reason") == "epoch", "\(changes.output)")
        try sqlite(scene.store, "INSERT INTO note VALUES (4, 'a')")
        #expect(try scene.next(watch, "row", "reset")["key"] == 4)
    }

    @Test func leavesOutStepsWithoutAWantedRow() throws {
        let scene = try Scene()
        let watch = try scene.watch("--values", "--json", "--operations", "delete", "--tables", "note")
        let first = try scene.next(watch, "watching").string("token")
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a')")
        let second = try scene.token(after: first)
        try sqlite(scene.store, "INSERT INTO tag VALUES ('a')")
        let third = try scene.token(after: second)
        try sqlite(scene.store, "DELETE FROM note")
        // Nothing of the first two is printed.
        let batch = try scene.next(watch, "batch", "table", "row", "change")
        #expect(batch.type == "batch" && batch.string("from") == third)
        #expect(try scene.next(watch, "row")["before"] == [1, "a"])
        _ = try scene.next(watch, "change")
    }

    /// No former value tells what a row had in a column of a new name.
    @Test(
        arguments: [
            ("ALTER TABLE note ADD COLUMN stars DEFAULT 5; UPDATE note SET stars = 6 WHERE id = 1", [[1, "a", 6]]),
            ("ALTER TABLE note ADD COLUMN stars; UPDATE note SET stars = 6, title = 'b' WHERE id = 1", [[1, "b", 6]]),
            ("ALTER TABLE note RENAME title TO name; UPDATE note SET name = 'b' WHERE id = 1", [[1, "b"]]),
            (
                "DROP TABLE note; CREATE TABLE note (id INTEGER PRIMARY KEY, z); INSERT INTO note VALUES (1, 'z')",
                [[1, "z"]]
            ),
        ] as [(String, [[JSONValue]])])
    func tellsTheRowsOfAStepThatAltersTheirTable(_ sql: String, _ expected: [[JSONValue]]) throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a'), (2, 'b')")
        let watch = try scene.watch("--values", "--json", "--operations", "update")
        _ = try scene.next(watch, "watching")
        try sqlite(scene.store, "BEGIN; \(sql); COMMIT")
        var values: [JSONValue?] = []
        while true {
            let line = try scene.next(watch, "row", "change")
            if line.type == "change" { break }
            values.append(line["values"])
        }
        #expect(values == expected.map { .array($0) })
    }

    /// A step has one encoding: the texts before it would be told wrong.
    @Test func anotherEncodingIsAReset() throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a')")
        let other = scene.places.scratch("other")
        try sqlite(
            other, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE note (id INTEGER PRIMARY KEY, title); VACUUM")
        let watch = try scene.watch("--values", "--json")
        _ = try scene.next(watch, "watching")
        #expect(try run("cp", [Word(other), Word(scene.store)]).status == 0)
        #expect(try scene.next(watch, "reset", "row").type == "reset")
    }

    /// The reset says why, and covers the difference that can't be told.
    @Test func anotherFileOfAnotherEncodingIsOneReset() throws {
        let scene = try Scene()
        let other = scene.places.group.appending("other")
        try sqlite(
            other, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE note (id INTEGER PRIMARY KEY, title); VACUUM")
        let watch = try scene.watch("--values", "--json")
        _ = try scene.next(watch, "watching")
        #expect(try run("mv", [Word(other), Word(scene.store)]).status == 0)
        #expect(try scene.next(watch, "reset", "row", "change").string("reason") == "replaced")
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a')")
        #expect(try scene.next(watch, "reset", "row", "change")["key"] == 1)
    }

    /// SQLite ignores the case of ASCII letters in names.
    @Test func aFilterAdmitsATableByItsFormerAndItsPresentName() throws {
        let scene = try Scene()
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a')")
        let watch = try scene.watch("--values", "--json", "--operations", "delete", "--tables", "NOTE")
        _ = try scene.next(watch, "watching")
        try sqlite(scene.store, "DELETE FROM note")
        #expect(try scene.next(watch, "row")["table"] == "note")
        _ = try scene.next(watch, "change")
        try sqlite(scene.store, "ALTER TABLE note RENAME TO other")
        let table = try scene.next(watch, "table")
        #expect(table["schema"] == "altered" && table.object("before")?["table"] == "note", "\(table.text)")
        _ = try scene.next(watch, "change")
    }

    @Test func advancesTheTokenPastStepsThatAreLeftOut() throws {
        let scene = try Scene()
        let watch = try scene.watch("--values", "--json", "--tables", "note")
        let first = try scene.next(watch, "watching").string("token")
        #expect(try scene.token(after: nil) == first)
        try sqlite(scene.store, "INSERT INTO tag VALUES ('a')")
        let reached = try scene.token(after: first)
        try watch.killAtOnce()
        let again = try scene.watch("--values", "--json")
        #expect(try scene.next(again, "watching").string("token") == reached)
        try sqlite(scene.store, "INSERT INTO note VALUES (1, 'a')")
        #expect(try scene.next(again, "table")["table"] == "note")
    }

    /// A power cut may leave an empty file, or zeros, where the token was renamed to.
    @Test(arguments: [[], [UInt8](repeating: 0, count: 25)])
    func aTokenLostToAPowerCutIsAReset(_ content: [UInt8]) throws {
        let scene = try Scene()
        let watch = try scene.watch("--values", "--json")
        _ = try scene.next(watch, "watching")
        try watch.killAtOnce()
        let directory = try Directory(scene.tokens.removingLastComponent())
        try DurableFile.write(content, as: "token", in: directory, mode: 0o600)
        let again = try scene.watch("--values", "--json")
        let reset = try scene.next(again, "reset", "change")
        #expect(reset.type == "reset" && reset.string("reason") == "epoch")
        #expect(try scene.token(after: "lost") == reset.string("token"))
    }

    @Test func printsEnvelopesOfRowsFromPages() throws {
        let scene = try Scene()
        let watch = try scene.watch("--format", "debezium")
        try watch.line(.errors) { $0.hasPrefix("watching") }
        var envelopes: [JSONObject] = []
        // No journal that persists tells a transaction from others.
        let update = "PRAGMA journal_mode = persist; UPDATE note SET title = 'b'"
        for sql in ["INSERT INTO note VALUES (1, 'a')", update] {
            try sqlite(scene.store, sql)
            envelopes.append(try #require(try watch.line().flatMap { JSONObject(line: $0) }))
        }
        #expect(envelopes.map { $0.string("op") } == ["c", "u"])
        #expect(envelopes.first?["before"] == .null)
        #expect(envelopes.last?.object("before") == ["id": 1, "title": "a"])
        #expect(envelopes.last?.object("after") == ["id": 1, "title": "b"])
        let source = envelopes.last?.object("source")
        #expect(source?.string("table") == "note" && source?.object("key") == ["id": 1])
        #expect(source?.bool("net") == true && envelopes.last?["transaction"] == .null)
    }

    @Test func refusesEnvelopesOfAHistory() throws {
        let scene = try Scene()
        #expect(try groupstore("history", "enable", Word(scene.store)).status == 0)
        let result = try groupstore("watch", "--direct", "--json", "--format", "debezium", Word(scene.store))
        #expect(result.status == 64 && (result.output + result.errors).contains("no_envelopes"))
    }

    @Test func showsAndRemovesTheCopy() throws {
        let scene = try Scene()
        func rows(_ words: Word...) throws -> (status: Int32, objects: [JSONObject]) {
            let result = try groupstore(
                "rows", options: words + [Word(scene.store), "--json"], environment: scene.environment)
            return (result.status, result.lines.compactMap { JSONObject(line: $0) })
        }
        let plan = try rows("enable", "--dry-run").objects
        #expect(plan.first?.string("outcome") == "planned" && plan.first?.integer("bytes") ?? 0 > 0)
        #expect(try rows("show").objects.first?.integer("copies") == 0)
        let watch = try scene.watch("--values", "--json")
        _ = try scene.next(watch, "watching")
        for sql in ["INSERT INTO note VALUES (1, 'secret')", "DELETE FROM note"] {
            try sqlite(scene.store, sql)
            _ = try scene.next(watch, "change")
        }
        let shown = try rows("show").objects
        #expect(shown.first?.integer("deleted_rows") == 1 && shown.first?.bool("current") == true)
        #expect(shown.first?.object("follower")?.string("program") == "groupstore")
        #expect(try rows("disable").status == 75)
        try watch.killAtOnce()
        // The store is gone, and its copy is named by the commands that find it.
        try run("rm", ["-f", Word(scene.store), Word("\(scene.store)-wal"), Word("\(scene.store)-shm")])
        let command = "groupstore rows disable \(scene.store)"
        let all = try groupstore("rows", "show", "--json", environment: scene.environment)
        #expect(all.lines.compactMap { JSONObject(line: $0) }.first?.string("remedy") == command, "\(all.output)")
        let doctor = try groupstore("doctor", "--json", environment: scene.environment)
        #expect(doctor.lines.compactMap { JSONObject(line: $0) }.contains { $0.string("remedy") == command })
        let removed = try rows("disable")
        #expect(removed.status == 0 && removed.objects.first?.integer("bytes") ?? 0 > 0)
        #expect(try rows("show").objects.first?.integer("copies") == 0)
    }

    private static let anotherUser: [Word] = ["--reuid", "54321", "--regid", "54321", "--clear-groups"]
    private static let canBecomeAnother =
        geteuid() == 0
        && (try? run("setpriv", anotherUser + [Programs.groupstore, "--version"]))?.status == 0

    /// Whoever may not enter the agent's copies must not be told that there are none.
    @Test(.enabled(if: canBecomeAnother, "needs root and setpriv(1)"), arguments: ["show", "disable"])
    func saysThatAnotherUsersAgentMayHaveACopy(_ command: Word) throws {
        let scene = try Scene()
        let group = scene.store.removingLastComponent()
        let rows = group.appending(".groupstore/rows")
        try run("mkdir", ["-p", Word(rows)])
        try run("chmod", ["755", Word(group), Word(group.removingLastComponent())])
        try run("chmod", ["700", Word(rows)])
        let state = group.appending("state")
        try run("mkdir", ["-m", "777", Word(state)])
        var environment = scene.environment
        environment["XDG_STATE_HOME"] = state.string
        let result = try run(
            "setpriv", Self.anotherUser + [Programs.groupstore, "rows", command, Word(scene.store)],
            environment: environment)
        #expect(result.status == 77, "\(result.output)\(result.errors)")
        #expect(result.errors.contains("sudo -u root groupstore rows "), "\(result.errors)")
    }
}
