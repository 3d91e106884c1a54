import AppRelocation
import GroupContainers
import LinuxSystem
import Logging
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// An app whose programs were stopped for a move that failed.
@Suite(.ownThreads) struct FailedStopTests {
    /// A unit that has the directory open, and that its manager doesn't stop.
    ///
    /// Unchecked: a test uses it on one thread.
    private final class Unit: @unchecked Sendable {
        var stops = 0
        var whenStopped: () throws -> Void = {}
        private let program: RunningProcess

        init(holding place: FilePath) throws {
            program = try RunningProcess("sh", ["-c", "cd \"$1\" && echo open && read end", "sh", Word(place)])
            #expect(try program.line() == "open")
        }

        func end() throws {
            program.closeInput()
            try program.wait()
        }

        var managers: ManagerCommands {
            ManagerCommands { words, _, _ in
                if words.contains("stop") {
                    self.stops += 1
                    try? self.whenStopped()
                    return .init(status: 1, message: "Access denied")
                }
                let values = ["Id=notes.service", "LoadState=loaded", "ActiveState=active", "KillMode=control-group"]
                return .init(status: 0, output: values.joined(separator: "\n") + "\nMainPID=\(self.program.pid)\n")
            } file: { pid, name in
                guard name == "cgroup" else { return nil }
                return pid == self.program.pid ? "0::/system.slice/notes.service\n" : "0::/user.slice/a.scope\n"
            }
        }
    }

    private let scratch: TemporaryDirectory
    private let place: FilePath
    private let app: LegacyApp
    private let unit: Unit

    init() throws {
        scratch = try TemporaryDirectory()
        place = scratch.path.appending("app")
        let group = scratch.path.appending("group")
        try run("mkdir", [Word(place), Word(group)])
        try run("sqlite3", [Word(place.appending("Notes.sqlite")), "CREATE TABLE t (x)"])
        var configured = Configuration.App(source: place, name: "app")
        (configured.stopsHolders, configured.settle) = (true, .zero)
        let identifier = try #require(GroupIdentifier("group.example"))
        app = LegacyApp(configured, of: Configuration.Group(identifier: identifier, directory: group, stores: []))
        unit = try Unit(holding: place)
    }

    private func attempt() {
        app.begin()
        var request = app.request
        request.managers = unit.managers
        let attempt = LegacyApps.Attempt(number: 1, request: request, keys: [], failedStops: app.failedStops)
        app.end(attempt.run(isCancelled: { false }, Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }))
    }

    @Test func programsAreNotStoppedAgainUntilTheDirectoryChanges() throws {
        app.inspect()
        for _ in 0..<3 { attempt() }
        #expect(unit.stops == 1)
        #expect(app.status.code == "not_stopped" && app.status.detail?.contains("not stopped again") == true)
        // Neither a reload nor an event changes what it depends on.
        app.recheck()
        attempt()
        #expect(unit.stops == 1)
        try run("sqlite3", [Word(place.appending("Notes.sqlite")), "INSERT INTO t VALUES (1)"])
        attempt()
        #expect(unit.stops == 1)
        for statement in ["CREATE TABLE u (x)", "CREATE TABLE v (x)"] {
            let before = unit.stops
            try run("sqlite3", [Word(place.appending("Notes.sqlite")), Word(statement)])
            for _ in 0..<3 { attempt() }
            #expect(unit.stops == before + 1)
        }
        // Nothing need be stopped any more.
        try unit.end()
        attempt()
        #expect(app.state == .moved && app.stopRefusal == nil)
    }

    /// A program that ends writes its log into its store, and with it the tables that it has made.
    @Test func whatTheStopItselfChangesIsNoReasonForAnother() throws {
        let store = place.appending("Notes.sqlite")
        let make = """
            import os, sqlite3, sys
            store = sqlite3.connect(sys.argv[1])
            store.execute("PRAGMA journal_mode = WAL")
            store.execute("CREATE TABLE u (x)")
            os._exit(0)
            """
        try run("python3", ["-c", Word(make), Word(store)])
        unit.whenStopped = { try run("sqlite3", [Word(store), "PRAGMA wal_checkpoint(TRUNCATE)"]) }
        app.inspect()
        for _ in 0..<3 { attempt() }
        #expect(unit.stops == 1)
        try unit.end()
    }

    @Test func thereIsAnEndToTheStopsForADirectoryThatAlwaysChanges() throws {
        app.inspect()
        for number in 0..<20 {
            try run("touch", [Word(place.appending("file\(number)"))])
            attempt()
        }
        #expect(unit.stops == 8)
        try unit.end()
    }
}
