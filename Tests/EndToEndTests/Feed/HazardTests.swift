import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// A store whose log was removed under a program, through an agent and without one.
@Suite(.ownThreads) struct HazardTests {
    @Test func aRemovedLogIsReportedEverywhereUntilItsProgramEnds() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        let shell = try sqliteShell(store)
        try shell.execute("INSERT INTO note VALUES ('one')")
        let agent = try AgentProcess(places, legacy: [])
        let check = { try groupstore("status", "--check", environment: agent.environment) }
        #expect(unlink(store.string + "-wal") == 0 && unlink(store.string + "-shm") == 0)
        #expect(try check().status == 65, "nobody follows the store")
        let subscriber = try agent.subscribe("Notes.sqlite")
        let event = try subscriber.next("hazard")
        #expect(event.string("code") == "orphaned_log" && event.integer("pid") == Int64(shell.pid), "\(event.text)")
        let hint = "groupstore rescue \(store.string)"
        #expect(event.string("hint")?.contains(hint) == true, "\(event.text)")
        #expect(event.string("hint")?.contains("/proc/\(shell.pid)/fd/") == true, "\(event.text)")
        #expect(try agent.subscribe("Notes.sqlite").next("hazard").string("code") == "orphaned_log")
        try shell.execute("INSERT INTO note VALUES ('two')")
        let commit = try subscriber.next("change")
        #expect(commit.integer("branch") == Int64(shell.pid), "\(commit.text)")

        let link = places.scratch("link.sqlite")
        try run("ln", ["-s", Word(store), Word(link)])
        for command: [Word] in [
            ["status", "--check"], ["inspect", Word(store)], ["doctor", Word(store)], ["doctor", Word(link)],
        ] {
            let done = try groupstore(command[0], options: Array(command.dropFirst()), environment: agent.environment)
            #expect(done.status == 65, "\(command): \(done.output)\(done.errors)")
            #expect((done.output + done.errors).contains("pid \(shell.pid)"), "\(done.output)\(done.errors)")
            #expect((done.output + done.errors).contains(hint), "\(done.output)\(done.errors)")
        }
        shell.closeInput()
        try shell.wait()
        try subscriber.next("hazard_over")
        // A program that closes a store locks it for a moment, and the agent can't read it then.
        let deadline = Deadline(after: .ample)
        var checked = try check()
        while checked.status == 74, let left = deadline.remaining, left > .zero { checked = try check() }
        #expect(checked.status == 0, "\(checked.output)")
    }

    /// The agent lets go of the store while it is replaced, and follows the result.
    @Test func rescuesAStoreThatAnAgentFollows() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        let holder = try SQLiteHolder(store)
        try holder.run("c.execute(\"INSERT INTO t VALUES (1, 'base')\")")
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(unlink(store.string + "-wal") == 0 && unlink(store.string + "-shm") == 0)
        try holder.run("c.execute(\"INSERT INTO t VALUES (2, 'lost')\")")
        try subscriber.next("hazard")
        let done = try groupstore("rescue", options: [Word(store)], environment: agent.environment)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try sqlite(store, "SELECT id FROM t ORDER BY id") == "1\n2\n")
        try subscriber.next("reset")
        let other = try agent.subscribe("Notes.sqlite")
        try sqlite(store, "INSERT INTO t VALUES (3, 'new')")
        try other.next("change")
        try holder.end()
    }

    @Test func copiesABranchBeforeItsProgramIsKilled() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        let holder = try SQLiteHolder(store)
        try holder.run("c.execute(\"INSERT INTO t VALUES (1, 'lost')\")")
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(unlink(store.string + "-wal") == 0 && unlink(store.string + "-shm") == 0)
        try subscriber.next("hazard")
        let saved = try SavedBranches(Relocation.container(at: places.group))
        let deadline = Deadline(after: .ample)
        while (try? saved.copies())?.isEmpty ?? true, !deadline.hasPassed { pause(.milliseconds(10)) }
        try holder.kill()
        let done = try groupstore("rescue", options: [Word(store)], environment: agent.environment)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try sqlite(store, "SELECT id FROM t") == "1\n")
        #expect(try saved.copies().isEmpty)
    }

    /// The agent's log promises no join, and what is kept is named once the program has ended, but is no hazard.
    @Test func namesWhatIsKeptOfADamagedBranch() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        let holder = try SQLiteHolder(store)
        try holder.run("c.execute(\"INSERT INTO t VALUES (1, 'lost')\")")
        try holder.run("log = os.open(path + '-wal', os.O_RDWR); os.pwrite(log, b'garbled!', 16)")
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        #expect(unlink(store.string + "-wal") == 0 && unlink(store.string + "-shm") == 0)
        try subscriber.next("hazard")
        try agent.process.line(.errors) { line in
            #expect(!line.contains("to join it"), "\(line)")
            return line.contains("are kept in \(places.group)/.groupstore/rescue/")
        }
        try holder.kill()
        try subscriber.next("hazard_over")
        for command: [Word] in [["doctor", Word(store)], ["status"], ["status", Word(store)]] {
            let done = try groupstore(command[0], options: Array(command.dropFirst()), environment: agent.environment)
            #expect(done.status == 0, "\(command): \(done.output)\(done.errors)")
            #expect(done.output.contains("are kept in"), "\(command): \(done.output)")
        }
    }
}
