import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A program that doesn't know groupstore has the legacy store open.
@Suite(.ownThreads) struct OpenStoreTests {
    @Test(arguments: ["WAL", "DELETE"])
    func theCommandGivesUpIfAShellStaysOpen(_ mode: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let shell = try sqliteShell(store.path)
        try shell.execute("PRAGMA journal_mode = \(mode); INSERT INTO note (text) VALUES ('one more')")

        let refused = try groupstore("relocate", Word(store.path), Word(places.group), "--deadline", "0.5", "--json")
        #expect(refused.status == 75, "\(refused.errors)")
        #expect(refused.outcome == "busy")
        let holder = try #require(refused.summary.objects("holders").first, "\(refused.output)")
        #expect(holder.integer("pid") == Int64(shell.pid))
        #expect(holder.string("program") == "sqlite3")
        #expect(try Directory(places.group).names().filter { $0 != ".groupstore" }.isEmpty)

        #expect(try groupstore("inspect", Word(store.path)).output.contains("sqlite3 (pid \(shell.pid))"))

        // The shell continues undisturbed, and its later commits are relocated too.
        try shell.execute("INSERT INTO note (text) VALUES ('the last')")
        shell.closeInput()
        try shell.wait()
        #expect(try groupstore("inspect", Word(store.path)).output.contains("no process visible from here"))
        let done = try groupstore("relocate", Word(store.path), Word(places.group), "--json")
        #expect(done.outcome == "relocated", "\(done.output)")
        let published = places.group.appending("Notes.sqlite")
        #expect(try noteCount(published) == 12)
        #expect(try sqlite(published, "PRAGMA journal_mode").lowercased() == "\(mode.lowercased())\n")
    }

    /// While a program has the legacy store open, the group's empty store stays in its place, and no record is made.
    @Test(arguments: ["WAL", "DELETE"])
    func leavesAnEmptyStoreWhileTheOtherIsOpen(_ mode: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let empty = places.group.appending("Notes.sqlite")
        try sqlite(empty, "PRAGMA journal_mode = \(mode); CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        let shell = try sqliteShell(store.path)

        let refused = try groupstore("relocate", Word(store.path), Word(places.group), "--deadline", "0.3", "--json")
        #expect(refused.status == 75, "\(refused.output)")
        #expect(try noteCount(empty) == 0)
        #expect(try sqlite(empty, "PRAGMA journal_mode").lowercased() == "\(mode.lowercased())\n")
        #expect(try Directory(places.group).status(".groupstore") == nil)

        shell.closeInput()
        try shell.wait()
        let done = try groupstore("relocate", Word(store.path), Word(places.group), "--json")
        #expect(done.outcome == "relocated", "\(done.output)")
        #expect(try noteCount(empty) == 10)
    }

    /// An app that has opened the group's still empty store is about to write to that file, so the command doesn't
    /// displace it.
    @Test func doesNotDisplaceAnOpenEmptyFile() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let empty = places.group.appending("Notes.sqlite")
        try write("", to: empty)
        let shell = try sqliteShell(empty)
        let refused = try groupstore("relocate", Word(store.path), Word(places.group), "--deadline", "0.3", "--json")
        #expect(refused.status == 75, "\(refused.output)")
        try shell.execute("CREATE TABLE note (text); INSERT INTO note VALUES ('new')")
        shell.closeInput()
        try shell.wait()
        #expect(try noteCount(empty) == 1)
        #expect(try noteCount(store.path) == 10)
        #expect(try groupstore("relocate", Word(store.path), Word(places.group)).status == 73)
    }

    @Test(arguments: ["WAL", "DELETE"])
    func theCommandWaitsForAnOpenShell(_ mode: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let shell = try sqliteShell(store.path)
        try shell.execute("PRAGMA journal_mode = \(mode); SELECT count(*) FROM note")

        let command = try RunningProcess(
            Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--deadline", "60", "--json"])
        try command.line { JSONObject(line: $0)?.type == "waiting" }
        try shell.execute("INSERT INTO note (text) VALUES ('the last')")
        shell.closeInput()
        let done = try command.wait()
        #expect(done.status == 0)
        #expect(done.outcome == "relocated", "\(done.output)")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 11)
    }

    @Test(arguments: ["WAL", "DELETE"])
    func theAgentRelocatesOnceTheShellHasClosed(_ mode: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let shell = try sqliteShell(store.path)
        try shell.execute("PRAGMA journal_mode = \(mode); SELECT count(*) FROM note")

        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let published = places.group.appending("Notes.sqlite")
        for number in 1...3 {
            try shell.execute("INSERT INTO note (text) VALUES ('held \(number)')")
            // The answer to a later question shows that the agent has had its turn.
            try subscriber.send(["id": .integer(Int64(number + 1)), "op": "status"])
            try subscriber.next { $0["id"] == .integer(Int64(number + 1)) && $0["ok"] != nil }
            #expect(try !Directory(places.group).names().contains("Notes.sqlite"))
        }
        try shell.execute("INSERT INTO note (text) VALUES ('the last')")
        shell.closeInput()
        try subscriber.next("relocated")
        #expect(try sqlite(published, "SELECT text FROM note ORDER BY id DESC LIMIT 1") == "the last\n")
        #expect(try noteCount(published) == 14)
        try shell.wait()
    }

    /// SQLite writes a new store's journal to disk before the store's first page.
    @Test func acceptsAStoreInCreation() throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        let shell = try RunningProcess("sqlite3", ["-batch", "-init", "/dev/null", Word(store)])
        try shell.execute("BEGIN IMMEDIATE")
        let journal = places.legacy.appending("Notes.sqlite-journal")
        try run("sh", ["-c", Word("echo 'what its first page was' > '\(journal)'")])

        let busy = try groupstore("relocate", Word(store), Word(places.group), "--deadline", "0.3", "--json")
        #expect(busy.status == 75 && busy.outcome == "busy", "\(busy.output)")

        try shell.killAtOnce()
        let half = try groupstore("relocate", Word(store), Word(places.group), "--json")
        #expect(half.status == 65, "\(half.output)")
        #expect(half.summary.object("error")?.string("code") == "half_a_store")
    }
}
