import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Subscribers that don't read.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct SlowSubscriberTests {
    private static let writer = """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=600)
        connection.execute("PRAGMA synchronous = OFF")
        for number in range(int(sys.argv[2])):
            connection.execute("INSERT INTO entry VALUES (?)", (number,))
        """

    /// Returns the agent's private memory in kilobytes, from its `smaps_rollup`.
    private func memory(_ agent: AgentProcess) throws -> Int {
        let text = try run("cat", ["/proc/\(agent.process.pid)/smaps_rollup"]).output
        let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("Anonymous:") })
        return try #require(Int(line.split(separator: " ").dropFirst().first ?? ""))
    }

    private func write(_ commits: Int, to store: FilePath) throws {
        let done = try run("python3", ["-c", Word(Self.writer), Word(store), "\(commits)"])
        try #require(done.status == 0, "\(done.errors)")
    }

    private func subscriptions(_ agent: AgentProcess) throws -> [JSONObject] {
        try groupstore("status", "--json", environment: agent.environment).objects.filter { $0.type == "subscription" }
    }

    /// A stopped process costs a bounded amount of memory regardless of the number of commits. It delays no other
    /// client, `status` names it, and it catches up once it continues.
    @Test func aStoppedSubscriberUsesBoundedMemory() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE entry (number INTEGER)")
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite", "--json"],
            environment: agent.environment)
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }
        try watch.suspend()
        let silent = try agent.subscribe("Notes.sqlite")

        try write(20_000, to: store)
        let before = try memory(agent)
        try write(100_000, to: store)
        let growth = try memory(agent) - before
        // On a busy machine the agent reads more of the log at once. 100,000 queued events would take more than that.
        // A sanitizer retains freed memory.
        #expect(growth < 8192 || getenv("ASAN_OPTIONS") != nil, "\(growth) KiB more")

        let found = try subscriptions(agent)
        let stopped = try #require(found.first { $0.integer("pid") == Int64(watch.pid) })
        #expect((stopped.integer("behind") ?? 0) > 0, "\(stopped.text)")
        #expect(stopped.string("lagging_since") != nil)
        let limit = Int64(2 * WireLine.maxLength)
        #expect((stopped.integer("unread_bytes") ?? 0) + (stopped.integer("waiting_bytes") ?? 0) <= limit)
        // A subscriber that reads receives the change at once.
        let reader = try agent.subscribe("Notes.sqlite")
        try sqlite(store, "INSERT INTO entry VALUES (0)")
        let last = try #require(try reader.next("change").string("token"))

        watch.signal(SIGCONT)
        try watch.line { JSONObject(line: $0)?.string("token") == last }
        try silent.next { $0.string("token") == last }
        // The agent has sent its events before it receives the request for its status.
        #expect(try subscriptions(agent).allSatisfy { $0.integer("behind") == 0 })
    }
}
