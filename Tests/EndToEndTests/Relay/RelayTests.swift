import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A home, a broker and a replica on one machine, and harm done to each of them.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct RelayTests {
    @Test(arguments: NATSServer.programs)
    func carriesEachChangeWithItsHistory(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        let follower = try hosts.follow()
        #expect(try follower.event("reset").string("reason") == "first")
        #expect(try hosts.areEqual(follower))
        try hosts.write("INSERT INTO Note VALUES (1, 'it''s', NULL); UPDATE Note SET title = 'changed' WHERE id = 0;")
        #expect(try hosts.areEqual(follower))
        try hosts.write("DELETE FROM Note WHERE id = 0; REPLACE INTO Note VALUES (1, NULL, zeroblob(2000000));")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().outcome == "stopped")
    }

    @Test(arguments: NATSServer.programs)
    func catchesUpAfterEachSideWasKilled(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        var publisher = try hosts.publish()
        var follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        for round in 1...3 {
            try follower.process.killAtOnce()
            try hosts.write("INSERT INTO Note (title) VALUES ('while the follower is away \(round)')")
            try publisher.process.killAtOnce()
            try hosts.write("INSERT INTO Note (title) VALUES ('while both are away \(round)')")
            follower = try hosts.follow()
            publisher = try hosts.publish()
            #expect(try hosts.areEqual(follower))
        }
        let events = try follower.stop().objects
        #expect(events.allSatisfy { $0.type != "reset" }, "no snapshot is needed")
    }

    @Test(arguments: NATSServer.programs)
    func aBrokerThatIsAwayCostsOnlyTime(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        try hosts.server.kill()
        try publisher.event("error")
        for number in 1...20 { try hosts.write("INSERT INTO Note (title) VALUES ('offline \(number)')") }
        try hosts.server.start()
        #expect(try hosts.areEqual(follower))
        try hosts.server.suspend()
        try hosts.write("INSERT INTO Note (title) VALUES ('while it is stopped')")
        hosts.server.resume()
        #expect(try hosts.areEqual(follower))
    }

    @Test(arguments: NATSServer.programs)
    func aBrokerThatIsSetBackGetsTheLostChangesAgain(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        try hosts.write("INSERT INTO Note (title) VALUES ('kept')")
        #expect(try hosts.areEqual(follower))
        try hosts.server.stop()
        try hosts.server.saveMessages()
        try hosts.server.start()
        try hosts.write("INSERT INTO Note (title) VALUES ('lost by the broker')")
        #expect(try hosts.areEqual(follower))
        try hosts.server.stop()
        try hosts.server.restoreMessages()
        try hosts.write("INSERT INTO Note (title) VALUES ('afterwards')")
        try hosts.server.start()
        #expect(try hosts.areEqual(follower))
        withExtendedLifetime(publisher) {}
    }

    @Test(.soak, arguments: NATSServer.programs)
    func takesNoForgedMessage(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        let token = try hosts.write("INSERT INTO Note (title) VALUES ('true')")
        #expect(try hosts.areEqual(follower))
        let headers =
            "Gs-From: \(token)\r\nGs-Upto: \(token)\r\nGs-Part: 1 last\r\nGs-Schema: x\r\nGs-Prev: -\r\nGs-Mac: 00"
        try hosts.publishForgery(headers, #"{"type":"batch"}"#)
        try follower.event("error") { $0.string("message")?.contains("left out") == true }
        try hosts.write("INSERT INTO Note (title) VALUES ('after the forgery')")
        #expect(try hosts.areEqual(follower))
        #expect(try publisher.stop().status == 0)
    }

    @Test(arguments: NATSServer.programs)
    func aFollowerWithAnotherKeyTakesNothing(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        let other = hosts.path("other-key")
        let file = try Directory(other.removingLastComponent()).open(
            "other-key", flags: O_WRONLY | O_CREAT, mode: 0o600)
        try file.write(Array("another key of the same length!!".utf8), at: 0)
        let follower = try hosts.follow(key: other)
        try follower.event("error") { $0.string("code") == "malformed_snapshot" }
        #expect(try Directory(hosts.group).status("Notes.sqlite") == nil)
    }

    @Test(arguments: NATSServer.programs)
    func twoRelaysOfOneStorePublishEachChangeOnce(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let first = try hosts.publish()
        let second = try hosts.publish(options: ["--snapshot-directory", Word(hosts.path("second"))])
        try second.event("caught_up")
        let follower = try hosts.follow()
        for number in 1...20 { try hosts.write("INSERT INTO Note (title) VALUES ('\(number)')") }
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().objects.filter { $0.type == "reset" }.count <= 1)
        for publisher in [first, second] {
            let stopped = try publisher.stop()
            #expect(stopped.status == 0, "\(stopped.status): \(stopped.errors)")
        }
    }

    @Test(arguments: NATSServer.programs)
    func aHomeThatWasRestoredFromABackupStops(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let backup = hosts.path("backup.sqlite")
        try sqlite(hosts.home, "VACUUM INTO '\(backup)'")
        var publisher = try hosts.publish()
        let follower = try hosts.follow()
        try hosts.write("INSERT INTO Note (title) VALUES ('not in the backup')")
        #expect(try hosts.areEqual(follower))
        #expect(try publisher.stop().status == 0)
        try hosts.write("INSERT INTO Note (title) VALUES ('another line')", to: backup)
        let stopped = try hosts.publish(backup).process.wait()
        #expect(stopped.status == 73, "\(stopped.errors)")
        #expect(stopped.outcome == "superseded")
        // With the token that it names, the restored home goes on, and the follower takes its state.
        let last = try hosts.token(hosts.home)
        #expect(stopped.errors.contains("--take-over \(last)"), "\(stopped.errors)")
        publisher = try hosts.publish(backup, options: ["--take-over", Word(last)])
        try follower.event("reset")
        try follower.event("caught_up")
        #expect(try hosts.content(backup) == hosts.content(hosts.replica))
    }

    @Test(arguments: NATSServer.programs)
    func aReplicaThatAnotherProgramWroteToStops(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        try sqlite(hosts.replica, "INSERT INTO Note (title) VALUES ('by hand')")
        try hosts.write("INSERT INTO Note (title) VALUES ('at home')")
        let stopped = try follower.process.wait()
        #expect(stopped.status == 73, "\(stopped.errors)")
        #expect(stopped.outcome == "diverged")
        #expect(stopped.errors.contains("Note"))
        #expect(try sqlite(hosts.replica, "SELECT title FROM Note WHERE title = 'by hand'") == "by hand\n")
        #expect(try publisher.stop().status == 0)
    }

    @Test(arguments: NATSServer.programs)
    func aPromotedReplicaSupersedesTheOldHome(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let old = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        let last = try hosts.token(hosts.home)
        let promoted = try run(Programs.relay, ["promote", Word(hosts.replica), "--json"])
        #expect(promoted.status == 0, "\(promoted.errors)")
        try sqlite(hosts.replica, "INSERT INTO Note (title) VALUES ('written on the new home')")
        let new = try hosts.publish(hosts.replica, options: ["--take-over", Word(last)])
        try new.event("caught_up")
        try hosts.write("INSERT INTO Note (title) VALUES ('written on the old home')")
        let stopped = try old.process.wait()
        #expect(stopped.status == 73, "\(stopped.errors)")
        #expect(stopped.outcome == "superseded")
        #expect(try new.stop().status == 0)
    }

    /// It has nothing to publish, so that no message of its own is refused.
    @Test(arguments: NATSServer.programs)
    func anIdleOldHomeStopsWhenAFollowerAsksForASnapshot(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let old = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        let last = try hosts.token(hosts.home)
        #expect(try run(Programs.relay, ["promote", Word(hosts.replica), "--json"]).status == 0)
        let new = try hosts.publish(hosts.replica, options: ["--take-over", Word(last)])
        try new.event("caught_up")
        let elsewhere = hosts.path("elsewhere")
        try Directory(elsewhere.removingLastComponent()).makeDirectory("elsewhere", mode: 0o700)
        let another = try hosts.follow(in: elsewhere)
        let reset = try another.event("reset")
        let history = try hosts.token(hosts.replica).split(separator: ".")[1]
        #expect(reset.string("upto")?.hasPrefix("h1.\(history).") == true)
        #expect(try another.stop().status == 0)
        let stopped = try old.process.wait()
        #expect(stopped.status == 73 && stopped.outcome == "superseded", "\(stopped.errors)")
        #expect(try new.stop().status == 0)
    }

    @Test(arguments: NATSServer.programs)
    func whatFollowersLackIsKeptInTheHistory(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        let deadline = Deadline(after: .ample)
        while try !sqlite(hosts.home, "SELECT name FROM GS_SUBSCRIBER").contains("relay:Notes:other") {
            guard !deadline.hasPassed else { throw Unexpected("the follower isn't a subscriber of the home") }
            pause(.milliseconds(100))
        }
        #expect(try follower.stop().status == 0)
        try hosts.write("INSERT INTO Note (title) VALUES ('lacking')")
        let purged = try groupstore("history", "purge", Word(hosts.home), "--acknowledged")
        #expect(purged.status == 0, "\(purged.errors)")
        let again = try hosts.follow()
        #expect(try hosts.areEqual(again))
        #expect(try again.stop().objects.allSatisfy { $0.type != "reset" })
        #expect(try publisher.stop().status == 0)
    }

    private static let hasClient = (try? run("python3", ["-c", "import nats"], environment: pythonPath))?.status == 0

    /// The environment in which Python finds nats-py, in `$GROUPSTORE_NATS_PY`.
    private static let pythonPath: [String: String] = [
        "PYTHONPATH": getenv("GROUPSTORE_NATS_PY").map { String(cString: $0) } ?? "", "PYTHONDONTWRITEBYTECODE": "1",
    ]

    /// The client knows the documents alone.
    @Test(.enabled(if: hasClient, "there is no nats-py"), arguments: NATSServer.programs)
    func anIndependentClientRebuildsTheStore(program: FilePath) throws {
        let hosts = try RelayHosts(program)
        try sqlite(
            hosts.home,
            """
            CREATE TABLE Tag (name TEXT PRIMARY KEY, weight REAL) WITHOUT ROWID;
            CREATE TABLE Plain (x);
            """)
        let enabled = try groupstore("history", "enable", Word(hosts.home))
        #expect(enabled.status == 0, "\(enabled.errors)")
        let publisher = try hosts.publish()
        // The home keeps the snapshot for a minute: the client then has batches to apply.
        let follower = try hosts.follow()
        try follower.event("caught_up")
        for number in 1...10 {
            try hosts.write(
                """
                INSERT INTO Note (title, body) VALUES ('note \(number)', randomblob(1000));
                REPLACE INTO Tag VALUES ('tag \(number % 3)', \(number).0), ('other \(number)', 1e300);
                INSERT INTO Plain VALUES (9007199254740993), (CAST(x'ff41' AS TEXT)), (NULL), (-0.0), (1e999), (x'');
                DELETE FROM Tag WHERE name = 'other \(number - 2)';
                """)
        }
        let token = try hosts.write("PRAGMA user_version = 7; INSERT INTO Note (body) VALUES (randomblob(2000000))")
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Adversary/relay/rebuild.py"), "--server", Word(hosts.server.url), "--stream",
                "Notes", "--key", Word(hosts.key), "--home", Word(hosts.home), "--upto", Word(token),
                Word(hosts.path("copy.sqlite")),
            ], environment: Self.pythonPath)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try publisher.stop().status == 0)
    }

    @Test func statusShowsWhatRunsAndHowFarItIs() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        let status = { () throws -> [JSONObject] in
            try run(
                Programs.relay, ["status", "--json"], environment: ["XDG_RUNTIME_DIR": hosts.runtime.string]
            ).objects.filter { $0.type == "relay" }
        }
        let deadline = Deadline(after: .ample)
        while try status().filter({ $0.string("state") == "caught_up" && $0.integer("lag_changes") == 0 }).count < 2 {
            guard !deadline.hasPassed else { throw Unexpected("the status isn't caught_up: \(try status())") }
            pause(.milliseconds(100))
        }
        let own = try groupstore("status", options: ["--json"], environment: ["XDG_RUNTIME_DIR": hosts.runtime.string])
        #expect(own.objects.filter { $0.type == "relay" }.count == 2, "\(own.output)")
        #expect(try follower.stop().status == 0)
        #expect(try status().count == 1)
        #expect(try publisher.stop().status == 0)
        #expect(try status().isEmpty)
    }

    @Test func acceptsNoPasswordOnItsCommandLine() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let done = try run(
            Programs.relay,
            ["publish", Word(hosts.home), "--server", "nats://user:secret@127.0.0.1", "--stream", "Notes"])
        #expect(done.status == 64)
        #expect(!done.errors.contains("secret"))
    }
}
