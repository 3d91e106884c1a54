import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a relocation is a state: subscribers learn of it whenever they join.
@Suite(.ownThreads) struct RelocationStateTests {
    private let places: Places
    private let store: StoreFiles

    init() throws {
        places = try Places()
        store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
    }

    private func holders(_ event: JSONObject, _ key: String = "waiting_for") -> Set<Int64> {
        Set(event.objects(key).compactMap { $0.integer("pid") })
    }

    private func state(_ agent: AgentProcess, status: Int32 = 0) throws -> JSONObject? {
        let done = try groupstore("status", "--json", environment: agent.environment)
        #expect(done.status == status, "\(done.errors)")
        return done.objects.first { $0.type == "store" }?.object("relocation")
    }

    @Test func newSubscribersLearnOfTheAwaitedHolder() throws {
        let first = try sqliteShell(store.path)
        let second = try sqliteShell(store.path)
        let agent = try AgentProcess(places, legacy: [store.path])
        let early = try agent.subscribe("Notes.sqlite")
        let both: Set<Int64> = [Int64(first.pid), Int64(second.pid)]
        try early.next { $0.type == "relocating" && holders($0) == both }

        let late = try agent.subscribe("Notes.sqlite")
        #expect(try holders(late.next { _ in true }) == both)
        let shown = try #require(try state(agent))
        #expect(shown.string("state") == "relocating")
        #expect(holders(shown) == both)
        let words = try groupstore("status", environment: agent.environment).output
        #expect(words.contains("relocating") && words.contains("sqlite3 (pid \(first.pid))"), "\(words)")

        first.closeInput()
        try first.wait()
        for subscriber in [early, late] {
            try subscriber.next { $0.type == "relocating" && holders($0) == [Int64(second.pid)] }
        }
        second.closeInput()
        try second.wait()
        for subscriber in [early, late] { try subscriber.next("relocated") }
        #expect(try state(agent)?.string("state") == "relocated")
        // The relocation is over: a new subscriber receives nothing before the next change.
        let after = try agent.subscribe("Notes.sqlite")
        try sqlite(places.group.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('later')")
        #expect(try after.next { _ in true }.type == "change")
    }

    /// The agent makes no attempt while the holder stays, although programs keep opening, writing and closing the
    /// group's store.
    @Test func waitsForAHolderOfTheGroupStoreWithoutRetrying() throws {
        let group = places.group.appending("Notes.sqlite")
        try makeStore(group, rows: 5)
        let file = places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores:
                  - { name: Notes.sqlite, legacy: [\(store.path)], on-conflict: keep-legacy, settle: 0s }
            """, to: file)
        let holder = try sqliteShell(group)
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
        let subscriber = try agent.subscribe("Notes.sqlite")
        try subscriber.next { $0.type == "relocating" && holders($0) == [Int64(holder.pid)] }
        // The attempt itself changed the store. A change event reports that, at the latest with the next change.
        for number in 1...30 {
            try sqlite(group, "INSERT INTO note (text) VALUES ('\(number)')")
            let event = try subscriber.next { _ in true }
            #expect(event.type == "change", "\(event.text)")
        }
        holder.closeInput()
        try holder.wait()
        #expect(try holders(subscriber.next("relocating")).isEmpty)
        try subscriber.next("relocated")
        #expect(try noteCount(group) == 10)
    }

    /// The first store is gone, and its replacement waits. The agent abandons nothing.
    @Test func keepsWaitingIfTheStoreIsReplaced() throws {
        let legacy = places.legacy.appending("Diary.sqlite")
        let other = places.scratch("Other.sqlite")
        for path in [legacy, other] { try sqlite(path, "CREATE TABLE note (text)") }
        let first = try sqliteShell(legacy)
        let agent = try AgentProcess(places, legacy: [legacy])
        let subscriber = try agent.subscribe("Diary.sqlite")
        try subscriber.next { $0.type == "relocating" && holders($0) == [Int64(first.pid)] }
        let second = try sqliteShell(other)
        try run("mv", [Word(other), Word(legacy)])
        let event = try subscriber.next("relocating", "abandoned", "relocated")
        #expect(event.type == "relocating" && holders(event) == [Int64(second.pid)], "\(event.text)")
        for shell in [first, second] {
            shell.closeInput()
            try shell.wait()
        }
        try subscriber.next("relocated")
    }

    @Test func abandonsTheRelocationOfARemovedStore() throws {
        let shell = try sqliteShell(store.path)
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        try subscriber.next("relocating")
        try run("rm", [Word(store.path)])
        let event = try subscriber.next("relocated", "abandoned")
        #expect(event.string("outcome") == "nothing_to_do", "\(event.text)")
        #expect(try state(agent)?.string("state") == "abandoned")
        shell.closeInput()
        try shell.wait()
    }

    /// The agent stops following a store that leaves its group, and notifies the subscribers.
    @Test func reportsAStoreThatLeavesItsGroup() throws {
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        if try Directory(places.legacy).status("Notes.sqlite") != nil { try subscriber.next("relocated") }
        let elsewhere = places.scratch("elsewhere")
        try run("mkdir", [Word(elsewhere)])
        let done = try groupstore(
            "relocate", Word(places.group.appending("Notes.sqlite")), Word(elsewhere), "--json", "--deadline", "20",
            environment: agent.environment)
        #expect(done.outcome == "relocated", "\(done.output)")
        try subscriber.next { $0.type == "reset" && $0.string("reason") == "vanished" }
        let returned = try groupstore(
            "relocate", Word(elsewhere.appending("Notes.sqlite")), Word(places.group), "--json",
            environment: agent.environment)
        #expect(returned.outcome == "relocated", "\(returned.output)")
        try subscriber.next("relocated")
        try sqlite(places.group.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('here again')")
        try subscriber.next("change")
    }

    @Test func abandonsTheRelocationAfterAConflict() throws {
        let shell = try sqliteShell(store.path)
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        try subscriber.next("relocating")
        try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        shell.closeInput()
        try shell.wait()
        let event = try subscriber.next("relocated", "abandoned")
        #expect(event.string("outcome") == "conflict", "\(event.text)")
        let shown = try #require(try state(agent, status: 73))
        #expect(shown.string("outcome") == "conflict")
        #expect(shown.string("message")?.isEmpty == false)
    }
}
