import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Programs that relocate, migrate and open a store in one call, several at once.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct LoadedStoreTests {
    private let places: Places
    private var legacy: FilePath { places.legacy.appending("Old.sqlite") }
    private var store: FilePath { places.group.appending("Notes.sqlite") }
    private var socket: FilePath { places.scratch("agent.sock") }

    init() throws {
        places = try Places()
        try sqlite(
            legacy,
            """
            PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT);
            INSERT INTO note (title) VALUES ('old')
            """)
    }

    private func app(_ title: String, rows: Int) throws -> RunningProcess {
        try RunningProcess(
            Programs.notesApp,
            [
                "\(AgentProcess.group)", "--directory", Word(places.group), "--legacy", Word(legacy), "--relocate",
                "--rows", "\(rows)", "--rate", "1000", "--title", "\(title)",
            ], environment: AgentProcess.environment(socket))
    }

    /// Runs some apps at once. Returns what they printed about the relocation.
    private func runApps() throws -> [String] {
        let apps = try (1...4).map { try app("app\($0)", rows: 100) }
        var acknowledged: [String] = []
        var reports: [String] = []
        for app in apps {
            let done = try app.wait(within: .seconds(300))
            #expect(done.status == 0, "\(done.errors)")
            acknowledged += done.lines.filter { $0.hasPrefix("row ") }.map { String($0.dropFirst(4)) }
            reports += done.lines.filter { $0.hasPrefix("relocated ") }
        }
        let titles = try sqlite(store, "SELECT title FROM note").split(separator: "\n").map(String.init)
        #expect(acknowledged.count == 400)
        #expect(titles.sorted() == (acknowledged + ["old"]).sorted())
        #expect(try sqlite(store, "SELECT identifier FROM grdb_migrations") == "note\n")
        #expect(try Directory(places.legacy).names().isEmpty)
        return reports
    }

    @Test func programsLoadAStoreAtOnceWithoutAnAgent() throws { #expect(try runApps().count == 1) }

    @Test func programsLoadAStoreAtOnceThroughAnAgent() throws {
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(try runApps().count == 1)
        try subscriber.next("relocated")
        #expect(try agent.stop().status == 0)
    }
}
