import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that several agents and commands that wait for the same store don't wait for each other.
@Suite(.ownThreads) struct SeveralAgentsTests {
    private let places: Places
    private let store: StoreFiles

    init() throws {
        places = try Places()
        store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
    }

    /// Starts an agent, and returns once it waits for a program to close the store.
    private func waitingAgent(_ number: Int) throws -> AgentProcess {
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(places.group), "--legacy", Word(store.path)],
            socket: places.scratch("agent\(number).sock"))
        _ = try agent.legacyRow { $0 == "waiting" }
        return agent
    }

    private func holders() throws -> Set<pid_t> {
        let status = try Directory(places.legacy).status("Notes.sqlite")
        return Set(status.map { FileHolder.of($0.identity).map(\.pid) } ?? [])
    }

    @Test func oneOfTheAgentsRelocatesTheStore() throws {
        let shell = try sqliteShell(store.path)
        let agents = try (1...3).map { try waitingAgent($0) }
        let subscribers = try agents.map { try $0.subscribe("Notes.sqlite") }
        // Only one of them keeps the store open.
        #expect(try holders().subtracting([shell.pid]).count == 1)
        shell.closeInput()
        try shell.wait()
        var relocated = 0
        for subscriber in subscribers {
            if try subscriber.next("relocated", "abandoned").type == "relocated" { relocated += 1 }
        }
        #expect(relocated == 1)
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
        let rows = try agents.map { try $0.legacyRow { $0 != "waiting" }.string("state") }
        // The others have seen that the name is gone, or already the link there to the group's store.
        #expect(rows.contains("relocated"), "\(rows)")
        #expect(rows.allSatisfy { $0 == "relocated" || $0 == "absent" }, "\(rows)")
    }

    @Test func anotherAgentTakesOverFromAKilledOne() throws {
        let shell = try sqliteShell(store.path)
        let agents = try (1...2).map { try waitingAgent($0) }
        let elected = try holders()
        for agent in agents where elected.contains(agent.process.pid) {
            agent.process.signal(SIGKILL)
            try agent.process.wait()
        }
        let left = try #require(agents.first { !elected.contains($0.process.pid) })
        shell.closeInput()
        try shell.wait()
        #expect(try left.legacyRow { $0 == "relocated" }.string("state") == "relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
    }

    /// The command runs outside the agent, whichever of the two waits first.
    @Test(arguments: [true, false]) func commandAndAgentWaitForTheProgramAlone(_ isAgentFirst: Bool) throws {
        let shell = try sqliteShell(store.path)
        let first = isAgentFirst ? try waitingAgent(1) : nil
        let command = try RunningProcess(
            Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--deadline", "30"],
            environment: AgentProcess.environment(places.scratch("none.sock")))
        try command.line(.errors) { $0.contains("waiting for") }
        let agent = try first ?? waitingAgent(1)
        shell.closeInput()
        try shell.wait()
        let done = try command.wait()
        #expect(!done.errors.contains("is open in"), "\(done.errors)")
        _ = try agent.legacyRow { $0 == "relocated" || $0 == "absent" }
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
    }
}
