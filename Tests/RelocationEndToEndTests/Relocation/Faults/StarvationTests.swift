import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a waiting relocation doesn't block other stores.
@Suite(.ownThreads) struct StarvationTests {
    private func present(_ agent: AgentProcess, _ store: String) throws -> WireConnection {
        let connection = try agent.connect()
        try connection.send(["id": 1, "op": "present", "store": .string("\(AgentProcess.group)/\(store)")])
        try connection.next { $0["id"] == .integer(1) }
        return connection
    }

    /// Both stores belong to the same group.
    @Test func anUnresponsivePresenterDelaysOnlyItsOwnStore() throws {
        let places = try Places()
        let (frozen, free) = (places.legacy.appending("Notes.sqlite"), places.legacy.appending("Diary.sqlite"))
        let agent = try AgentProcess(places, legacy: [frozen, free])
        let presenter = try present(agent, "Notes.sqlite")
        let (ofFrozen, ofFree) = (try agent.subscribe("Notes.sqlite"), try agent.subscribe("Diary.sqlite"))
        try makeStore(places.scratch("Notes.sqlite"), rows: 5)
        try makeStore(places.scratch("Diary.sqlite"), rows: 3)
        try run("mv", [Word(places.scratch("Notes.sqlite")), Word(frozen)])
        try presenter.next("relinquish")
        try run("mv", [Word(places.scratch("Diary.sqlite")), Word(free)])
        try ofFree.next("relocated")
        // The request is still pending: nobody has answered.
        let row = try agent.legacyRow("Notes.sqlite") { _ in true }
        #expect(row.string("state") == "relocating", "\(row.text)")
        try ofFrozen.next("relocating")
        #expect(try noteCount(places.group.appending("Diary.sqlite")) == 3)
    }

    @Test func aWaitingClientDelaysNoOtherStore() throws {
        let places = try Places()
        let notes = places.legacy.appending("Notes.sqlite")
        let agent = try AgentProcess(places, legacy: [notes])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let busy = try makeStore(places.scratch("Busy.sqlite"), rows: 5)
        let free = try makeStore(places.scratch("Free.sqlite"), rows: 4)
        let shell = try sqliteShell(busy.path)
        let client = try RunningProcess(
            Programs.groupstore, ["relocate", Word(busy.path), Word(places.group), "--json", "--deadline", "3600"],
            environment: agent.environment)
        try client.line { JSONObject(line: $0)?.type == "waiting" }
        try makeStore(places.scratch("Notes.sqlite"), rows: 3)
        try run("mv", [Word(places.scratch("Notes.sqlite")), Word(notes)])
        try subscriber.next("relocated")
        let done = try groupstore(
            "relocate", Word(free.path), Word(places.group), "--json", environment: agent.environment)
        #expect(done.outcome == "relocated", "\(done.output)")
        shell.closeInput()
        try shell.wait()
        #expect(try client.wait().outcome == "relocated")
        #expect(try noteCount(places.group.appending("Busy.sqlite")) == 5)
    }

    /// A command without an agent also releases the group's lock while it waits for a program.
    @Test func aWaitingCommandDelaysNoOtherStore() throws {
        let places = try Places()
        let busy = try makeStore(places.legacy.appending("Busy.sqlite"), rows: 5, unflushed: true)
        let free = try makeStore(places.legacy.appending("Free.sqlite"), rows: 4)
        let shell = try sqliteShell(busy.path)
        let environment = ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"]
        let command = try RunningProcess(
            Programs.groupstore, ["relocate", Word(busy.path), Word(places.group), "--json", "--deadline", "3600"],
            environment: environment)
        try command.line { JSONObject(line: $0)?.type == "waiting" }
        let done = try groupstore("relocate", Word(free.path), Word(places.group), "--json", "--deadline", "60")
        #expect(done.outcome == "relocated", "\(done.output)")
        try shell.execute("INSERT INTO note (text) VALUES ('the last')")
        shell.closeInput()
        try shell.wait()
        #expect(try command.wait().outcome == "relocated")
        #expect(try noteCount(places.group.appending("Busy.sqlite")) == 6)
    }
}
