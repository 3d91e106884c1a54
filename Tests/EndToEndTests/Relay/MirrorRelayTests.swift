import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A home that keeps no history, which the relay publishes from its pages.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct MirrorRelayTests {
    private func rows(_ store: FilePath) throws -> String {
        try sqlite(store, "SELECT id, quote(title), quote(body) FROM Note ORDER BY id")
    }

    /// Waits until the follower has the home's rows.
    private func expectEqual(_ hosts: RelayHosts, _ follower: RelayProcess) throws {
        let wanted = try rows(hosts.home)
        while try rows(hosts.replica) != wanted { try follower.event("caught_up") }
    }

    @Test(arguments: NATSServer.programs.suffix(1))
    func publishesAStoreThatKeepsNoHistory(program: FilePath) throws {
        let hosts = try RelayHosts(program, keepsHistory: false)
        let schema = try sqlite(hosts.home, "SELECT group_concat(name) FROM sqlite_schema")
        var publisher = try hosts.publish()
        #expect(try publisher.event("mirror").string("path")?.contains("/Notes.mirror/") == true)
        let follower = try hosts.follow()
        try follower.event("caught_up")
        try sqlite(hosts.home, "INSERT INTO Note VALUES (1, 'it''s', NULL); UPDATE Note SET title = 'b' WHERE id = 0;")
        try expectEqual(hosts, follower)
        try publisher.process.killAtOnce()
        try sqlite(
            hosts.home, "DELETE FROM Note WHERE id = 0; INSERT INTO Note VALUES (2, NULL, zeroblob(300000)); VACUUM")
        publisher = try hosts.publish()
        try expectEqual(hosts, follower)
        #expect(try sqlite(hosts.home, "SELECT group_concat(name) FROM sqlite_schema") == schema)
        let events = try follower.stop().objects
        #expect(events.filter { $0.type == "reset" }.map { $0.string("reason") } == ["first"])
        #expect(try publisher.stop().status == 0)
    }

    @Test(arguments: NATSServer.programs.suffix(1))
    func followersTakeASnapshotAfterAChangeOfTheSchema(program: FilePath) throws {
        let hosts = try RelayHosts(program, keepsHistory: false)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        try follower.event("caught_up")
        try sqlite(hosts.home, "ALTER TABLE Note ADD COLUMN more; INSERT INTO Note VALUES (1, 'new', NULL, 'more')")
        try follower.event("reset")
        try follower.event("caught_up")
        #expect(try sqlite(hosts.replica, "SELECT more FROM Note WHERE id = 1") == "more\n")
        try sqlite(hosts.home, "INSERT INTO Note VALUES (2, 'after', NULL, 'that')")
        try expectEqual(hosts, follower)
        let events = try publisher.stop().objects
        #expect(events.allSatisfy { $0.type != "error" }, "nothing is wrong: \(events)")
        #expect(events.filter { $0.type == "reset" }.map { $0.string("reason") } == ["schema"])
    }

    @Test(arguments: NATSServer.programs.suffix(1))
    func followsAHomeThatIsRestored(program: FilePath) throws {
        let hosts = try RelayHosts(program, keepsHistory: false)
        let backup = hosts.path("backup.sqlite")
        try sqlite(hosts.home, "VACUUM INTO '\(backup)'")
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        try follower.event("caught_up")
        try sqlite(hosts.home, "INSERT INTO Note (title) VALUES ('not in the backup')")
        try expectEqual(hosts, follower)
        try sqlite(hosts.home, "PRAGMA journal_mode = DELETE")
        #expect(try run("cp", [Word(backup), Word(hosts.home)]).status == 0)
        try expectEqual(hosts, follower)
        #expect(try publisher.stop().status == 0)
    }

    @Test(arguments: NATSServer.programs.suffix(1))
    func publishesAStoreWhoseHistoryBeginsAndEnds(program: FilePath) throws {
        let hosts = try RelayHosts(program, keepsHistory: false)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        try follower.event("caught_up")
        for (number, command) in ["enable", "disable"].enumerated() {
            #expect(try groupstore("history", Word(command), Word(hosts.home)).status == 0)
            try sqlite(hosts.home, "INSERT INTO Note (title) VALUES ('\(number)')")
            #expect(try publisher.event("reset").string("reason") == "history")
            try expectEqual(hosts, follower)
        }
        #expect(try publisher.stop().status == 0)
    }

    /// While the home is absent, nothing is known of its history, and what comes to its path may be another store, even
    /// one whose file has the same inode number.
    @Test(arguments: NATSServer.programs.suffix(1))
    func publishesNoOtherStoreThatComesToTheHomesPath(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let follower = try hosts.follow()
        func shell(_ script: Word) throws {
            let done = try run("sh", ["-e", "-c", script, "sh", Word(hosts.home), Word(hosts.path("away"))])
            #expect(done.status == 0, "\(done.errors)")
        }
        let backup = hosts.path("backup.sqlite")
        let (plain, other) = (hosts.path("plain.sqlite"), hosts.path("other.sqlite"))
        try sqlite(hosts.home, "VACUUM INTO '\(backup)'")
        try sqlite(backup, "INSERT INTO Note (title) VALUES ('in the backup alone')")
        for store in [plain, other] { try sqlite(store, "CREATE TABLE Other (a); INSERT INTO Other VALUES (1)") }
        #expect(try groupstore("history", "enable", Word(other)).status == 0)
        for store in [backup, plain, other] {
            let publisher = try hosts.publish()
            try hosts.write("INSERT INTO Note (title) VALUES ('not in \(store.lastComponent?.string ?? "")')")
            #expect(try hosts.areEqual(follower))
            // The publisher may remove files beside it meanwhile.
            try shell("mkdir \"$2\"; for f in \"$1\"*; do cp \"$f\" \"$2\" || [ ! -e \"$f\" ]; done; rm -f \"$1\"*")
            try publisher.event("error") { $0.string("code") == "no_such_store" }
            #expect(try run("cp", [Word(store), Word(hosts.home)]).status == 0)
            let stopped = try publisher.process.wait()
            #expect(stopped.status == 73 && stopped.outcome == "superseded", "\(store): \(stopped.errors)")
            #expect(store == plain || stopped.objects.allSatisfy { $0.type != "mirror" })
            if store == plain {
                let restarted = try hosts.publish().process.wait()
                #expect(restarted.status == 73 && restarted.outcome == "superseded", "\(restarted.errors)")
            }
            try shell("rm -f \"$1\"* \"$2\"/*-shm; cp \"$2\"/* \"${1%/*}\"; rm -r \"$2\"")
        }
        let publisher = try hosts.publish()
        try hosts.write("INSERT INTO Note (title) VALUES ('the home is back')")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().objects.filter { $0.type == "reset" }.count == 1)
        #expect(try publisher.stop().status == 0)
    }

    /// The history of another store, in the home's own file, isn't one that was disabled and enabled.
    @Test(arguments: [".restore", "cat"])
    func publishesNoOtherStoreThatIsWrittenOverTheHome(tool: String) throws {
        let hosts = try RelayHosts(try #require(NATSServer.programs.last))
        try sqlite(hosts.home, "PRAGMA journal_mode = DELETE")
        let other = hosts.path("other.sqlite")
        let columns = (0..<20).map { "ALTER TABLE Note ADD COLUMN c\($0);" }.joined()
        try sqlite(other, "CREATE TABLE Note (id INTEGER PRIMARY KEY, title TEXT, body BLOB); \(columns)")
        #expect(try groupstore("history", "enable", Word(other)).status == 0)
        try sqlite(other, "INSERT INTO Note (title) VALUES ('of the other store')")
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        let before = try rows(hosts.replica)
        // A copy that is read halfway is damage.
        try suspend(publisher.process, whichPublishes: hosts.home)
        if tool == "cat" {
            let done = try run("sh", ["-c", "cat \"$1\" >\"$2\"", "sh", Word(other), Word(hosts.home)])
            #expect(done.status == 0, "\(done.errors)")
        } else {
            try sqlite(hosts.home, ".restore '\(other)'")
        }
        publisher.process.signal(SIGCONT)
        let stopped = try publisher.process.wait()
        #expect(stopped.status == 73 && stopped.outcome == "superseded", "\(stopped.errors)")
        #expect(try rows(hosts.replica) == before)
        #expect(try follower.stop().objects.filter { $0.type == "reset" }.count == 1)
    }

    /// Suspends the publisher while it has no lock on the home: a command that waits for one ends with 75.
    private func suspend(_ publisher: RunningProcess, whichPublishes home: FilePath) throws {
        let deadline = Deadline(after: .ample)
        while true {
            try publisher.suspend()
            let locks = try #require(RecordLocks())
            let files = ["", "-wal", "-shm"].compactMap { FileStatus(following: FilePath("\(home)\($0)"))?.identity }
            if !files.contains(where: { locks.has(publisher.pid, on: $0) }) { return }
            guard !deadline.hasPassed else { throw Unexpected("the publisher has a lock whenever it is suspended") }
            publisher.signal(SIGCONT)
            pause(.milliseconds(1))
        }
    }

    /// It sees the new history only, as if one had followed the other at once.
    @Test(.soak, arguments: NATSServer.programs.suffix(1))
    func publishesAHistoryThatIsDisabledAndEnabled(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        try follower.event("caught_up")
        try suspend(publisher.process, whichPublishes: hosts.home)
        for command in ["disable", "enable"] {
            #expect(try groupstore("history", Word(command), Word(hosts.home)).status == 0)
        }
        publisher.process.signal(SIGCONT)
        try sqlite(hosts.home, "INSERT INTO Note (title) VALUES ('new')")
        #expect(try publisher.event("reset").string("reason") == "history")
        try expectEqual(hosts, follower)
        #expect(try publisher.stop().status == 0)
    }

    @Test func refusesWhatNoMirrorCanCarry() throws {
        let program = try #require(NATSServer.programs.last)
        let hosts = try RelayHosts(program, keepsHistory: false)
        try sqlite(hosts.home, "CREATE TABLE ATRANSACTION (a); CREATE TABLE ACHANGE (a)")
        let stopped = try hosts.publish().process.wait()
        #expect(stopped.status == 65, "\(stopped.errors)")
    }
}
