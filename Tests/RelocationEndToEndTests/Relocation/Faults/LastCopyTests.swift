import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of stores that are removed because another is kept. Removal must never destroy the last copy of their content.
@Suite(.ownThreads) struct LastCopyTests {
    /// The group's store is lost and recreated, and a backup returns to the old place.
    @Test func aBackupOfLostContentIsAConflict() throws {
        let places = try Places(.another)
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let backup = places.scratch("backup")
        try run("cp", ["-a", Word(places.legacy), Word(backup)])
        #expect(try relocate(legacy.path, places.group, "--retire", "delete").outcome == "relocated")
        let published = places.group.appending("Notes.sqlite")
        try run("rm", [Word(published)])
        try makeStore(published, rows: 3)
        try run("cp", ["-a", Word(backup.pushing(".")), Word(places.legacy)])

        let done = try relocate(legacy.path, places.group)
        #expect(done.status == 73 && done.outcome == "conflict", "\(done.output)")
        #expect(try noteCount(legacy.path) == 10)
        #expect(try noteCount(published) == 3)
    }

    private static let canTrace = (try? run("strace", ["-o", "/dev/null", "true"]))?.status == 0

    /// A fresh copy exists in memory only, and the power may fail right after the other copy is removed.
    @Test(.enabled(if: canTrace, "strace can't trace here"))
    func syncsTheKeptCopyBeforeRemovingTheOther() throws {
        let places = try Places()
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try run("cp", ["-a", Word(places.legacy.pushing(".")), Word(places.group)])
        let trace = places.scratch("trace")
        let done = try run(
            "strace",
            ["-f", "-y", "-e", "trace=fsync,unlinkat", "-o", Word(trace), Programs.groupstore, "relocate"]
                + [Word(legacy.path), Word(places.group)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0, "\(done.errors)")

        let calls = try run("cat", [Word(trace)]).lines
        let first = try #require(
            calls.firstIndex { $0.contains("unlinkat(") && $0.contains(places.legacy.string + ">, \".groupstore-") })
        let group = places.group.string
        for file in ["Notes.sqlite", ".Notes_SUPPORT/_EXTERNAL_DATA/1F2E", ".Notes_SUPPORT/_EXTERNAL_DATA"] {
            let synced = calls[..<first].contains { $0.contains("fsync(") && $0.contains("<\(group)/\(file)>") }
            #expect(synced, "\(file) was not synced: \(calls[..<first])")
        }
    }

    /// Each relocation removes the store that the other one keeps.
    @Test(.soak, arguments: ["refuse", "keep-group", "keep-legacy"]) func crossingRelocationsLeaveAStore(
        _ policy: String
    )
        throws
    {
        for round in 1...12 {
            let places = try Places()
            let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
            let other = places.group.appending("Notes.sqlite")
            if policy == "refuse" {
                try run("cp", ["-a", Word(places.legacy.pushing(".")), Word(places.group)])
            } else {
                try makeStore(other, rows: 20)
            }
            let forward = try start(legacy.path, places.group, Word(policy))
            let backward = try start(other, places.legacy, Word(policy))
            try forward.wait()
            try backward.wait()
            let left = [legacy.path, other].filter { FileStatus(following: $0)?.kind == .regular }
            #expect(!left.isEmpty, "round \(round)")
            for store in left { #expect(try [10, 20].contains(noteCount(store)), "round \(round)") }
        }
    }

    /// A latecomer finds no store any more and doesn't wait for one.
    @Test func onlyOneOfSeveralGroupsGetsTheStore() throws {
        for round in 1...5 {
            let places = try Places()
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
            let groups = (1...4).map { places.scratch("group\($0)") }
            for group in groups { try run("mkdir", [Word(group)]) }
            let processes = try groups.map { try start(store.path, $0, "refuse", deadline: "60") }
            let done = try processes.map { try $0.wait() }
            #expect(done.map(\.status).sorted() == [0, 74, 74, 74], "round \(round): \(done.map(\.errors))")
            let rows = try groups.map { $0.appending("Notes.sqlite") }
                .filter { FileStatus(following: $0) != nil }.map(noteCount)
            #expect(rows == [10], "round \(round)")
        }
    }

    private func start(
        _ store: FilePath, _ group: FilePath, _ policy: Word, deadline: Word = "1"
    ) throws -> RunningProcess {
        try RunningProcess(
            Programs.groupstore,
            ["relocate", Word(store), Word(group), "--deadline", deadline, "--on-conflict", policy],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    private func relocate(_ store: FilePath, _ group: FilePath, _ options: Word...) throws -> FinishedProcess {
        try groupstore("relocate", Word(store), Word(group), "--json", options: options)
    }
}
