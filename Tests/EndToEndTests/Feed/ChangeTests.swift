import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The changes that subscribers receive when other programs commit.
@Suite(.ownThreads) struct ChangeTests {
    private static let writersScript = """
        import sqlite3, sys
        store, writer, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
        connection = sqlite3.connect(store, isolation_level=None, timeout=600)
        connection.execute("PRAGMA synchronous = OFF")
        for number in range(commits):
            connection.execute("INSERT INTO entry VALUES (?, ?)", (writer, number))
        """

    private func makeShared(_ places: Places, _ mode: String) throws -> FilePath {
        let store = places.group.appending("Shared.sqlite")
        try sqlite(store, "PRAGMA journal_mode = \(mode); CREATE TABLE entry (writer TEXT, number INTEGER)")
        return store
    }

    private func entryCount(_ store: FilePath) throws -> Int {
        Int(try sqlite(store, "SELECT count(*) FROM entry").split(separator: "\n").first ?? "") ?? -1
    }

    /// The directory raises no event for such a write.
    @Test func reportsAWriteThroughAHardLink() throws {
        let places = try Places()
        let store = try makeShared(places, "DELETE")
        let link = places.scratch("Linked.sqlite")
        try run("ln", [Word(store), Word(link)])
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let subscriber = try agent.subscribe("Shared.sqlite")
        try sqlite(link, "INSERT INTO entry VALUES ('elsewhere', 1)")
        try subscriber.next("change")
        try sqlite(store, "INSERT INTO entry VALUES ('here', 1)")
        try subscriber.next("change")
        #expect(try entryCount(store) == 2)
    }

    /// Two Python processes and two shells commit at once. A reader that reads after each notification sees every
    /// commit.
    @Test(arguments: ["WAL", "DELETE"])
    func everyCommitOfABurstIsReadableWhenNotified(_ mode: String) throws {
        let places = try Places()
        let store = try makeShared(places, mode)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "\(AgentProcess.group)/Shared.sqlite", "--json"],
            environment: agent.environment)
        try watch.line { JSONObject(line: $0)?.type == "subscribed" }

        let each = 2500
        let sql = (0..<each).map { "INSERT INTO entry VALUES ('shell', \($0));" }.joined(separator: "\n")
        var writers: [RunningProcess] = []
        for name in ["python 1", "python 2"] {
            writers.append(
                try RunningProcess("python3", ["-c", Word(Self.writersScript), Word(store), Word(name), "\(each)"]))
        }
        let script = places.scratch("burst.sql")
        try write("PRAGMA busy_timeout = 600000; PRAGMA synchronous = OFF;\n" + sql, to: script)
        for _ in 1...2 {
            writers.append(
                try RunningProcess(
                    "sqlite3", ["-batch", "-bail", "-init", "/dev/null", Word(store), ".read \(script.string)"]))
        }
        for writer in writers { writer.closeInput() }

        var seen = 0
        while seen < 4 * each {
            do {
                // On a busy machine the kernel drops events. The agent then tells the subscriber to reread the store.
                try watch.line(within: .seconds(20)) { ["change", "reset"].contains(JSONObject(line: $0)?.type) }
            } catch {
                // Silence while a program still writes is not the feed's fault.
                if try writers.contains(where: { try !$0.hasEnded(within: .zero) }) { continue }
                Issue.record("notified of \(seen) of \(try entryCount(store)) commits, then no more: \(error)")
                break
            }
            let found = try entryCount(store)
            #expect(found >= seen)
            seen = found
        }
        for writer in writers {
            let done = try writer.wait()
            #expect(done.status == 0, "\(done.errors)")
        }
        #expect(seen == 4 * each)
    }

    /// In each round some programs commit long enough for the agent to poll at intervals. Short-lived writers and
    /// stores in other modes share the directory. The writers then close the store or keep it open. An event must
    /// follow the start of each writer's last commit.
    @Test(.soak, arguments: [false, true]) func reportsTheLastCommitOfBusyWriters(_ isKeptOpen: Bool) throws {
        let places = try Places()
        let modes: [FilePath.Component] = ["WAL", "DELETE", "PERSIST"]
        for mode in modes {
            try sqlite(
                places.group.appending(mode),
                "PRAGMA journal_mode = \(mode.string); CREATE TABLE entry (writer TEXT, number INTEGER)")
        }
        let agent = try AgentProcess(places, legacy: modes.map { places.legacy.appending($0) })
        let openShell = isKeptOpen ? try sqliteShell(places.group.appending("WAL")) : nil
        let script = places.scratch("busy_writers.py")
        try write(Self.busyWritersScript, to: script)
        let words: [Word] = [
            Word(script), Programs.source("Clients/python"), Word(AgentProcess.group), Word(places.group),
            "\(UInt32.random(in: 0...UInt32.max))",
        ]
        let done = try run("python3", words, environment: agent.environment)
        #expect(done.status == 0 && done.output.hasSuffix(": 0 silent\n"), "\(done.output) \(done.errors)")
        withExtendedLifetime(openShell) {}
    }

    private static let busyWritersScript = """
        import random, subprocess, sys, threading, time
        sys.path.insert(0, sys.argv[1])
        import groupstore
        group, directory, seed = sys.argv[2:]
        random.seed(int(seed))
        WRITER = '''
        import sqlite3, sys, time
        store, commits, mark, stays = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "stays"
        connection = sqlite3.connect(store, isolation_level=None, timeout=600)
        connection.execute("PRAGMA synchronous = OFF")
        for number in range(commits):
            began = time.monotonic_ns()
            connection.execute("INSERT INTO entry VALUES ('w', ?)", (number,))
            if number == mark:
                print("on its way", flush=True)
        if not stays:
            connection.close()
        print(began, flush=True)
        sys.stdin.read()
        '''
        notified = dict.fromkeys(["WAL", "DELETE", "PERSIST"], 0)
        condition = threading.Condition()

        def listen(name):
            for _ in groupstore.Changes(f"{group}/{name}"):
                with condition:
                    notified[name] = time.monotonic_ns()
                    condition.notify_all()

        def is_notified(name, since, within=None):
            with condition:
                return condition.wait_for(lambda: notified[name] >= since, within)

        for name in notified:
            threading.Thread(target=listen, args=(name,), daemon=True).start()
        for name in notified:
            assert is_notified(name, 1, within=60), name
        silent = 0
        for _ in range(20):
            jobs = [("WAL", random.randint(4000, 20000))]
            for _ in range(random.randint(0, 3)):
                jobs.append((random.choice(["WAL", "DELETE", "PERSIST"]), random.choice([1, 2, 50])))
            writers = []
            for name, commits in jobs:
                mark = random.randrange(commits)
                words = [f"{directory}/{name}", str(commits), str(mark), random.choice(["stays", "closes"])]
                writers.append((name, subprocess.Popen(
                    [sys.executable, "-c", WRITER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)))
                # The next one begins somewhere in this one's commits.
                writers[-1][1].stdout.readline()
            for name, writer in writers:
                silent += not is_notified(name, int(writer.stdout.readline()), within=5)
            for _, writer in writers:
                writer.communicate()
        print(f"seed {seed}: {silent} silent")
        """

    /// Commits one by one, without a burst: each commit causes its own change, and is readable when the change arrives.
    @Test(arguments: ["WAL", "DELETE", "PERSIST", "TRUNCATE"])
    func reportsEachCommitBeforeTheNext(_ mode: String) throws {
        let places = try Places()
        let store = try makeShared(places, mode)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let subscriber = try agent.subscribe("Shared.sqlite")
        let shell = try sqliteShell(store)
        try shell.execute("PRAGMA journal_mode = \(mode)")
        var tokens: Set<String> = []
        for number in 1...300 {
            try shell.execute("INSERT INTO entry VALUES ('shell', \(number))")
            let change = try subscriber.next("change")
            tokens.insert(change.string("token") ?? "")
            if number.isMultiple(of: 50) { #expect(try entryCount(store) == number) }
        }
        #expect(tokens.count == 300)
    }

    /// Such an action causes no change; the commit after it causes one.
    @Test(arguments: ["WAL", "DELETE"])
    func ignoresRollbacksCheckpointsAndReaders(_ mode: String) throws {
        let places = try Places()
        let store = try makeShared(places, mode)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let shell = try sqliteShell(store)
        try shell.execute("INSERT INTO entry VALUES ('before', 0)")
        let subscriber = try agent.subscribe("Shared.sqlite")

        let silent = [
            // A cache of one page spills, so uncommitted pages reach the disk.
            """
            PRAGMA cache_size = 1; BEGIN; INSERT INTO entry SELECT hex(zeroblob(900)), value FROM generate_series(1, 500);
            ROLLBACK
            """.replacing("generate_series(1, 500)", with: Self.series),
            "SELECT count(*) FROM entry",
            "PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(TRUNCATE)",
            "BEGIN IMMEDIATE; ROLLBACK",
        ]
        for (number, sql) in silent.enumerated() {
            try shell.execute(sql)
            _ = try sqlite(store, "SELECT count(*) FROM entry")
            try shell.execute("INSERT INTO entry VALUES ('marker', \(number))")
            let event = try subscriber.next("change", "reset")
            #expect(event.type == "change")
            let entries = try sqlite(store, "SELECT count(*) FROM entry WHERE writer = 'marker'")
            #expect(entries == "\(number + 1)\n", "notified before the marker was committed, by: \(sql)")
        }
        // No change is left over: the next line answers the question.
        try subscriber.send(["id": "last", "op": "status"])
        try subscriber.next { line in
            #expect(line.type != "change" && line.type != "reset", "\(line.text)")
            return line["id"] == "last" && line["ok"] != nil
        }
    }

    /// A program that opens the store, commits once and closes it is the last to close it each time. Its close runs a
    /// checkpoint and removes the log. The agent reports one change.
    @Test(arguments: ["WAL", "DELETE"])
    func reportsOneChangePerShortLivedProgram(_ mode: String) throws {
        let places = try Places()
        let store = try makeShared(places, mode)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let subscriber = try agent.subscribe("Shared.sqlite")
        for number in 1...100 {
            try sqlite(store, "INSERT INTO entry VALUES ('shell', \(number))")
            _ = try sqlite(store, "SELECT count(*) FROM entry")
            try expectOneChange(to: subscriber, "commit \(number)")
        }
    }

    /// Expects one change, now or later, and no further change before the answer to a later question. An agent that was
    /// delayed until the log was gone can't prove that the log held nothing more. It reports the change as incomplete,
    /// and reports the reading, too.
    private func expectOneChange(to subscriber: WireConnection, _ circumstances: String) throws {
        try subscriber.send(["id": "question", "op": "status"])
        var events: [JSONObject] = []
        try subscriber.next { line in
            if line["id"] == nil { events.append(line) }
            return line["id"] == "question" && line["ok"] != nil
        }
        if events.isEmpty { events.append(try subscriber.next { $0["id"] == nil }) }
        // A busy disk may delay a program for 0.5 s while it holds an exclusive lock. The change then follows once the
        // lock is released.
        if let place = events.lastIndex(where: { $0["reason"] == "unreadable" }) {
            if place == events.endIndex - 1 { try subscriber.next("change") }
        } else {
            let isHeldUp = events.count == 2 && events.contains { $0.bool("complete") == false }
            #expect(
                events.allSatisfy { $0.type == "change" } && (events.count == 1 || isHeldUp),
                "\(circumstances): \(events.map(\.text))")
        }
    }

    private static let series =
        "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 500) SELECT value FROM n)"

    @Test func reportsAReplacedOrRemovedStoreAsAReset() throws {
        let places = try Places()
        let store = try makeShared(places, "DELETE")
        let other = places.scratch("other.sqlite")
        try sqlite(other, "CREATE TABLE entry (writer TEXT, number INTEGER); INSERT INTO entry VALUES ('other', 1)")
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Shared.sqlite")])
        let subscriber = try agent.subscribe("Shared.sqlite")
        try run("mv", [Word(other), Word(store)])
        try subscriber.next("reset")
        try run("rm", [Word(store)])
        try subscriber.next("reset")
        try sqlite(store, "CREATE TABLE entry (writer TEXT, number INTEGER)")
        try subscriber.next("reset", "change")
    }
}
