import AgentProtocol
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
        let rows = try groupstore("watch", "--direct", "--rows", Word(store), environment: environment)
        #expect(rows.status == 64)
        #expect(rows.errors.contains("--rows"))
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
}
