import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of checkpoints. SQLite before 3.51.3 can corrupt a WAL-mode store that two programs write or checkpoint at
/// once.
@Suite(.ownThreads) struct CheckpointTests {
    /// Each command and the agent run beside a writer. The script checks their writes, truncations, removals and locks.
    @Test(.enabled(if: Programs.canTrace, "strace can't trace here"))
    func neverCheckpointsAStoreInUse() throws {
        let done = try run("python3", [Programs.source("Tests/Soak/checkpoints.py"), Programs.groupstore])
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("soak: checkpoints: "))
    }

    @Test func doctorNamesEachHoldersSQLite() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try makeStore(store, rows: 3)
        try sqlite(store, "PRAGMA journal_mode = WAL")
        let shell = try sqliteShell(store)
        let python = try RunningProcess("python3", ["-c", Self.program, Word(store)])
        let version = try python.line { $0.hasPrefix("3.") }
        let done = try groupstore("doctor", Word(store), "--json")
        let found = try #require(done.objects.first { $0.string("check") == "holders" }, "\(done.output)")
        let holders = found.objects("holders")
        #expect(holders.count == 2, "\(done.output)")
        #expect(holders.contains { $0.string("program") == "sqlite3" })
        let other = holders.first { $0.string("program")?.hasPrefix("python") == true }
        #expect(other?.string("sqlite") == version, "\(done.output)")
        #expect(holders.allSatisfy { $0.string("sqlite")?.hasPrefix("3.") == true }, "\(done.output)")
        let isOlder = try sqlite(store, "SELECT '\(version)' < '3.51.3'") == "1\n"
        #expect(found.string("verdict") == (isOlder ? "warning" : "ok"), "\(done.output)")
        #expect((found.string("remedy") != nil) == isOlder)
        let text = try groupstore("doctor", Word(store)).output
        #expect(text.contains("SQLite \(version)"), "\(text)")
        for process in [shell, python] {
            process.closeInput()
            try process.wait()
        }
        #expect(try !groupstore("doctor", Word(store)).output.contains("open in"))
    }

    @Test func aQuietDoctorPrintsProblemsAlone() throws {
        let places = try Places()
        let later = try groupstore("doctor", Word(places.group.appending("later")), "--quiet")
        #expect(!(later.output + later.errors).contains("warning"), "\(later.output)\(later.errors)")
        let missing = try groupstore("doctor", Word(places.group.appending("Note.sqlite")), "--quiet")
        #expect(missing.status == 74 && missing.output.isEmpty)
        #expect(missing.errors.hasPrefix("problem  there is no file "), "\(missing.errors)")
        #expect(!missing.errors.contains("warning"))
    }

    @Test func doctorTellsAMissingStoreFromADirectoryToCome() throws {
        let places = try Places()
        try makeStore(places.group.appending("Notes.sqlite"), rows: 1)
        let missing = try groupstore("doctor", Word(places.group.appending("Note.sqlite")))
        #expect(missing.status == 74, "\(missing.output)")
        let directory = PrintablePath(places.group)
        let expected = "there is no file \(directory)/Note.sqlite; did you mean \(directory)/Notes.sqlite? (name it: "
        #expect(missing.output.contains(expected), "\(missing.output)")
        let later = try groupstore("doctor", Word(places.group.appending("later")))
        #expect(later.output.contains("\(directory)/later: does not exist yet; the agent waits for it"))
        #expect(!later.output.contains("there is no file"))
    }

    private static let program: Word = """
        import sqlite3, sys
        store = sqlite3.connect(sys.argv[1], isolation_level=None)
        store.execute("SELECT count(*) FROM note").fetchall()
        print(sqlite3.sqlite_version, flush=True)
        sys.stdin.read()
        """
}
