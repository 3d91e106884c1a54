import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// An agent whose configuration has a program's directory moved.
@Suite(.ownThreads) struct ConfiguredAppTests {
    /// Makes a program's directory with a store whose rows are in its log.
    private func makeApp(_ app: FilePath) throws {
        try run("mkdir", ["-p", Word(app.appending("sub"))])
        try makeStore(app.appending("Notes.sqlite"), rows: 9, unflushed: true)
        try write("text", to: app.pushing("sub/file"))
    }

    private func isLink(_ path: FilePath) throws -> Bool {
        try Directory(path.removingLastComponent()).status(path.lastComponent ?? ".")?.kind == .symbolicLink
    }

    private func configure(_ places: Places, _ keys: String = "", groups: String = "") throws -> FilePath {
        let file = places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                apps: [{ app: \(places.legacy)/app, destination: moved, settle: 0ms, \(keys) }]
            \(groups)
            """, to: file)
        return file
    }

    private func agent(_ places: Places, _ keys: String = "", groups: String = "") throws -> AgentProcess {
        let file = try configure(places, keys, groups: groups)
        return try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
    }

    private func expectMoved(_ places: Places, _ agent: AgentProcess) throws {
        let row = try agent.appRow { $0 == "moved" }
        #expect(row.string("group") == AgentProcess.group)
        #expect(row.string("path") == places.legacy.appending("app").string)
        #expect(row.string("to") == places.group.appending("moved").string)
        #expect(try isLink(places.legacy.appending("app")))
        #expect(try noteCount(places.group.pushing("moved/Notes.sqlite")) == 9)
        #expect(try run("cat", [Word(places.group.pushing("moved/sub/file"))]).output == "text")
        #expect(FileStatus(following: places.group.pushing(".groupstore/app-journal.json")) == nil)
    }

    @Test(arguments: Places.FileSystem.allCases) func movesADirectoryThatIsThere(
        _ fileSystem: Places.FileSystem
    ) throws {
        let places = try Places(fileSystem)
        try makeApp(places.legacy.appending("app"))
        let agent = try agent(places)
        try expectMoved(places, agent)
        #expect(try agent.stop().status == 0)
    }

    /// Its parent, too, comes later.
    @Test(arguments: [true, false]) func movesADirectoryOnceItAppears(_ hasParent: Bool) throws {
        let places = try Places()
        if !hasParent { try run("rmdir", [Word(places.legacy)]) }
        let agent = try agent(places)
        #expect(try agent.appRow { $0 == "absent" }.string("code") == nil)
        let made = places.scratch("made")
        try makeApp(made)
        try run("mkdir", ["-p", Word(places.legacy)])
        try run("mv", [Word(made), Word(places.legacy.appending("app"))])
        try expectMoved(places, agent)
        #expect(try agent.stop().errors.contains("moved "))
    }

    @Test(arguments: Places.FileSystem.allCases) func movesItOnceItsProgramHasEnded(
        _ fileSystem: Places.FileSystem
    ) throws {
        let places = try Places(fileSystem)
        let app = places.legacy.appending("app")
        try makeApp(app)
        let shell = try sqliteShell(app.appending("Notes.sqlite"))
        let agent = try agent(places)
        let row = try agent.appRow { $0 == "waiting" }
        #expect(row.string("detail")?.contains("in use by sqlite3") == true, "\(row.text)")
        #expect(row.number("waiting_seconds") != nil)
        #expect(try !isLink(app))
        shell.closeInput()
        try shell.wait()
        try expectMoved(places, agent)
        #expect(try agent.stop().status == 0)
    }

    /// It is killed when it makes the link: after the journal, and after the copy if there is one.
    @Test(.enabled(if: Programs.canTrace, "strace can't trace here"), arguments: Places.FileSystem.allCases)
    func theNextAgentEndsTheMoveOfAKilledOne(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        try makeApp(places.legacy.appending("app"))
        let config = try configure(places)
        let killed = try RunningProcess(
            "strace",
            [
                "-f", "-qq", "-o", "/dev/null", "-e", "trace=symlinkat", "-e", "inject=symlinkat:signal=KILL:when=1",
                Programs.groupstore, "agent", "--config", Word(config),
            ], environment: AgentProcess.environment(places.scratch("killed.sock")))
        try killed.wait()
        #expect(FileStatus(following: places.group.pushing(".groupstore/app-journal.json")) != nil)
        let agent = try agent(places)
        try expectMoved(places, agent)
        #expect(try agent.stop().status == 0)
    }

    private func kill(_ call: String, _ number: Int, _ words: [Word], _ places: Places) throws {
        let killed = try RunningProcess(
            "strace",
            [
                "-f", "-qq", "-o", "/dev/null", "-e", Word("trace=\(call)"),
                "-e", Word("inject=\(call):signal=KILL:when=\(number)"), Programs.groupstore,
            ] + words, environment: AgentProcess.environment(places.scratch("killed.sock")))
        try killed.wait()
    }

    /// An agent is killed before its move is decided, and a person takes that back.
    @Test func leavesADirectoryWhoseMoveAPersonTookBackBeforeItsEnd() throws {
        let places = try Places(.another)
        let app = places.legacy.appending("app")
        try makeApp(app)
        let config = try configure(places)
        try kill("renameat2", 1, ["agent", "--config", Word(config)], places)
        #expect(FileStatus(following: places.group.pushing(".groupstore/app-journal.json")) != nil)
        #expect(try groupstore("move-app", "--undo", Word(app), "--json").outcome == "undone")
        let agent = try agent(places)
        _ = try agent.appRow { $0 == "undone" }
        #expect(try !isLink(app))
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(try agent.stop().status == 0)
    }

    /// The path leads nowhere until then.
    @Test func endsTheUndoThatWasKilled() throws {
        let places = try Places(.another)
        let app = places.legacy.appending("app")
        try makeApp(app)
        let agent = try agent(places)
        try expectMoved(places, agent)
        try kill("renameat2", 2, ["move-app", "--undo", Word(app)], places)
        _ = try agent.appRow { state in
            ["moved", "undone"].contains(state) && FileStatus(following: app.appending("Notes.sqlite")) != nil
                && FileStatus(following: places.group.pushing(".groupstore/app-journal.json")) == nil
        }
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(try agent.stop().status == 0)
    }

    /// Neither the agent that has moved it, nor one that has found it moved, nor the next one moves it again.
    @Test(arguments: [true, false], Places.FileSystem.allCases)
    func leavesADirectoryThatAPersonMovedBack(_ isByAgent: Bool, _ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let app = places.legacy.appending("app")
        let moved = places.group.appending("moved")
        try makeApp(app)
        if !isByAgent { #expect(try groupstore("move-app", Word(app), Word(moved)).status == 0) }
        let first = try agent(places)
        try expectMoved(places, first)
        #expect(try groupstore("move-app", "--undo", Word(app), "--json").outcome == "undone")
        let row = try first.appRow { $0 == "undone" }
        #expect(row.string("detail")?.contains("groupstore move-app") == true, "\(row.text)")
        #expect(try first.stop().status == 0)
        let second = try agent(places)
        _ = try second.appRow { $0 == "undone" }
        #expect(try !isLink(app))
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        // By hand it moves, and a second undo is remembered as the first.
        #expect(try groupstore("move-app", Word(app), Word(moved), "--json").outcome == "moved")
        try expectMoved(places, second)
        #expect(try groupstore("move-app", "--undo", Word(app), "--json").outcome == "undone")
        _ = try second.appRow { $0 == "undone" }
        #expect(try !isLink(app))
        #expect(try second.stop().status == 0)
    }

    /// What a move could not remove is in a hidden directory, whose name the receipt tells. The next agent knows it,
    /// too.
    @Test func showsFilesThatStayAtTheOldPlaceUntilTheyAreRemoved() throws {
        let places = try Places()
        try makeApp(places.legacy.appending("app"))
        let first = try agent(places)
        try expectMoved(places, first)
        #expect(try first.appRow { $0 == "moved" }.string("left_behind") == nil)
        let left = try places.leaveFileBehind()
        func row(_ agent: AgentProcess, hasLeft: Bool) throws -> JSONObject {
            let deadline = Deadline(after: .ample)
            while true {
                let row = try agent.appRow { $0 == "moved" }
                if (row.string("left_behind") != nil) == hasLeft || deadline.hasPassed { return row }
            }
        }
        #expect(try row(first, hasLeft: true).string("left_behind") == left.string)
        #expect(try first.stop().status == 0)
        let second = try agent(places)
        let found = try row(second, hasLeft: true)
        #expect(found.string("detail")?.contains(left.string) == true, "\(found.text)")
        let status = try groupstore("status", environment: second.environment)
        #expect(status.output.contains(left.string), "\(status.output)")
        #expect(try groupstore("status", "--check", environment: second.environment).status == 0)
        try run("rm", ["-r", Word(left)])
        #expect(try row(second, hasLeft: false).string("detail") == nil)
        #expect(try second.stop().status == 0)
    }

    @Test func aTakenPlaceIsRefusedUntilItIsFree() throws {
        let places = try Places()
        let app = places.legacy.appending("app")
        try makeApp(app)
        try write("precious", to: places.group.appending("moved"))
        let agent = try agent(places)
        let row = try agent.appRow { $0 == "conflict" }
        #expect(row.string("code") == "destination_taken" && row.integer("exit") == 73, "\(row.text)")
        #expect(row.string("detail")?.contains("mv ") == true)
        let status = try groupstore("status", "--check", environment: agent.environment)
        #expect(status.status == 73 && status.output.contains("exists already"), "\(status.output)")
        #expect(try !isLink(app))
        try run("mv", [Word(places.group.appending("moved")), Word(places.group.appending("kept"))])
        try expectMoved(places, agent)
        #expect(try agent.stop().status == 0)
    }

    /// The directory becomes another group's, whose store is followed there.
    @Test func aStoreInTheNewPlaceCanBeAGroups() throws {
        let places = try Places()
        let app = places.legacy.appending("app")
        let inner = """
              - id: group.com.example.inner
                directory: \(places.group)/moved
                stores: [{ name: Notes.sqlite }]
            """
        let agent = try agent(places, groups: inner)
        let connection = try agent.connect()
        try connection.send(["id": 1, "op": "subscribe", "store": "group.com.example.inner/Notes.sqlite"])
        try connection.next { $0["id"] == .integer(1) }
        try makeApp(places.scratch("made"))
        try run("mv", [Word(places.scratch("made")), Word(app)])
        try expectMoved(places, agent)
        try connection.next("reset")
        try sqlite(app.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('milk')")
        try connection.next("change")
        #expect(try agent.stop().status == 0)
    }

    @Test func changesPathsAndFollowsARecipe() throws {
        let places = try Places()
        let app = places.legacy.appending("app")
        try makeApp(app)
        try sqlite(app.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('\(app)/sub/file')")
        let recipe = places.scratch("notes.yaml")
        try write("{recipe: 1, name: notes, about: Notes, stores: [Notes.sqlite], leave: [sub/]}", to: recipe)
        let agent = try agent(places, "recipe: \(recipe), rewrite: true")
        _ = try agent.appRow { $0 == "moved" }
        let moved = places.group.appending("moved")
        let path = try sqlite(moved.appending("Notes.sqlite"), "SELECT text FROM note WHERE text LIKE '/%'")
        #expect(path == "\(moved)/sub/file\n", "\(path)")
        #expect(FileStatus(following: moved.pushing("sub/file")) == nil)
        #expect(try agent.stop().status == 0)
    }

    /// A reload with a mistake names it, and what was configured stays. One without brings a new app.
    @Test func isReloadedWithTheConfiguration() throws {
        let places = try Places()
        let (app, config) = (places.legacy.appending("app"), places.scratch("config.yaml"))
        try makeApp(app)
        let group = "groups: [{ id: \(AgentProcess.group), directory: \(places.group)"
        try write("\(group) }]", to: config)
        let agent = try AgentProcess(["--config", Word(config)], socket: places.scratch("agent.sock"))
        try write("\(group), apps: [{ app: \(app), destinatio: moved }] }]", to: config)
        let checked = try groupstore("agent", "--check", "--config", Word(config))
        #expect(checked.status == 78 && checked.errors.contains("unknown key destinatio"), "\(checked.errors)")
        agent.process.signal(SIGHUP)
        try agent.process.line(.errors) { $0.contains("unknown key destinatio") }
        #expect(try !isLink(app))
        _ = try configure(places)
        let valid = try groupstore("agent", "--check", "--config", Word(config))
        #expect(valid.output.contains("app \(app) to \(places.group)/moved"), "\(valid.output)")
        agent.process.signal(SIGHUP)
        try expectMoved(places, agent)
        #expect(try agent.stop().status == 0)
    }
}
