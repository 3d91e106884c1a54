import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `status --format openmetrics`, read by a parser that was written from the specification alone
/// (`Tests/OpenMetrics/openmetrics.py`), and the sample that writes it for node_exporter.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct OpenMetricsTests {
    /// The samples of an exposition.
    private struct Metrics {
        let samples: [JSONObject]

        init(_ text: String) throws {
            let parser = try RunningProcess("python3", [Programs.source("Tests/OpenMetrics/openmetrics.py")])
            for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
                parser.send(Word(String(line)))
            }
            parser.closeInput()
            let done = try parser.wait()
            try #require(done.status == 0, "\(done.errors)\(text)")
            samples = done.objects
        }

        /// Returns the value of the only sample with these labels.
        func value(_ name: String, _ labels: [String: String] = [:]) -> Double? {
            let found = samples.filter { sample in
                sample.string("name") == name
                    && labels.allSatisfy { sample.object("labels")?.string($0.key) == $0.value }
            }
            guard found.count == 1, let value = found.first?["value"] else { return nil }
            return switch value {
            case .number(let number): number
            case .integer(let number): Double(number)
            default: nil
            }
        }
    }

    private func metrics(_ agent: AgentProcess) throws -> Metrics {
        let done = try groupstore("status", "--format", "openmetrics", environment: agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        return try Metrics(done.output)
    }

    /// A label set may occur only once in a family; the parser refuses a second one.
    @Test func namesThatLookAlikeHaveDifferentLabels() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [])
        let connection = try agent.connect()
        for (id, name) in ["a\nb.sqlite", "a\\x0ab.sqlite", "a\\x5cx0ab.sqlite"].enumerated() {
            let store = JSONValue.string("\(AgentProcess.group)/\(name)")
            try connection.send(["id": .integer(Int64(id)), "op": "subscribe", "store": store])
            #expect(try connection.next { $0["id"] == .integer(Int64(id)) }.bool("ok") == true)
        }
        let labels = try metrics(agent).samples.filter { $0.string("name") == "groupstore_store_subscribers" }
            .compactMap { $0.object("labels")?.string("store") }
        #expect(labels.count == 3 && Set(labels).count == 3, "\(labels)")
    }

    @Test func countsWhatHappens() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let subscriber = try agent.subscribe("Notes.sqlite")
        if try Directory(places.legacy).status("Notes.sqlite") != nil { try subscriber.next("relocated") }
        let labels = ["store": "\(AgentProcess.group)/Notes.sqlite"]
        let before = try metrics(agent)
        #expect(before.value("groupstore_up") == 1)
        #expect(before.value("groupstore_store_subscribers", labels) == 1)
        #expect(
            before.value("groupstore_store_relocations_total", labels.merging(["outcome": "relocated"]) { $1 }) == 1)
        let changes = try #require(before.value("groupstore_store_changes_total", labels))
        for _ in 1...3 {
            try sqlite(store, "INSERT INTO note (text) VALUES ('milk')")
            try subscriber.next("change")
        }
        let after = try metrics(agent)
        #expect(after.value("groupstore_store_changes_total", labels) == changes + 3)
        #expect(after.value("groupstore_agent_connections") ?? 0 >= 2)
        let accepted = try #require(before.value("groupstore_agent_connections_accepted_total"))
        #expect(after.value("groupstore_agent_connections_accepted_total") ?? 0 > accepted)
        for check in ["relocation", "reload", "agent_configuration", "feed", "subscriber"] {
            #expect(after.value("groupstore_problems", ["check": check]) == 0)
        }
        let start = try #require(after.value("groupstore_agent_start_time_seconds"))
        #expect(start > 1_700_000_000 && start == before.value("groupstore_agent_start_time_seconds"))
        #expect(after.value("groupstore_agent_resident_memory_bytes") ?? 0 > 1_000_000)
    }

    @Test func showsASlowSubscriberAndProblems() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text); INSERT INTO note VALUES ('ours')")
        try write(String(repeating: "x", count: 100), to: places.legacy.appending("Other.sqlite-wal"))
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Other.sqlite")])
        _ = try agent.legacyRow { $0 == "refused" }
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Notes.sqlite"], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        try watch.suspend()
        let writer = try sqliteShell(store)
        try agent.commitUntilASubscriberIsBehind(writer)
        let labels = ["store": "\(AgentProcess.group)/Notes.sqlite"]
        let deadline = Deadline(after: .ample)
        var found = try metrics(agent)
        while found.value("groupstore_store_behind_events", labels) == 0, !deadline.hasPassed {
            found = try metrics(agent)
        }
        #expect(found.value("groupstore_store_lagging_subscribers", labels) == 1)
        #expect(found.value("groupstore_store_lags_total", labels) == 1)
        #expect(found.value("groupstore_store_unread_bytes", labels) ?? 0 > 1000)
        #expect(found.value("groupstore_problems", ["check": "relocation"]) == 1)
        #expect(found.value("groupstore_store_legacy_places", ["state": "refused"]) == 1)
        // The store stays followed.
        let other = try agent.subscribe("Notes.sqlite")
        // A connection that ends with output that its client did not take.
        try watch.killAtOnce()
        while found.value("groupstore_agent_connections_lost_total") == 0, !deadline.hasPassed {
            found = try metrics(agent)
        }
        #expect(found.value("groupstore_agent_connections_lost_total") == 1)
        // The counts of a subscription outlive it.
        #expect(found.value("groupstore_store_lags_total", labels) == 1)
        withExtendedLifetime(other) {}
    }

    /// A monitor must not take a store that nobody follows for one without changes.
    @Test func anIdleStoreHasNoCounts() throws {
        let places = try Places()
        for name in ["Notes.sqlite", "Tags.sqlite"] as [FilePath.Component] {
            try makeStore(places.group.appending(name), rows: 1)
        }
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let subscriber = try agent.subscribe("Tags.sqlite")
        let found = try metrics(agent)
        for (name, isFollowed) in [("Notes.sqlite", false), ("Tags.sqlite", true)] {
            let labels = ["store": "\(AgentProcess.group)/\(name)"]
            for metric in ["followed", "changes_total", "behind_events", "lag_seconds", "unread_bytes"] {
                #expect((found.value("groupstore_store_\(metric)", labels) != nil) == isFollowed, "\(name) \(metric)")
            }
            #expect(found.value("groupstore_store_subscribers", labels) == (isFollowed ? 1 : 0))
        }
        withExtendedLifetime(subscriber) {}
    }

    /// Names of stores may contain what ends a label, a line, or a terminal's patience.
    @Test func escapesLabels() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [])
        let name = "a\"b\\c,d}=e\n\u{1B}[31m名.sqlite"
        let subscriber = try agent.subscribe(Word(name))
        let shown = "\(AgentProcess.group)/a\"b\\x5cc,d}=e\\x0a\\x1b[31m\\xe5\\x90\\x8d.sqlite"
        #expect(try metrics(agent).value("groupstore_store_subscribers", ["store": shown]) == 1)
        withExtendedLifetime(subscriber) {}
    }

    @Test func saysThatNoAgentAnswers() throws {
        let done = try groupstore("status", "--format", "openmetrics")
        #expect(done.status == 69 && done.errors.contains("no agent"), "\(done.errors)")
        let metrics = try Metrics(done.output)
        #expect(metrics.samples.count == 1 && metrics.value("groupstore_up") == 0)
        #expect(try groupstore("status", "--format", "openmetrics", "--json").status == 64)
        #expect(try groupstore("status", "--format", "xml").status == 64)
    }

    // MARK: The sample

    private static let sample = "Samples/Monitoring/"

    /// Returns the script of the service, with the program under test.
    private func script() throws -> Word {
        let unit = try ContainerSampleTests.text(Self.sample + "groupstore-metrics.service")
        let line = try #require(unit.split(separator: "\n").first { $0.hasPrefix("ExecStart=/bin/sh -c '") })
        let script = line.dropFirst("ExecStart=/bin/sh -c '".count).dropLast()
        return Word(String(script).replacing("/usr/bin/groupstore", with: "\(Programs.groupstore)"))
    }

    @Test func theSampleReplacesTheFileOnlyByAWholeOne() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [])
        let file = places.scratch("groupstore.prom")
        var environment = agent.environment.merging(["TEXTFILE": file.string]) { $1 }
        #expect(try run("/bin/sh", ["-c", script()], environment: environment).status == 0)
        func content() throws -> String { try run("cat", [Word(file)]).output }
        #expect(try Metrics(content()).value("groupstore_up") == 1)
        // Output that isn't whole leaves the last file.
        let last = try content()
        let half = try script().description.replacing("\(Programs.groupstore)", with: "echo")
        #expect(try run("/bin/sh", ["-c", Word(half)], environment: environment).status != 0)
        #expect(try content() == last)
        // Without an agent, the metrics say so.
        environment["GROUPSTORE_SOCKET"] = "/nonexistent/agent.sock"
        #expect(try run("/bin/sh", ["-c", script()], environment: environment).status == 0)
        #expect(try Metrics(content()).value("groupstore_up") == 0)
        #expect(try run("ls", [Word(places.scratch("."))]).output.contains(".new") == false)
    }

    @Test(.enabled(if: (try? run("systemd-analyze", ["--version"]))?.status == 0, "systemd-analyze is not installed"))
    func systemdAcceptsTheSample() throws {
        let place = try TemporaryDirectory()
        for name: FilePath.Component in ["groupstore-metrics.service", "groupstore-metrics.timer"] {
            let text = try ContainerSampleTests.text(Self.sample + name.string)
            try write(
                text.replacing("=/usr/bin/groupstore", with: "=\(Programs.groupstore)"), to: place.path.appending(name))
        }
        for name: FilePath.Component in ["groupstore-metrics.service", "groupstore-metrics.timer"] {
            let verified = try run(
                "systemd-analyze", ["--user", "verify", Word(place.path.appending(name))],
                environment: ["XDG_RUNTIME_DIR": place.path.string, "HOME": place.path.string])
            #expect(verified.status == 0 && verified.errors.isEmpty, "\(name): \(verified.errors)")
        }
    }
}
