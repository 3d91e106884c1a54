import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of relocations that are interrupted.
@Suite(.ownThreads) struct InterruptionTests {
    @Test(arguments: [SIGINT, SIGTERM, SIGHUP]) func aSignalRollsBack(_ number: CInt) throws {
        let places = try Places()
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let holder = try RunningProcess("sqlite3", ["-init", "/dev/null", Word(legacy.path)])
        holder.send("BEGIN; SELECT count(*) FROM note;")
        try holder.line { $0 == "10" }
        let before = try DirectorySnapshot(places.legacy)
        let relocation = try RunningProcess(
            Programs.groupstore, ["relocate", Word(legacy.path), Word(places.group), "--json"],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        try relocation.line { JSONObject(line: $0)?.type == "waiting" }
        relocation.signal(number)
        let done = try relocation.wait()
        #expect(done.status == 130, "\(done.output)")
        #expect(done.outcome == "busy" && done.summary.object("error")?.string("code") == "cancelled")
        #expect(done.summary.object("error")?.integer("exit") == 130)
        #expect(try DirectorySnapshot(places.legacy) == before)
        #expect(FileStatus(following: places.group.pushing(".groupstore/journal.json")) == nil)
        try holder.killAtOnce()
    }

    /// The relocation waits for another one of the same store. It ends with the same summary as one that has begun.
    @Test func aRelocationCancelledBeforeItsStartPrintsASummary() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        let holder = try sqliteShell(store.path)
        let agent = try AgentProcess(places, legacy: [])
        let client = try agent.connect()
        func identity(_ path: FilePath) throws -> JSONValue {
            let found = try #require(FileStatus(following: path)?.identity)
            return .object(["dev": .string("\(found.device)"), "ino": .string("\(found.inode)")])
        }
        for number: Int64 in [1, 2] {
            var request: JSONObject = ["id": .integer(number), "op": "relocate", "deadline": 600]
            request["source"] = .string(store.path.string)
            request["group"] = .string(places.group.string)
            request["source_file"] = try identity(store.path)
            request["group_file"] = try identity(places.group)
            try client.send(request)
        }
        try client.next { $0.type == "waiting" && $0["id"] == 1 }
        for number: Int64 in [2, 1] {
            try client.send(["id": .integer(number + 10), "op": "cancel", "request": .integer(number)])
        }
        let answer = try client.next { $0["id"] == 2 && $0["ok"] != nil }
        #expect(answer.bool("ok") == true && answer.string("outcome") == "busy", "\(answer.text)")
        #expect(answer.object("error")?.string("code") == "cancelled" && answer.string("from") == store.path.string)
        try holder.killAtOnce()
    }

    /// The signal arrives during the copy of the database or of its external data.
    @Test(arguments: Tier.cases([SIGINT, SIGTERM], quick: [SIGTERM]), [false, true])
    func aSignalStopsACopy(_ number: CInt, isFolder: Bool) throws {
        let places = try Places(.another)
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        // A hole takes no space, but its copy does.
        if isFolder {
            try run("truncate", ["--size=1G", Word(places.legacy.pushing(".Notes_SUPPORT/big"))])
        } else {
            try sqlite(legacy.path, "CREATE TABLE big (data); INSERT INTO big SELECT zeroblob(600000000)")
        }
        let before = try run("find", [Word(places.legacy), "-type", "f", "-printf", "%P %s %T@ %i\\n"]).lines.sorted()
        let relocation = try RunningProcess(
            Programs.groupstore, ["relocate", Word(legacy.path), Word(places.group), "--json"],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        try relocation.line { JSONObject(line: $0)?.type == "progress" }
        relocation.signal(number)
        let done = try relocation.wait()
        #expect(done.status == 130, "\(done.output)")
        #expect(done.summary.object("error")?.string("code") == "cancelled")
        #expect(done.errors.hasPrefix("stopping\n"), "\(done.errors)")
        let last = done.objects.last { $0.type == "progress" }
        #expect((last?.integer("bytes") ?? 0) < last?.integer("of") ?? 0)
        #expect(
            try run("find", [Word(places.legacy), "-type", "f", "-printf", "%P %s %T@ %i\\n"]).lines.sorted() == before)
        #expect(try Directory(places.group).names() == [".groupstore"])
        #expect(FileStatus(following: places.group.pushing(".groupstore/journal.json")) == nil)
        #expect(try Directory(places.group.pushing(".groupstore/staging")).names().isEmpty)
    }

    /// An agent that relocates for a client also ends at once.
    @Test func anAgentThatWaitsForAHolderStops() throws {
        let places = try Places()
        let legacy = try makeStore(places.legacy.appending("Diary.sqlite"), rows: 10)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let holder = try RunningProcess("sqlite3", ["-init", "/dev/null", Word(legacy.path)])
        holder.send("BEGIN; SELECT count(*) FROM note;")
        try holder.line { $0 == "10" }
        let before = try DirectorySnapshot(places.legacy)
        let client = try RunningProcess(
            Programs.groupstore, ["relocate", Word(legacy.path), Word(places.group), "--json", "--deadline", "60"],
            environment: agent.environment)
        try client.line { JSONObject(line: $0)?.type == "waiting" }
        _ = try agent.stop()
        client.signal(SIGKILL)
        #expect(try DirectorySnapshot(places.legacy) == before)
        try holder.killAtOnce()
    }

    /// The agent copies. The command that requested the copy ends only after the agent has rolled it back.
    @Test(arguments: [SIGINT, SIGTERM]) func theCommandEndsAfterTheAgentRolledBack(_ number: CInt) throws {
        let places = try Places(.another)
        let legacy = try makeStore(places.legacy.appending("Diary.sqlite"), rows: 10)
        try run("truncate", ["--size=1G", Word(places.legacy.pushing(".Diary_SUPPORT/big"))])
        let before = try run("find", [Word(places.legacy), "-type", "f", "-printf", "%P %s %T@ %i\\n"]).lines.sorted()
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let client = try RunningProcess(
            Programs.groupstore, ["relocate", Word(legacy.path), Word(places.group), "--json"],
            environment: agent.environment)
        try client.line { JSONObject(line: $0)?.type == "progress" }
        client.signal(number)
        let done = try client.wait()
        #expect(
            try run("find", [Word(places.legacy), "-type", "f", "-printf", "%P %s %T@ %i\\n"]).lines.sorted() == before)
        #expect(try Directory(places.group.pushing(".groupstore/staging")).names().isEmpty)
        #expect(FileStatus(following: places.group.pushing(".groupstore/journal.json")) == nil)
        #expect(done.status == 130, "\(done.output)\(done.errors)")
        #expect(done.summary.object("error")?.string("code") == "cancelled")
    }

    /// The requesting client is gone, so nobody waits for the relocation any more.
    @Test(arguments: [SIGINT, SIGKILL]) func aDisconnectedClientCancelsItsRelocation(_ number: CInt) throws {
        let places = try Places()
        let legacy = try makeStore(places.legacy.appending("Diary.sqlite"), rows: 10)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let subscriber = try agent.subscribe("Diary.sqlite")
        let holder = try RunningProcess("sqlite3", ["-init", "/dev/null", Word(legacy.path)])
        holder.send("BEGIN; SELECT count(*) FROM note;")
        try holder.line { $0 == "10" }
        let before = try DirectorySnapshot(places.legacy)
        let client = try RunningProcess(
            Programs.groupstore, ["relocate", Word(legacy.path), Word(places.group), "--json", "--deadline", "3600"],
            environment: agent.environment)
        try client.line { JSONObject(line: $0)?.type == "waiting" }
        client.signal(number)
        #expect(try subscriber.next("abandoned").string("outcome") == "busy")
        #expect(try DirectorySnapshot(places.legacy) == before)
        try holder.killAtOnce()
    }

    /// The next file to be opened would get a closed standard descriptor's number, and output would go into that file.
    @Test func neverPrintsIntoAnotherFile() throws {
        let places = try Places()
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let command = "'\(Programs.groupstore)' relocate '\(legacy.path)' '\(places.group)' <&- >&- 2>&-"
        let done = try run(
            "sh", ["-c", Word(command)], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0)
        let locks = try run(
            "find", [Word(places.group.pushing(".groupstore/claims")), "-name", "*.lock", "-size", "+0"])
        #expect(locks.output == "")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
    }
}
