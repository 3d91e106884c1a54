import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// GRDB's value observations, in a separate process, follow what other processes commit to the store.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct ObservationTests {
    private let places: Places
    private var store: FilePath { places.group.appending("Notes.sqlite") }
    private var legacy: FilePath { places.legacy.appending("Notes.sqlite") }

    init() throws { places = try Places() }

    private func agent() throws -> AgentProcess { try AgentProcess(places, legacy: [legacy]) }

    private func observer() throws -> RunningProcess {
        let app = try RunningProcess(
            Programs.notesApp,
            [
                "\(AgentProcess.group)", "--directory", Word(places.group), "--legacy", Word(legacy), "--observe",
            ], environment: AgentProcess.environment(places.scratch("agent.sock")))
        try app.line { $0.hasPrefix("open ") }
        return app
    }

    private func expect(_ count: Int, _ app: RunningProcess) throws { try app.line { $0 == "notes \(count)" } }

    private static let insert = "INSERT INTO note (title) VALUES ('from elsewhere')"

    @Test func anotherProcessRefreshesAnObservation() throws {
        let agent = try agent()
        let app = try observer()
        try expect(0, app)
        let shell = try sqliteShell(store)
        try shell.execute(Self.insert)
        try expect(1, app)
        // The shell blocks all writers; the observation doesn't need to write.
        let before = try Directory(places.group).status("Notes.sqlite-wal")?.size
        try shell.execute("\(Self.insert); BEGIN IMMEDIATE")
        try expect(2, app)
        try shell.execute("ROLLBACK")
        let grown = try Directory(places.group).status("Notes.sqlite-wal")?.size
        #expect((grown ?? 0) - (before ?? 0) < 3 * 4120, "more was written than a transaction of one row")
        // The schema changes.
        try shell.execute("ALTER TABLE note ADD COLUMN colour TEXT; \(Self.insert)")
        try expect(3, app)
        shell.closeInput()
        try shell.wait()
        try app.killAtOnce()
        withExtendedLifetime(agent) {}
    }

    @Test func continuesAfterARestartAndAMove() throws {
        try sqlite(legacy, "CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT); \(Self.insert)")
        let app = try observer()
        try expect(1, app)
        // This commit happens while no agent runs.
        try sqlite(legacy, Self.insert)
        var agent = try agent()
        // The agent relocates the store while the app has it open.
        let subscriber = try agent.subscribe("Notes.sqlite")
        try expect(2, app)
        if try Directory(places.legacy).status("Notes.sqlite") != nil { try subscriber.next("relocated") }
        try sqlite(store, Self.insert)
        try expect(3, app)
        try agent.process.killAtOnce()
        try sqlite(store, Self.insert)
        agent = try self.agent()
        try expect(4, app)
        try app.killAtOnce()
    }
}
