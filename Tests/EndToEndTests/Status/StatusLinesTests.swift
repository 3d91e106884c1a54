import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `status --watch` where standard output is no terminal.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct StatusLinesTests {
    private let places: Places
    private let store: FilePath
    private let agent: AgentProcess

    init() throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
    }

    private func watch(_ arguments: Word...) throws -> RunningProcess {
        try RunningProcess(
            Programs.groupstore, ["status", "--watch", "--interval", "0.1"] + arguments, environment: agent.environment)
    }

    private func next(_ watch: RunningProcess, where isWanted: (JSONObject) -> Bool) throws -> JSONObject {
        let line = try watch.line { JSONObject(line: $0).map(isWanted) ?? false }
        return try #require(JSONObject(line: line))
    }

    private static func isIdle(_ store: JSONObject) -> Bool {
        [.integer(0), .number(0)].contains(store["changes_per_second"])
    }

    @Test func printsAnObjectForEachRowThatHasChanged() throws {
        let watch = try watch("--json")
        #expect(try next(watch) { $0.type == "agent" }.string("state") == "answering")
        let first = try next(watch) { $0.type == "store" }
        #expect(first.string("state") == "idle" && first["counts"] == nil && first["changes_per_second"] == nil)
        let subscriber = try agent.subscribe("Notes.sqlite")
        let subscription = try next(watch) { $0.type == "subscription" }
        #expect(subscription.integer("pid") == Int64(getpid()))
        #expect(subscription.string("program")?.isEmpty == false)
        try subscriber.send(["id": 2, "op": "unsubscribe", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        let gone = try next(watch) { $0.type == "subscription" && $0.bool("gone") == true }
        #expect(gone["connection"] == subscription["connection"])

        let other = try agent.subscribe("Notes.sqlite")
        try sqlite(store, "INSERT INTO note VALUES ('milk')")
        let busy = try next(watch) { $0.object("counts")?.integer("changes") == 1 }
        #expect(!Self.isIdle(busy))
        _ = try next(watch) { $0.type == "store" && Self.isIdle($0) }
        withExtendedLifetime(other) {}

        // Nothing changes any more, so the next line is about the agent.
        #expect(try agent.stop().status == 0)
        let away = try next(watch) { $0.type == "agent" }
        #expect(away.string("state") == "away" && away.string("message")?.isEmpty == false)
        let back = try AgentProcess(["--group", "\(AgentProcess.group)=" + Word(places.group)], socket: agent.socket)
        _ = try next(watch) { $0.type == "agent" && $0.string("state") == "answering" }
        watch.signal(SIGTERM)
        let done = try watch.wait()
        #expect(done.status == 130)
        #expect(done.summary.type == "summary" && done.outcome == "interrupted")
        withExtendedLifetime(back) {}
    }

    @Test func printsNothingWhileNothingChanges() throws {
        let watch = try watch()
        try watch.line { $0.contains("Notes.sqlite  idle  0 subscribers") }
        // A marker that follows at least two intervals without a change.
        for _ in 1...3 { _ = try groupstore("status", environment: agent.environment) }
        let subscriber = try agent.subscribe("Notes.sqlite")
        let next = try #require(try watch.line())
        #expect(next.contains("1 subscriber") || next.contains("legacy"), "\(next)")
        #expect(next.prefixMatch(of: #/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  /#) != nil, "\(next)")
        watch.signal(SIGINT)
        #expect(try watch.wait().status == 130)
        withExtendedLifetime(subscriber) {}
    }

    @Test func watchesOneStore() throws {
        let other = try agent.subscribe("Other.sqlite")
        let watch = try watch("\(AgentProcess.group)/Notes.sqlite", "--json")
        _ = try next(watch) { $0.type == "store" }
        let subscriber = try agent.subscribe("Notes.sqlite")
        _ = try next(watch) { $0.type == "subscription" }
        watch.signal(SIGINT)
        let objects = try watch.wait().objects
        #expect(objects.allSatisfy { $0.string("store")?.hasSuffix("/Notes.sqlite") ?? true })
        withExtendedLifetime((other, subscriber)) {}
    }

    @Test func endsWithItsReader() throws {
        let done = try run(
            "bash",
            [
                "-c",
                "set -o pipefail; \"$1\" status --watch --interval 0.1 --json | head -n 1; echo \"${PIPESTATUS[0]}\"",
                "bash", Programs.groupstore,
            ], environment: agent.environment)
        #expect(done.lines.last == "141", "\(done.output)\(done.errors)")
    }

    @Test func refusesWhatIsNotServed() throws {
        let elsewhere = places.scratch("elsewhere")
        try run("mkdir", [Word(elsewhere)])
        let done = try groupstore("status", "--watch", Word(elsewhere), environment: agent.environment)
        #expect(done.status == 69 && done.errors.contains("doesn't serve"), "\(done.errors)")
        #expect(try groupstore("status", "--watch").status == 69)
        #expect(try groupstore("status", "--watch", "--check").status == 64)
        #expect(try groupstore("status", "--watch", "--interval", "0").status == 64)
    }
}
