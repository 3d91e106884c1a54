import AgentProtocol
import EndToEndSupport
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Stores are relocated while programs present them. Every row whose commit a program saw succeed must be there
/// afterwards.
@Suite(.ownThreads) struct PresenterTests {
    /// The sample app in its own group.
    struct Apps {
        let places: Places
        let store: StoreFiles
        var published: FilePath { places.group.appending("Notes.sqlite") }
        var running: [RunningProcess] = []
        var socket: FilePath { places.scratch("agent.sock") }

        init(rows: Int = 3) throws {
            places = try Places()
            store = try StoreFiles(places.legacy.appending("Notes.sqlite"))
            try sqlite(
                store.path,
                """
                PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(rows))
                INSERT INTO note (title) SELECT 'old ' || i FROM n
                """)
        }

        /// Starts another app, and waits until it has the store open.
        mutating func start(rows: Int, rate: Int) throws {
            let app = try RunningProcess(
                Programs.notesApp,
                [
                    "\(AgentProcess.group)", "--directory", Word(places.group), "--legacy", Word(store.path), "--rows",
                    "\(rows)", "--rate", "\(rate)", "--title", "app\(running.count)",
                ], environment: AgentProcess.environment(socket))
            try app.line { $0.hasPrefix("open ") }
            running.append(app)
        }

        /// Waits for all apps, and compares the rows that they saw committed with those in the store. Returns the
        /// pauses, in milliseconds.
        @discardableResult
        func finish(at place: FilePath? = nil, old: Int = 3) throws -> [Int] {
            var acknowledged: Set<String> = []
            var pauses: [Int] = []
            for app in running {
                let done = try app.wait(within: .seconds(300))
                #expect(done.status == 0, "\(done.errors)")
                for line in done.lines where line.hasPrefix("row ") { acknowledged.insert(String(line.dropFirst(4))) }
                for line in done.lines where line.hasPrefix("moved to ") {
                    pauses.append(Int(line.split(separator: " ").dropLast().last ?? "") ?? -1)
                }
            }
            let titles = try sqlite(place ?? published, "SELECT title FROM note").split(separator: "\n").map(
                String.init)
            #expect(acknowledged.subtracting(titles).isEmpty)
            #expect(titles.count == Set(titles).count)
            #expect(Set(titles).subtracting(acknowledged).count >= old)
            #expect(try sqlite(place ?? published, "PRAGMA integrity_check") == "ok\n")
            return pauses
        }
    }

    private func agent(_ apps: Apps, legacy: Bool = true) throws -> AgentProcess {
        guard legacy else { return try AgentProcess(apps.places, legacy: []) }
        // Nothing is copied in here, so the store is complete at once.
        let configuration = apps.places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(apps.places.group)
                stores:
                  - name: Notes.sqlite
                    legacy: [\(apps.store.path)]
                    settle: 1ms

            """, to: configuration)
        return try AgentProcess(["--config", Word(configuration)], socket: apps.socket)
    }

    @Test func relocatesAStoreWhileItsAppWrites() throws {
        var apps = try Apps()
        // Until the app presents the store, a program that doesn't know presenters keeps the agent waiting.
        let shell = try sqliteShell(apps.store.path)
        let agent = try agent(apps)
        let subscriber = try agent.subscribe("Notes.sqlite")
        try apps.start(rows: 2500, rate: 500)
        shell.closeInput()
        let relocated = try subscriber.next("relocated", "abandoned")
        #expect(relocated.type == "relocated", "\(relocated.text)")
        let pauses = try apps.finish()
        #expect(pauses.count == 1)
        print("pause: \(pauses) ms")
        #expect(try !Directory(apps.places.legacy).names().contains("Notes.sqlite"))
    }

    @Test(.soak) func relocatesAStoreWhileManyAppsWrite() throws {
        var apps = try Apps()
        for _ in 0..<8 { try apps.start(rows: 150, rate: 30) }
        let agent = try agent(apps)
        let subscriber = try agent.subscribe("Notes.sqlite")
        try subscriber.next("relocated")
        try apps.finish()
    }

    /// The command asks the agent, and names a presenter that doesn't answer. Nothing changes.
    @Test func namesAStoppedPresenter() throws {
        var apps = try Apps()
        let agent = try agent(apps, legacy: false)
        try apps.start(rows: 400, rate: 100)
        let app = try #require(apps.running.first)
        try app.line { $0 == "row app0 20" }
        try app.suspend()
        let before = try DirectorySnapshot(apps.places.legacy)

        let started = ContinuousClock.now
        let refused = try groupstore(
            "relocate", Word(apps.store.path), Word(apps.places.group), "--deadline", "1", "--json",
            environment: agent.environment)
        #expect(started.duration(to: .now) < .seconds(20))
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.outcome == "busy")
        let holder = try #require(refused.summary.objects("holders").first, "\(refused.output)")
        #expect(holder.integer("pid") == Int64(app.pid))
        #expect(holder.string("program") == "NotesApp")
        #expect(refused.errors.contains("NotesApp (pid \(app.pid))"))
        #expect(try DirectorySnapshot(apps.places.legacy) == before)
        #expect(try Directory(apps.places.group).names().filter { $0 != ".groupstore" }.isEmpty)

        app.signal(SIGCONT)
        try app.line { $0 == "row app0 60" }
        let done = try groupstore(
            "relocate", Word(apps.store.path), Word(apps.places.group), "--json", environment: agent.environment)
        #expect(done.outcome == "relocated", "\(done.output)")
        // The app catches up with its delayed writes, and may have finished before it was asked.
        #expect(try apps.finish().count <= 1)
    }

    /// The app continues at the store's current place, whatever the agent had done to the store when it was killed.
    /// `GROUPSTORE_KILLS` sets the number of kills; the external check uses 100.
    @Test(.soak) func losesNoRowsIfTheAgentIsKilled() throws {
        let kills = ProcessInfo.processInfo.environment["GROUPSTORE_KILLS"].flatMap { Int($0) } ?? 6
        var found: [String: Int] = [:]
        for round in 0..<kills {
            var apps = try Apps()
            let shell = try sqliteShell(apps.store.path)
            var doomed: AgentProcess? = try agent(apps)
            try apps.start(rows: 600, rate: 200)
            shell.closeInput()
            try shell.wait()
            // This spans the time from the last close to the end of the relocation, on a busy machine.
            _ = try doomed?.process.hasEnded(within: .microseconds(.random(in: 0...900_000)))
            try doomed?.process.killAtOnce()
            doomed = nil
            found[try state(apps), default: 0] += 1
            // The app works without an agent: rows arrive.
            let app = try #require(apps.running.first)
            try app.line(within: .ample) { $0.hasPrefix("row app0 ") && Int($0.dropFirst(9)) ?? 0 > 300 }
            let heir = try agent(apps)
            let subscriber = try heir.subscribe("Notes.sqlite")
            // This agent relocates a store that the app found at the old place, under the app or else after the app's
            // end.
            if try Directory(apps.places.legacy).status("Notes.sqlite")?.kind == .regular {
                try subscriber.next("relocated")
            }
            try apps.finish()
            #expect(try Directory(apps.places.legacy).names().isEmpty, "round \(round)")
        }
        print("agent killed \(kills) times at random moments; what the journal said then: \(found)")
    }

    private func state(_ apps: Apps) throws -> String {
        let journal = try? DurableFile.read("journal.json", in: Directory(apps.places.group.appending(".groupstore")))
        guard let bytes = journal.flatMap({ $0 }) else {
            return try Directory(apps.places.group).status("Notes.sqlite") == nil ? "nothing begun" : "all done"
        }
        let text = String(decoding: bytes, as: UTF8.self)
        return ["intended", "withdrawn", "committing"].first { text.contains("\"\($0)\" :") } ?? text
    }

    @Test func theLegacyPresenterSampleReleasesItsStore() throws {
        let apps = try Apps()
        // The group's directory is found by its identifier.
        let containers = apps.places.scratch("containers")
        let group = containers.appending(AgentProcess.group)
        try run("mkdir", ["-p", Word(group)])
        let environment = ["GROUPSTORE_SOCKET": apps.socket.string, "GROUPSTORE_CONTAINERS": containers.string]
        let agent = try AgentProcess(["--group", "\(AgentProcess.group)=" + Word(group)], socket: apps.socket)
        let old = try RunningProcess(
            Programs.legacyPresenter, ["\(AgentProcess.group)", Word(apps.store.path)], environment: environment)
        old.send("first")
        #expect(try old.line() == "row 4 \(apps.store.path.string)")
        let done = try groupstore(
            "relocate", Word(apps.store.path), Word(group), "--json", environment: agent.environment)
        #expect(done.outcome == "relocated", "\(done.output)")
        // A presenter finds the store at its new place: nothing needs to be said about the old one.
        #expect(done.summary["notes"] == nil)
        old.send("second")
        #expect(try old.line() == "row 5 \(group.appending("Notes.sqlite").string)")
        old.closeInput()
        #expect(try old.wait().status == 0)
        #expect(try sqlite(group.appending("Notes.sqlite"), "SELECT title FROM note WHERE id > 3") == "first\nsecond\n")
    }

    @Test func aWidgetReceivesChangesWithoutPresenting() throws {
        let apps = try Apps()
        let containers = apps.places.scratch("containers")
        let group = containers.appending(AgentProcess.group)
        try run("mkdir", ["-p", Word(group)])
        let environment = ["GROUPSTORE_SOCKET": apps.socket.string, "GROUPSTORE_CONTAINERS": containers.string]
        let widget = try RunningProcess(
            Programs.notesWidget, ["\(AgentProcess.group)", "Notes.sqlite"], environment: environment)
        #expect(try widget.line()?.hasPrefix("no agent") == true)
        try widget.line { $0.hasPrefix("reset (subscribed)") }
        // Keeps the agent from relocating the store before the widget has found it.
        let holder = try RunningProcess("sqlite3", [Word(apps.store.path)])
        holder.send("SELECT count(*) FROM note;")
        #expect(try holder.line() == "3")
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(group), "--legacy", Word(apps.store.path)],
            socket: apps.socket)
        try widget.line { $0.hasPrefix("connected") }
        holder.closeInput()
        try widget.line { $0.hasPrefix("relocated") }
        let published = group.appending("Notes.sqlite")
        try sqlite(published, "INSERT INTO note (title) VALUES ('first')")
        try widget.line { $0.hasPrefix("changed") }
        // Another agent is another epoch: the widget is notified, and continues.
        #expect(try agent.stop().status == 0)
        try widget.line { $0.hasPrefix("no agent") }
        let heir = try AgentProcess(["--group", "\(AgentProcess.group)=" + Word(group)], socket: apps.socket)
        try widget.line { $0.hasPrefix("reset (epoch)") }
        try sqlite(published, "INSERT INTO note (title) VALUES ('second')")
        try widget.line { $0.hasPrefix("changed") }
        #expect(try heir.stop().status == 0)
    }

    /// A program that only listens must not link a database engine, a network library or a command-line parser.
    @Test func theClientLibraryLinksNoUnneededLibrary() throws {
        let libraries = try run("ldd", [Programs.notesWidget]).output
        #expect(libraries.contains("libc.so"))
        for unwanted in ["libsqlite3", "libinotifytools"] { #expect(!libraries.contains(unwanted), "\(libraries)") }
        let symbols = try run("nm", [Programs.notesWidget]).output
        // A mangled name has the length, then the module.
        #expect(symbols.contains("10GroupStore"))
        for unwanted in ["4GRDB", "14ArgumentParser", "7Logging", "7NIOCore", "15PersistentStore", "sqlite3_open"] {
            #expect(!symbols.contains(unwanted), "\(unwanted)")
        }
    }
}
