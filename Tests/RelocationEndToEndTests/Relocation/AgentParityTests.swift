import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a command prints and does the same with an agent as without one.
@Suite(.ownThreads) struct AgentParityTests {
    private let places: Places
    private let store: StoreFiles

    init() throws {
        places = try Places()
        store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
    }

    @Test func aDryRunPredictsTheOutcome() throws {
        let agent = try AgentProcess(places, legacy: [])
        for environment in [agent.environment, [:]] {
            let dry = try groupstore(
                "relocate", Word(store.path), Word(places.group), "--dry-run", environment: environment)
            #expect(dry.output == "would be: relocated\n")
            #expect(dry.errors.contains("rename"))
        }
        #expect(FileStatus(following: store.path) != nil)
        let done = try groupstore("relocate", Word(store.path), Word(places.group), environment: agent.environment)
        #expect(done.output.hasPrefix("relocated \(store.path) to ") && done.output.contains("(rename, "))
        #expect(try agent.stop().status == 0)
    }

    @Test func namesTheAwaitedHolder() throws {
        let agent = try AgentProcess(places, legacy: [])
        let shell = try sqliteShell(store.path)
        for environment in [agent.environment, ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"]] {
            let command = try RunningProcess(
                Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--deadline", "3600"],
                environment: environment)
            try command.line(.errors) { $0 == "waiting for sqlite3 (pid \(shell.pid))" }
            command.signal(SIGINT)
            #expect(try command.wait().status == 130)
        }
        shell.closeInput()
        try shell.wait()
    }

    @Test func namesTheAwaitedPresenter() throws {
        let agent = try AgentProcess(places, legacy: [])
        let presenter = try agent.connect()
        try presenter.send(["id": 1, "op": "present", "store": .string("\(AgentProcess.group)/Notes.sqlite")])
        try presenter.next { $0["id"] == .integer(1) }
        let command = try RunningProcess(
            Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--deadline", "3600"],
            environment: agent.environment)
        try command.line(.errors) { $0.hasPrefix("waiting for ") && $0.contains("(pid \(getpid()))") }
        let claim = try #require(try presenter.next("relinquish")["claim"])
        try presenter.send(["op": "relinquished", "claim": claim])
        #expect(try command.wait().status == 0)
    }

    @Test func undoesARelocation() throws {
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        try groupstore("relocate", Word(store.path), Word(places.group), environment: agent.environment)
        try subscriber.next("relocated")
        let undone = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--undo", environment: agent.environment)
        #expect(undone.status == 0 && undone.output.hasPrefix("undone: "), "\(undone.output)\(undone.errors)")
        #expect(try subscriber.next("reset").string("reason") == "vanished")
        #expect(try noteCount(store.path) == 5)
        let again = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--undo", "--json", environment: agent.environment)
        #expect(again.status == 0 && again.outcome == "nothing_to_do", "\(again.output)")
    }

    /// The reason names the configured place.
    @Test func doesNotUndoAConfiguredRelocation() throws {
        let agent = try AgentProcess(places, legacy: [store.path])
        _ = try agent.legacyRow { $0 == "relocated" }
        let refused = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--undo", "--json", environment: agent.environment)
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "agent_serves")
        let message = refused.summary.object("error")?.string("message") ?? ""
        #expect(
            message.contains("\(store.path)") && message.contains("\(AgentProcess.group)/Notes.sqlite"), "\(message)")
    }

    @Test func statusAndDoctorReportAConflict() throws {
        try makeStore(places.group.appending("Notes.sqlite"), rows: 2)
        let agent = try AgentProcess(places, legacy: [store.path])
        let row = try agent.legacyRow { $0 == "conflict" }
        #expect(row.integer("exit") == 73 && row.string("code") == "conflict", "\(row.text)")
        try expectProblem(73, "relocation", "both hold rows", agent)
        #expect(try agent.stop().status == 0)
    }

    @Test func statusAndDoctorReportARefusal() throws {
        try run("rm", ["-r", Word(places.legacy)])
        try run("mkdir", [Word(places.legacy)])
        try write(String(repeating: "x", count: 100), to: places.legacy.appending("Notes.sqlite-wal"))
        let agent = try AgentProcess(places, legacy: [store.path])
        let row = try agent.legacyRow { $0 == "refused" }
        #expect(row.string("code") == "half_a_store", "\(row.text)")
        try expectProblem(65, "relocation", "half a store", agent)
        try run("rm", [Word(places.legacy.appending("Notes.sqlite-wal"))])
        _ = try agent.legacyRow { $0 == "absent" }
        #expect(try groupstore("status", environment: agent.environment).status == 0)
    }

    @Test func statusAndDoctorReportAnUnreadableConfiguration() throws {
        let file = places.scratch("config.yaml")
        let good = "groups: [{ id: \(AgentProcess.group), directory: \(places.group) }]\n"
        try write(good, to: file)
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
        try write("groups: [{ no: such key }]\n", to: file)
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("keeping the previous configuration") }
        try agent.process.line(.errors) { $0.contains("serving 1 group") }
        try expectProblem(78, "reload", "keeps its old configuration", agent)
        let shown = try groupstore("status", environment: agent.environment).lines
        #expect(shown.contains { $0.hasPrefix("agent ") }, "\(shown)")
        try write(good, to: file)
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("serving 1 group") }
        #expect(try groupstore("status", environment: agent.environment).status == 0)
    }

    private func expectProblem(_ status: Int32, _ check: String, _ words: String, _ agent: AgentProcess) throws {
        let shown = try groupstore("status", environment: agent.environment)
        #expect(shown.status == status && shown.output.contains(words), "\(shown.output)\(shown.errors)")
        let found = try groupstore("doctor", "--json", environment: agent.environment)
        let problem = found.objects.first { $0.string("check") == check }
        #expect(problem?.string("verdict") == "problem", "\(found.output)")
        #expect(problem?.string("message")?.contains(words) == true, "\(found.output)")
        #expect(found.status != 0)
    }
}
