import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `status --check`.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct StatusCheckTests {
    private let places: Places
    private let legacy: FilePath
    private var store: FilePath { places.group.appending("Notes.sqlite") }

    init() throws {
        places = try Places()
        legacy = places.legacy.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text); INSERT INTO note VALUES ('ours')")
    }

    private func check(_ agent: AgentProcess, _ arguments: Word...) throws -> FinishedProcess {
        try groupstore("status", "--check", options: arguments, environment: agent.environment)
    }

    @Test func isQuietWhenAllIsWell() throws {
        let agent = try AgentProcess(places, legacy: [legacy])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let done = try check(agent)
        #expect(done.status == 0 && done.output.isEmpty && done.errors.isEmpty, "\(done.output)\(done.errors)")
        let json = try check(agent, "--json")
        #expect(json.lines.count == 1 && json.outcome == "ok", "\(json.output)")
        #expect(try check(agent, Word(places.group)).output.isEmpty)
        withExtendedLifetime(subscriber) {}
        #expect(try agent.stop().status == 0)
        #expect(try check(agent).status == 69)
        let alone = try check(agent, Word(places.group))
        #expect(alone.status == 0 && alone.output.isEmpty, "\(alone.output)")
    }

    @Test func reportsAStoreThatWaitsForLong() throws {
        let waiting = places.legacy.appending("Waiting.sqlite")
        try makeStore(waiting, rows: 1)
        let shell = try sqliteShell(waiting)
        try shell.execute("SELECT count(*) FROM note")
        let agent = try AgentProcess(places, legacy: [waiting])
        _ = try agent.legacyRow { $0 == "waiting" }
        #expect(try check(agent).status == 0)
        let done = try check(agent, "--waiting", "0")
        #expect(done.status == 75 && done.output.hasPrefix("waiting: \(waiting): "), "\(done.output)")
        let problem = try #require(try check(agent, "--waiting", "0s", "--json").objects.first)
        #expect(problem.string("check") == "waiting" && problem.integer("exit") == 75, "\(problem.text)")
        #expect(try check(agent, "--waiting", "2h").status == 0)
        shell.closeInput()
        try shell.wait()
    }

    /// Its socket isn't full: a few events fit.
    @Test func reportsASubscriberThatReadsNothingOfAFewEvents() throws {
        let agent = try AgentProcess(places, legacy: [])
        let silent = try agent.subscribe("Notes.sqlite")
        let reader = try agent.subscribe("Notes.sqlite")
        #expect(try check(agent, "--stuck-after", "0").status == 0)
        try sqlite(store, "INSERT INTO note VALUES ('unread')")
        try reader.next("change")
        let done = try check(agent, "--stuck-after", "0")
        #expect(done.status == 75 && done.lines.count == 1 && done.output.contains("unread"), "\(done.output)")
        let shown = try groupstore("status", environment: agent.environment)
        #expect(shown.lines.filter { $0.contains("up to date") }.count == 1, "\(shown.output)")
        let row = try groupstore("status", "--json", environment: agent.environment).objects.first {
            ($0.integer("unread_bytes") ?? 0) > 0
        }
        #expect(row?.number("unread_seconds") != nil && row?.integer("behind") == 0)
        try silent.next("change")
        #expect(try check(agent, "--stuck-after", "0").status == 0)
    }

    @Test func reportsAConflict() throws {
        let agent = try AgentProcess(places, legacy: [legacy])
        let elsewhere = places.scratch("Elsewhere.sqlite")
        try sqlite(elsewhere, "CREATE TABLE note (text); INSERT INTO note VALUES ('theirs')")
        try run("mv", [Word(elsewhere), Word(legacy)])
        _ = try agent.legacyRow { $0 == "conflict" }
        let done = try check(agent)
        #expect(done.status == 73 && done.lines.count == 1, "\(done.output)")
        #expect(done.output.hasPrefix("conflict: \(legacy): "), "\(done.output)")
        let problem = try #require(try check(agent, "--json").objects.first)
        #expect(problem.type == "problem" && problem.string("check") == "relocation" && problem.integer("exit") == 73)
        #expect(problem.string("store") == "\(AgentProcess.group)/Notes.sqlite")
        #expect(try check(agent, "\(AgentProcess.group)/Notes.sqlite").status == 73)
        let other = try agent.subscribe("Tags.sqlite")
        #expect(try check(agent, "\(AgentProcess.group)/Tags.sqlite").status == 0)
        withExtendedLifetime(other) {}
    }

    @Test func reportsARefusalAndAFailedReload() throws {
        let file = places.scratch("config.yaml")
        let good = """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores: [{ name: Other.sqlite, legacy: [\(places.legacy)/Other.sqlite], settle: 1ms }]
            """
        try write(good, to: file)
        try write(String(repeating: "x", count: 100), to: places.legacy.appending("Other.sqlite-wal"))
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
        _ = try agent.legacyRow { $0 == "refused" }
        let refused = try check(agent)
        #expect(refused.status == 65 && refused.lines.count == 1 && refused.output.hasPrefix("refused: "))

        try write("groups: [{ no: such key }]\n", to: file)
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("keeping the previous configuration") }
        // A reload also has the agent look at refused stores again.
        _ = try agent.legacyRow { $0 == "refused" }
        let both = try check(agent)
        #expect(both.status == 65 && both.lines.count == 2, "\(both.output)")
        #expect(both.lines.last?.hasPrefix("reload: the agent keeps its old configuration since ") == true)
        try run("rm", [Word(places.legacy.appending("Other.sqlite-wal"))])
        _ = try agent.legacyRow { $0 == "absent" }
        #expect(try check(agent).status == 78)
    }

    @Test func reportsAStuckSubscriber() throws {
        let agent = try AgentProcess(places, legacy: [legacy])
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        try watch.suspend()
        let writer = try sqliteShell(store)
        try agent.commitUntilASubscriberIsBehind(writer)
        // A subscriber may be behind for a while.
        #expect(try check(agent, "--stuck-after", "86400").status == 0)
        let deadline = Deadline(after: .ample)
        var done = try check(agent, "--stuck-after", "0")
        while done.status == 0, !deadline.hasPassed { done = try check(agent, "--stuck-after", "0") }
        #expect(done.status == 75 && done.lines.count == 1, "\(done.output)")
        #expect(
            done.output.contains("groupstore (pid \(watch.pid)) of \(AgentProcess.group)/Notes.sqlite has not read for")
        )
        // Plain status is about the agent: it succeeds.
        #expect(try groupstore("status", environment: agent.environment).status == 0)
        watch.signal(SIGCONT)
        while done.status != 0, !deadline.hasPassed { done = try check(agent, "--stuck-after", "0") }
        #expect(done.status == 0, "\(done.output)")
    }
}
