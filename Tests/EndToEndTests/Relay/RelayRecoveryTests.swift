import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A relay and a follower that go on once the cause of an error is gone.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct RelayRecoveryTests {
    private func enable(_ store: FilePath) throws {
        let done = try groupstore("history", "enable", Word(store))
        try #require(done.status == 0, "\(done.errors)")
    }

    private func states(_ hosts: RelayHosts) throws -> [String] {
        try run(Programs.relay, ["status", "--json"], environment: ["XDG_RUNTIME_DIR": hosts.runtime.string])
            .objects.filter { $0.type == "relay" }.compactMap { $0.string("state") }
    }

    /// Rows of a table without a key are known by numbers that a change of the schema may alter.
    @Test func aChangeOfTheSchemaIsPublishedOnceTheHistoryIsEnabledAgain() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        try sqlite(hosts.home, "CREATE TABLE Plain (x)")
        try enable(hosts.home)
        var publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        for column in ["first", "second"] {
            try sqlite(hosts.home, "ALTER TABLE Plain ADD COLUMN \(column)")
            let error = try publisher.event("error") { $0.string("code") == "outdated_history" }
            #expect(error.string("hint") == "groupstore history enable \(hosts.home)")
            #expect(try states(hosts).contains("outdated_history"))
            if column == "second" {
                // One that is started now waits as well.
                #expect(try publisher.stop().status == 0)
                publisher = try hosts.publish()
                try publisher.event("error") { $0.string("code") == "outdated_history" }
            }
            try enable(hosts.home)
            try hosts.write("INSERT INTO Plain (x, \(column)) VALUES ('\(column)', 'value')")
            try publisher.event("caught_up")
            #expect(try hosts.areEqual(follower))
            let query = "SELECT \(column) FROM Plain WHERE x = '\(column)'"
            #expect(try sqlite(hosts.replica, query) == "value\n")
        }
        let resets = try follower.stop().objects.filter { $0.type == "reset" }
        #expect(resets.count == 3, "\(resets)")
        #expect(try publisher.stop().status == 0)
    }

    /// VACUUM may give the rows of a table without a key other numbers.
    @Test(.soak) func aKeptSnapshotBeforeAGapIsNotTakenAgain() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        try sqlite(hosts.home, "CREATE TABLE Plain (x)")
        try enable(hosts.home)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        for round in 1...3 {
            try hosts.write("INSERT INTO Plain VALUES ('before the gap \(round)')")
            #expect(try hosts.areEqual(follower))
            try sqlite(hosts.home, "VACUUM")
            try publisher.event("error") { $0.string("code") == "outdated_history" }
            try enable(hosts.home)
            try hosts.write("INSERT INTO Plain VALUES ('after the gap \(round)')")
            #expect(try hosts.areEqual(follower))
            #expect(try sqlite(hosts.replica, "SELECT count(*) FROM Plain") == "\(2 * round)\n")
        }
        let tokens = try follower.stop().objects.filter { $0.type == "reset" }.compactMap { $0.string("upto") }
        let numbers = tokens.compactMap { $0.split(separator: ".").dropFirst(2).first.flatMap { Int($0) } }
        #expect(numbers.count == 4 && numbers == numbers.sorted() && Set(numbers).count == 4, "\(tokens)")
        #expect(try publisher.stop().status == 0)
    }

    @Test func aHomeThatIsAwayIsWaitedForOverOneConnection() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        #expect(try untilCaughtUp(hosts.publish()).status == 0)
        let follower = try hosts.follow()
        try follower.event("error") { $0.string("code") == "no_home" }
        // Its attempts go on meanwhile.
        for _ in 1...20 { #expect(try states(hosts) == ["no_home"]) }
        // Other programs take their time meanwhile.
        for number in 1...5 { try hosts.write("INSERT INTO Note (title) VALUES ('\(number)')") }
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        #expect(try hosts.areEqual(follower))
        let events = try follower.stop().objects
        #expect(events.filter { $0.type == "connected" }.count == 1)
        #expect(events.filter { $0.type == "error" }.count == 1)
        #expect(try publisher.stop().status == 0)
    }

    /// Both programs have a clock by which a wait until a time of the day lasts an hour longer.
    @Test func aClockThatIsSetBackDelaysNothing() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let clock = hosts.path("clock.so")
        try Programs.compile(["Tests/Torture/clock.c"], to: clock, options: ["-shared", "-fPIC"])
        hosts.environment = ["LD_PRELOAD": clock.string]
        #expect(try untilCaughtUp(hosts.publish()).status == 0)
        let follower = try hosts.follow()
        try follower.event("error") { $0.string("code") == "no_home" }
        let publisher = try hosts.publish()
        #expect(try hosts.areEqual(follower))
        try hosts.server.stop()
        try hosts.write("INSERT INTO Note (title) VALUES ('while the broker is away')")
        try follower.event("error")
        try hosts.server.start()
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    /// As a broker of a cluster that reaches none of the others.
    @Test func aBrokerThatAcceptsConnectionsAndIsOfNoUseIsPassedOver() throws {
        let hosts = try RelayHosts(NATSServer.programs[0], configuration: "jetstream: disabled")
        let other = try NATSServer(NATSServer.programs[0])
        let publisher = try hosts.publish(options: ["--server", Word(other.url)])
        let follower = try hosts.follow(options: ["--server", Word(other.url)])
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    private func untilCaughtUp(_ publisher: RelayProcess) throws -> FinishedProcess {
        try publisher.event("caught_up")
        return try publisher.stop()
    }

    @Test func aLongBatchGetsThroughALinkThatNeverLastsForAllOfIt() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        // The search for the position needs some of it.
        let link = try hosts.unsteadyLink(bytes: 10_000_000)
        defer { withExtendedLifetime(link.process) {} }
        let follower = try hosts.follow(server: link.url)
        #expect(try hosts.areEqual(follower))
        // A batch of 24 MB.
        try hosts.write("INSERT INTO Note (title, body) VALUES ('long', randomblob(18000000))")
        #expect(try hosts.areEqual(follower))
        let events = try follower.stop().objects
        #expect(events.filter { $0.type == "connected" }.count > 2)
        #expect(events.filter { $0.type == "reset" }.count == 1, "only the first snapshot is needed")
        #expect(try publisher.stop().status == 0)
    }

    @Test func aWriterThatNeverRestsKeepsNoFollowerWaiting() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        let script = """
            import sqlite3, sys
            store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
            store.execute("PRAGMA synchronous = OFF")
            print("begins", flush=True)
            while True:
                store.execute("INSERT INTO Note (title) VALUES ('busy')")
            """
        let writer = try RunningProcess("python3", ["-c", Word(script), Word(hosts.home)])
        try writer.line { $0 == "begins" }
        let follower = try hosts.follow()
        try follower.event("reset")
        // What it confirms is recorded, although there is always more to be published.
        while try sqlite(hosts.home, "SELECT count(*) FROM GS_SUBSCRIBER") == "0\n" { try follower.event("applied") }
        try writer.killAtOnce()
        // The event of the last change may have been skipped above.
        try hosts.write("INSERT INTO Note (title) VALUES ('last')")
        #expect(try hosts.areEqual(follower))
        #expect(try publisher.stop().status == 0)
    }

    @Test func aLoneCommitAfterABusyTimeArrives() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        for _ in 1...3 {
            // Long enough for the publisher to look by itself instead of watching.
            let script = """
                import sqlite3, sys, time
                store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    store.execute("INSERT INTO Note (title) VALUES ('busy')")
                """
            let done = try run("python3", ["-c", Word(script), Word(hosts.home)])
            try #require(done.status == 0, "\(done.errors)")
            #expect(try hosts.areEqual(follower))
            for _ in 1...3 {
                try hosts.write("INSERT INTO Note (title) VALUES ('lone')")
                #expect(try hosts.areEqual(follower))
            }
        }
        #expect(try publisher.stop().status == 0)
    }

    @Test func aFailureOfThisMachineDoesNotEndTheConnection() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        // A snapshot can't be written where there is a directory.
        var directory = try Directory(hosts.group)
        for name: FilePath.Component in [".groupstore", "replicas"] {
            try directory.makeDirectory(name, mode: 0o700)
            directory = try Directory(directory.path.appending(name))
        }
        try directory.makeDirectory("Notes.sqlite.snapshot", mode: 0o700)
        let follower = try hosts.follow()
        try follower.event("error")
        for number in 1...5 {
            try hosts.write("INSERT INTO Note (title) VALUES ('\(number)')")
            try publisher.event("caught_up")
        }
        let removed = try run("rmdir", [Word(directory.path.appending("Notes.sqlite.snapshot"))])
        #expect(removed.status == 0, "\(removed.errors)")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().objects.filter { $0.type == "connected" }.count == 1)
        #expect(try publisher.stop().status == 0)
    }

    @Test func aReplicaThatWasMovedAwayIsCreatedAgain() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        #expect(try hosts.areEqual(follower))
        let group = try Directory(hosts.group)
        for name in try group.names() where name.string.hasPrefix("Notes.sqlite") { try group.removeFile(name) }
        try follower.event("error") { $0.string("code") == "replica_gone" }
        try hosts.write("INSERT INTO Note (title) VALUES ('later')")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    @Test func aSecondFollowerOfOneReplicaChangesNothing() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let first = try hosts.follow()
        #expect(try hosts.areEqual(first))
        let before = try hosts.content(hosts.replica)
        let second = try hosts.follow().process
        for other in [second, try RunningProcess(Programs.relay, ["promote", Word(hosts.replica)])] {
            let refused = try other.wait()
            #expect(refused.status == 75, "\(refused.errors)")
            #expect(refused.errors.contains("process \(first.process.pid)"), "\(refused.errors)")
        }
        #expect(try hosts.content(hosts.replica) == before)
        first.process.signal(SIGKILL)
        _ = try first.process.wait()
        try hosts.write("INSERT INTO Note (title) VALUES ('later')")
        let next = try hosts.follow()
        #expect(try hosts.areEqual(next))
        #expect(try next.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    /// Two followers by two names of one file would have two locks.
    @Test func aSecondFollowerByAnotherNameOfTheReplicaChangesNothing() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let first = try hosts.follow()
        #expect(try hosts.areEqual(first))
        let name = hosts.replica.removingLastComponent().appending("Other.sqlite").string
        #expect(link(hosts.replica.string, name) == 0)
        let second = try hosts.follow(options: ["--name", "Other.sqlite"]).process.wait()
        #expect(second.status == 65 && second.errors.contains("one file with 2 names"), "\(second.errors)")
        #expect(unlink(name) == 0)
        try hosts.write("INSERT INTO Note (title) VALUES ('later')")
        #expect(try hosts.areEqual(first))
        #expect(try first.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    /// The home keeps nothing for a follower whose confirmations don't arrive.
    @Test(arguments: NATSServer.programs)
    func aFollowerThatMayNotConfirmSaysSo(program: FilePath) throws {
        let hosts = try RelayHosts(
            program,
            configuration: """
                no_auth_user: anybody
                authorization { users: [
                    { user: anybody, password: p, permissions: { publish: { deny: ["gs.Notes.ack.>"] } } }
                ] }
                """)
        let publisher = try hosts.publish()
        let follower = try hosts.follow()
        let error = try follower.event("error") { $0.string("code") == "broker_not_permitted" }
        #expect(error.string("message")?.contains("gs.Notes.ack.other") == true)
        // It goes on.
        try hosts.write("INSERT INTO Note (title) VALUES ('later')")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().status == 0)
    }

    @Test func statusSaysByItsExitCodeWhetherAnythingIsWrong() throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        func status() throws -> Int32 {
            try run(Programs.relay, ["status"], environment: ["XDG_RUNTIME_DIR": hosts.runtime.string]).status
        }
        #expect(try status() == 0)
        let publisher = try hosts.publish()
        try publisher.event("caught_up")
        #expect(try status() == 0)
        #expect(try publisher.stop().status == 0)
        try sqlite(hosts.home, "CREATE TABLE gs_replica (x INTEGER PRIMARY KEY)")
        let refused = try hosts.publish().process.wait()
        #expect(refused.status == 65 && refused.outcome == "failed", "\(refused.output)")
        #expect(try status() == 69)
    }
}
