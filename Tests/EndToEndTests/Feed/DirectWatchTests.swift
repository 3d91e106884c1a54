import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore watch` without an agent.
@Suite(.ownThreads) struct DirectWatchTests {
    private let places: Places
    private let store: FilePath
    /// No agent listens there.
    private let environment: [String: String]

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        environment = AgentProcess.environment(places.scratch("none.sock"))
        try makeStore(store, rows: 1)
    }

    /// Starts a `watch` of these stores and returns once it watches them.
    private func watch(_ paths: [FilePath], _ words: Word..., environment: [String: String]? = nil) throws
        -> RunningProcess
    {
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--json"] + words + ["--"] + paths.map { Word($0) },
            environment: environment ?? self.environment)
        for path in paths {
            try watch.line {
                guard let line = JSONObject(line: $0) else { return false }
                return line.type == "watching" && line.path("store").map { $0 == path.bytes } == true
            }
        }
        return watch
    }

    private func commit(_ path: FilePath? = nil) throws {
        try sqlite(path ?? store, "INSERT INTO note (text) VALUES ('later')")
    }

    private func next(_ watch: RunningProcess, _ isWanted: (JSONObject) -> Bool) throws -> JSONObject {
        var found: JSONObject?
        try watch.line {
            found = JSONObject(line: $0)
            return found.map(isWanted) == true
        }
        return try #require(found)
    }

    @Test func worksWithoutAnOption() throws {
        let watch = try watch([store], "--once")
        try commit()
        let done = try watch.wait()
        #expect(done.status == 0, "\(done.errors)")
        let change = try #require(done.objects.first { $0.type == "change" })
        #expect(change.path("store").map { $0 == store.bytes } == true)
        #expect(done.summary.string("token") == change.string("token"))
    }

    @Test func namesTheTables() throws {
        try sqlite(store, "PRAGMA journal_mode = WAL")
        let shell = try sqliteShell(store)
        try shell.execute("SELECT count(*) FROM note")
        let watch = try watch([store], "--direct")
        var change: JSONObject
        repeat {
            try shell.execute("INSERT INTO note (text) VALUES ('one')")
            change = try next(watch) { $0.type == "change" }
        } while change.bool("complete") != true
        #expect(change["tables"] == ["note"])
        try watch.killAtOnce()
    }

    @Test func watchesSeveralStores() throws {
        let other = places.scratch("Other \u{e9}\n.sqlite")
        try makeStore(other, rows: 1)
        let watch = try watch([store, other])
        try commit(other)
        _ = try next(watch) { $0.type == "change" && $0.path("store").map { $0 == other.bytes } == true }
        try commit()
        _ = try next(watch) { $0.type == "change" && $0.path("store").map { $0 == store.bytes } == true }
        watch.signal(SIGTERM)
        let done = try watch.wait()
        #expect(done.status == 130)
        #expect(done.summary.string("outcome") == "interrupted")
    }

    @Test func takesOneStoreForAToken() throws {
        for option in ["--since", "--token-file"] as [Word] {
            let done = try groupstore("watch", Word(store), Word(store), option, "x", environment: environment)
            #expect(done.status == 64)
        }
    }

    @Test func endsAfterATimeout() throws {
        let done = try watch([store], "--once", "--timeout", "0.2").wait()
        #expect(done.status == 75)
        #expect(done.summary.object("error")?.string("code") == "timed_out")
    }

    @Test func runsACommandForAChange() throws {
        let file = places.scratch("seen")
        let watch = try watch(
            [store], "--once", "--exec", "echo $GROUPSTORE_EVENT $GROUPSTORE_PATH > '\(file)'")
        try commit()
        #expect(try watch.wait().status == 0)
        #expect(try run("cat", [Word(file)]).output == "change \(store)\n")
    }

    /// A change while nobody watched is reported by the next watch, also if the last one was killed.
    @Test func continuesAfterATokenFile() throws {
        let tokens = places.scratch("tokens")
        let first = try watch([store], "--token-file", Word(tokens))
        try commit()
        _ = try next(first) { $0.type == "change" }
        try first.killAtOnce()
        try commit()
        let second = try watch([store], "--token-file", Word(tokens), "--once")
        let done = try second.wait()
        #expect(done.status == 0)
        #expect(done.objects.contains { $0.type == "change" })
    }

    @Test func aTokenOfAnAgentIsAnotherEpoch() throws {
        let done = try watch([store], "--since", "epoch-7", "--once").wait()
        #expect(done.objects.contains { $0.string("reason") == "epoch" })
    }

    /// With `--direct`, even if an agent serves the store; both report everything.
    @Test func watchesBesideAgents() throws {
        let agents = try ["first", "second"].map { name in
            try AgentProcess(
                ["--group", "\(AgentProcess.group)=" + Word(places.group)], socket: places.scratch("\(name).sock"))
        }
        let subscribers = try agents.map { try $0.subscribe("Notes.sqlite") }
        let watch = try watch([store], "--direct", environment: agents[0].environment)
        for _ in 1...5 {
            try commit()
            for subscriber in subscribers { try subscriber.next("change") }
            _ = try next(watch) { $0.type == "change" }
        }
        // Without it, the agent that serves the store is asked.
        let served = try RunningProcess(
            Programs.groupstore, ["watch", "--json", Word(store)], environment: agents[0].environment)
        try served.line { JSONObject(line: $0)?.type == "subscribed" }
        try served.killAtOnce()
        try watch.killAtOnce()
    }

    @Test func takesOnlyTheAgentWithAgent() throws {
        let done = try groupstore("watch", "--agent", Word(store), environment: environment)
        #expect(done.status == 69)
        #expect(try groupstore("watch", "--agent", "--direct", Word(store), environment: environment).status == 64)
    }

    @Test func noticesARelocation() throws {
        let legacy = places.legacy.appending("Old.sqlite")
        try makeStore(legacy, rows: 3)
        let new = places.group.appending("Old.sqlite")
        let watch = try watch([legacy, new], "--direct")
        let done = try groupstore("relocate", Word(legacy), Word(places.group), environment: environment)
        try #require(done.status == 0, "\(done.errors)")
        var missing: Set<[UInt8]> = [legacy.bytes, new.bytes]
        while !missing.isEmpty {
            let event = try next(watch) { ["reset", "relocated"].contains($0.type) }
            if let path = event.path("store") { missing.remove(Array(path)) }
        }
        try commit(new)
        _ = try next(watch) { $0.type == "change" && $0.path("store").map { $0 == new.bytes } == true }
        try watch.killAtOnce()
    }

    @Test func saysWhyAPathIsRefused() throws {
        let directory = try groupstore("watch", Word(places.group), environment: environment)
        #expect(directory.status == 65)
        #expect(directory.errors.contains("can't be a store"))
        let rows = try groupstore("watch", "--rows", Word(places.group), environment: environment)
        #expect(rows.status == 65)
    }

    @Test func waitsForAStoreThatIsNotThereYet() throws {
        let late = places.group.appending("Late.sqlite")
        let watch = try watch([late])
        try makeStore(late, rows: 1)
        _ = try next(watch) { $0.type == "reset" || $0.type == "change" }
        try watch.killAtOnce()
    }

    /// An app that follows a store links no GPL code and no database engine.
    @Test func aLibraryProgramLinksNeitherSQLiteNorLibinotifytools() throws {
        let done = try run("ldd", [Word(Programs.directory.appending("StoreFollower"))])
        #expect(done.status == 0)
        #expect(done.output.contains("libc.so"))
        for library in ["sqlite", "inotifytools"] { #expect(!done.output.contains(library)) }
    }

    @Test func aLibraryProgramFollowsAStore() throws {
        let follower = try RunningProcess(
            Word(Programs.directory.appending("StoreFollower")), [Word(store)], environment: environment)
        try follower.line { $0.hasPrefix("reset") }
        try commit()
        try follower.line { $0.hasPrefix("change") }
        try follower.killAtOnce()
    }

    // MARK: Rows

    /// A store with a history, and a watch of its rows.
    ///
    /// While a program has the store open, its log stays. Only such commits are sure to be told with all their tables.
    private func watchRows(_ words: Word...) throws -> (watch: RunningProcess, shell: RunningProcess) {
        try sqlite(store, "PRAGMA journal_mode = WAL")
        #expect(try groupstore("history", "enable", Word(store)).status == 0)
        let shell = try sqliteShell(store)
        try shell.execute("UPDATE note SET text = 'earlier'")
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--json", "--rows"] + words + ["--", Word(store)], environment: environment)
        try watch.line { JSONObject(line: $0)?.type == "watching" }
        return (watch, shell)
    }

    @Test func deliversRows() throws {
        let before = try Directory(places.group).names()
        let (watch, shell) = try watchRows()
        try shell.execute("INSERT INTO note (text) VALUES ('later')")
        let change = try next(watch) { $0.type == "change" }
        #expect(change.path("store").map { $0 == store.bytes } == true)
        guard case .array(let rows)? = change["rows"], case .object(let row)? = rows.first else {
            throw Unexpected("no rows: \(change.text)")
        }
        #expect(row.string("table") == "note" && row.string("op") == "insert")
        #expect(try privateAgents().count == 1)
        watch.signal(SIGINT)
        #expect(try watch.wait().status == 130)
        #expect(try privateAgents() == [])
        shell.closeInput()
        try shell.wait()
        #expect(try Directory(places.group).names().count == before.count)
    }

    @Test func filtersRowsAndContinuesFromADurableToken() throws {
        let (watch, shell) = try watchRows("--durable", "--operations", "delete")
        try shell.execute("INSERT INTO note (text) VALUES ('later')")
        try shell.execute("DELETE FROM note WHERE text = 'later'")
        let change = try next(watch) { $0.type == "change" }
        let token = try #require(change.string("token"))
        try watch.killAtOnce()
        try shell.execute("INSERT INTO note (text) VALUES ('last')")
        try shell.execute("DELETE FROM note")
        let later = try groupstore(
            "watch", "--json", "--rows", "--durable", "--operations", "delete", "--once", "--since", Word(token), "--",
            Word(store), environment: environment)
        guard case .array(let rows)? = later.objects.first(where: { $0.type == "change" })?["rows"] else {
            throw Unexpected("no rows: \(later.output) \(later.errors)")
        }
        #expect(rows.count == 2)
    }

    @Test func aKilledWatchLeavesNoAgentBehind() throws {
        let (watch, _) = try watchRows()
        #expect(try privateAgents().count == 1)
        try watch.killAtOnce()
        let deadline = Deadline(after: .ample)
        while try !privateAgents().isEmpty, !deadline.hasPassed { usleep(10_000) }
        #expect(try privateAgents() == [])
    }

    /// Returns the processes of agents that serve only this test's watches.
    private func privateAgents() throws -> [String] {
        try run("pgrep", ["-f", Word("agent .*--private .*\(places.group.string)")]).lines.filter { !$0.isEmpty }
    }

    // MARK: What must not go unnoticed

    /// The token of the opening line is one whose events nobody was told of yet.
    @Test func theOpeningTokenIsTheOneToContinueFrom() throws {
        usleep(100_000)
        let first = try groupstore(
            "watch", "--json", "--timeout", "0", "--", Word(store), environment: environment)
        let token = try #require(first.objects.first { $0.type == "watching" }?.string("token"))
        try commit()
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--json", "--since", Word(token), "--", Word(store)],
            environment: environment)
        var lines: [JSONObject] = []
        try watch.line {
            lines += JSONObject(line: $0).map { [$0] } ?? []
            return lines.last?.type == "change"
        }
        #expect(lines.first?.string("token") == token)
        #expect(lines.last?.string("token") != token)
    }

    /// The new file has the old one's inode number, and both have as many transactions.
    @Test(arguments: ["wal", "delete"])
    func noticesAStoreThatWasMadeAgainMeanwhile(_ mode: String) throws {
        func make(_ text: String) throws {
            try run("rm", ["-f"] + ["", "-wal", "-shm", "-journal"].map { Word(store.string + $0) })
            try sqlite(
                store, "PRAGMA journal_mode = \(mode); CREATE TABLE note (text); INSERT INTO note VALUES ('\(text)')")
        }
        try make("one")
        let watch = try watch([store])
        try watch.suspend()
        try make("two")
        watch.signal(SIGCONT)
        #expect(try next(watch) { $0.type != "watching" }.string("reason") == "replaced")
    }

    /// While a relocation is under way, an empty directory has the store's name.
    @Test func waitsForARelocationUnderWay() throws {
        let away = places.scratch("away.sqlite")
        try run("mv", [Word(store), Word(away)])
        try run("mkdir", [Word(store)])
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "--json", "--once", "--", Word(store)], environment: environment)
        #expect(try !watch.hasEnded(within: .milliseconds(300)))
        try run("rmdir", [Word(store)])
        try run("mv", [Word(away), Word(store)])
        try watch.line { JSONObject(line: $0)?.type == "watching" }
        try commit()
        #expect(try watch.wait().status == 0)
    }

    @Test func raisesTheLimitOfOpenFiles() throws {
        let stores = try (0..<30).map { number in
            let path = places.group.appending("\(number).sqlite")
            try sqlite(path, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
            return path
        }
        let shells = try stores.prefix(2).map(sqliteShell)
        let watch = try RunningProcess(
            "prlimit",
            ["--nofile=64:4096", Programs.groupstore, "watch", "--json", "--"] + stores.map { Word($0) },
            environment: environment)
        var count = 0
        try watch.line { line in
            if JSONObject(line: line)?.type == "watching" { count += 1 }
            return count == 30
        }
        try shells[0].execute("INSERT INTO note VALUES ('one')")
        #expect(try next(watch) { $0.type == "change" }.path("store").map { $0 == stores[0].bytes } == true)
    }

    @Test func endsWithItsReader() throws {
        let program = "'\(Programs.groupstore)' watch --json -- '\(store)' | head -n 1 > /dev/null; echo over"
        let shell = try RunningProcess("sh", ["-c", Word(program)], environment: environment)
        try shell.line { $0 == "over" }
    }

    @Test func aMissingDirectoryIsNamed() throws {
        let done = try groupstore("watch", Word(places.scratch("none/Notes.sqlite")), environment: environment)
        #expect(done.status == 65 && done.errors.contains("there is no directory"), "\(done.errors)")
    }
}
