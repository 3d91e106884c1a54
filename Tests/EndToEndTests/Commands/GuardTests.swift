import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore guard`.
@Suite(.ownThreads) struct GuardTests {
    private let scratch: TemporaryDirectory
    private let store: FilePath

    init() throws {
        scratch = try TemporaryDirectory()
        store = scratch.path.appending("app.db")
        try sqlite(
            store,
            "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text); "
                + "INSERT INTO note (text) VALUES ('one'), ('two')")
    }

    private func guarding(_ options: Word..., running script: Word) throws -> FinishedProcess {
        try groupstore("guard", Word(store), options: options + ["--", "sh", "-c", script, "sh", Word(store)])
    }

    @Test(arguments: ["", " && mkdir data && sqlite3 data/app.db 'CREATE TABLE note (id INTEGER PRIMARY KEY, text)'"])
    func readsTheStoreOfTheDirectoryThatTheCommandHasPutThere(script: String) throws {
        let data = scratch.path.appending("data")
        #expect(mkdir(data.string, 0o755) == 0)
        let store = data.appending("app.db")
        try sqlite(store, "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note (text) VALUES ('one')")
        let done = try groupstore(
            "guard", Word(store),
            options: [
                "--json", "--fail-on-loss", "note", "--", "sh", "-c", Word("cd \"$1\" && mv data data.old\(script)"),
                "sh",
                Word(scratch.path),
            ])
        #expect(done.status == 65, "\(done.output)\(done.errors)")
        let restore = "archive restore \(scratch.path.appending("data.old").shellWord)"
        #expect((done.output + done.errors).contains(restore), "\(done.output)\(done.errors)")
    }

    /// The command would read the log, and a copy without it is another store's.
    @Test func runsNoCommandBesideALogThatContradictsTheStore() throws {
        let other = scratch.path.appending("other.db")
        try sqlite(other, "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; CREATE TABLE other (x)")
        let shell = try sqliteShell(store)
        try shell.execute("INSERT INTO note (text) VALUES ('three')")
        let (log, copy) = (store.appending(suffix: "-wal"), other.appending(suffix: "-wal"))
        #expect(try run("cp", [Word(log), Word(copy)]).status == 0)
        let trace = scratch.path.appending("ran")
        let done = try groupstore("guard", Word(other), options: ["--", "touch", Word(trace)])
        #expect(done.status == 74 && done.errors.contains("write-ahead log of another database"), "\(done.errors)")
        #expect(FileStatus(following: trace) == nil)
        shell.closeInput()
        try shell.wait()
    }

    @Test func passesTheExitCodeOnAndReportsWhatTheCommandDid() throws {
        // The shell holds a commit in its log.
        let shell = try sqliteShell(store)
        try shell.execute("INSERT INTO note (text) VALUES ('three')")
        let done = try guarding(
            "--json", running: "echo hello; sqlite3 \"$1\" \"UPDATE note SET text = 'new' WHERE id = 3\"; exit 7")
        #expect(done.status == 7 && done.outcome == "changed", "\(done.output)\(done.errors)")
        #expect(done.errors == "hello\n", "with --json, standard output has the report alone")
        let table = try #require(done.objects.first { $0.type == "table" })
        #expect(table.integer("before") == 3 && table.integer("changed") == 1 && table.integer("went") == 0)
        #expect(done.summary.integer("exit") == 7)
        let killed = try guarding("--json", running: "kill -9 $$")
        #expect(killed.status == 137 && killed.outcome == "unchanged", "\(killed.output)")
        shell.closeInput()
        try shell.wait()
    }

    /// 65 says what a command has done.
    @Test(arguments: [0, 4096]) func aStoreThatIsDamagedBeforeIsNoLossOfTheCommand(at offset: Int64) throws {
        try sqlite(store, "PRAGMA journal_mode = DELETE")
        try Descriptor(opening: store, flags: O_WRONLY)
            .write([UInt8](repeating: 0xFF, count: 2000), at: offset, path: store)
        let refused = try guarding(running: "touch \"$1.ran\"")
        #expect(refused.status == 74 && access(store.string + ".ran", F_OK) != 0, "\(refused.errors)")
    }

    @Test func reportsALossAndTheArchiveRestoresIt() throws {
        let lost = try guarding(
            "--json", "--fail-on-loss", "NOTE", running: "sqlite3 \"$1\" 'DELETE FROM note WHERE id = 1'")
        #expect(lost.status == 65 && lost.outcome == "lost", "\(lost.output)\(lost.errors)")
        #expect(lost.summary.integer("exit") == 0)
        let command = try #require(lost.summary.string("restore"))
        let path = Word(Programs.directory.string + ":/usr/bin:/bin")
        #expect(try run("env", ["PATH=" + path, "sh", "-c", Word(command)]).status == 0)
        #expect(try sqlite(FilePath(store.string + ".before"), "SELECT count(*) FROM note") == "2\n")
        #expect(try sqlite(FilePath(store.string + ".before"), "PRAGMA journal_mode") == "wal\n")

        let refused = try guarding("--fail-on-loss", "nte", running: "touch \"$1.ran\"")
        #expect(refused.status == 64 && access(store.string + ".ran", F_OK) != 0, "\(refused.errors)")

        #expect(try guarding(running: "sqlite3 \"$1\" 'DELETE FROM note WHERE id = 2'").status == 0)
        // The first copy was restored. The second one alone has the row that its command has lost.
        let first = try guarding("--keep", "1", "--json", running: "true").summary
        #expect(first["kept"] != nil && first["removed"] != nil)
        let text = try guarding("--keep", "1", running: "sqlite3 \"$1\" \"INSERT INTO note VALUES (2, 'two')\"")
        let removed = text.output.split(separator: "\n").filter { $0.hasPrefix("removed the older copy ") }
        #expect(removed.count == 2, "\(text.output)")
        let gone = try guarding("--keep", "1", running: "rm \"$1\" \"$1-wal\" \"$1-shm\"; true")
        #expect(gone.status == 65, "\(gone.output)\(gone.errors)")
        let kept = try groupstore("archive", "list", Word(scratch.path), "--json").objects
        #expect(kept.filter { $0.type == "archive" }.count == 2, "after a loss all are kept")
    }

    /// A migration tool rebuilds a table under the same name, or under one that differs in case only.
    @Test(arguments: [
        "CREATE TABLE x (id INTEGER PRIMARY KEY, text) WITHOUT ROWID; INSERT INTO x SELECT * FROM note; "
            + "DROP TABLE note; ALTER TABLE x RENAME TO note",
        "ALTER TABLE note RENAME TO x; ALTER TABLE x RENAME TO Note; ALTER TABLE Note RENAME text TO x; "
            + "ALTER TABLE Note RENAME x TO Text",
    ])
    func aRebuiltTableWithAllItsRowsIsNoLoss(statements: String) throws {
        let done = try guarding(
            "--json", "--fail-on-loss", "NOTE", running: Word("sqlite3 \"$1\" '\(statements)'"))
        #expect(done.status == 0 && done.outcome == "changed", "\(done.output)\(done.errors)")
        let tables = done.objects.filter { $0.type == "table" }
        #expect(tables.count == 1 && tables[0].integer("went") == 0 && tables[0].integer("changed") == 0)
        let lost = try guarding(
            "--json", "--fail-on-loss", "note",
            running: Word("sqlite3 \"$1\" '\(statements); DELETE FROM note WHERE id = 1'"))
        #expect(lost.status == 65 && lost.outcome == "lost", "\(lost.output)\(lost.errors)")
    }

    /// The command's own guards and its purge find nothing that its deletion would lose. The copy stays also if guard
    /// is killed.
    @Test(arguments: [false, true]) func theCopyStaysWhileTheCommandRuns(isGuardKilled: Bool) throws {
        let program = Programs.directory.appending("groupstore").shellWord
        let script = """
            \(isGuardKilled ? "kill -9 $PPID; " : "")cd "${1%/*}"
            for n in 1 2; do \(program) guard "$1" --keep 1 -- true; done
            \(program) archive purge . --older-than 0s
            sqlite3 "$1" 'DELETE FROM note'; mv ran done
            """
        try #expect(run("touch", [Word(scratch.path.appending("ran"))]).status == 0)
        let done = try guarding(running: Word(script))
        if !isGuardKilled { #expect(done.status == 0, "\(done.output)\(done.errors)") }
        let deadline = Deadline(after: .ample)
        while FileStatus(following: scratch.path.appending("done")) == nil, !deadline.hasPassed {
            pause(.milliseconds(10))
        }
        #expect(try sqlite(store, "SELECT count(*) FROM note") == "0\n")
        let archives = try groupstore("archive", "list", Word(scratch.path), "--json").objects
        let ids = archives.filter { $0.type == "archive" }.compactMap { $0.string("id") }
        let counts = try ids.enumerated().map { place, id in
            let copy = scratch.path.appending("copy-\(place)")
            #expect(
                try groupstore("archive", "restore", Word(scratch.path), Word(id), "--to", Word(copy)).status == 0)
            return try sqlite(copy, "SELECT count(*) FROM note")
        }
        #expect(counts.contains("2\n"), "\(counts) \(done.output)\(done.errors)")
    }

    /// What has the key of a lost row, or the name of a lost table or column, is another one.
    @Test(arguments: [
        ("DELETE FROM note WHERE id = 2", "INSERT INTO note (text) VALUES ('another')"),
        ("ALTER TABLE note DROP COLUMN text", "ALTER TABLE note ADD COLUMN text"),
        ("DROP TABLE note", "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 3), (2, 4)"),
    ])
    func theCopyOfALostRowStaysAlthoughAnotherOneHasItsKey(loss: String, later: String) throws {
        try #expect(guarding("--fail-on-loss", "note", running: Word("sqlite3 \"$1\" '\(loss)'")).status == 65)
        try sqlite(store, later)
        let next = try guarding("--keep", "1", "--json", running: "true")
        #expect(next.status == 0 && next.summary["kept"] != nil && next.summary["removed"] == nil, "\(next.output)")
    }

    /// The report says that the command has lost nothing. What it has left deletes rows afterwards.
    /// SQLite reads the log of the database that the command has replaced into the one that it has put there.
    @Test func aLogOfAnotherDatabaseThatTheCommandLeavesIsNamed() throws {
        let script: Word = """
            cp "$1" "$1.new"
            python3 -c "import os, sqlite3, sys; s = sqlite3.connect(sys.argv[1]); s.execute('DELETE FROM note')
            s.commit(); os._exit(0)" "$1"
            sqlite3 "$1.new" "PRAGMA journal_mode = DELETE; PRAGMA page_size = 8192; VACUUM" && mv "$1.new" "$1"
            """
        let done = try guarding("--json", "--fail-on-loss", "note", running: script)
        #expect(done.status == 65 && done.summary.object("error")?.string("code") == "foreign_log", "\(done.output)")
        #expect(try run("rm", [Word(store.appending(suffix: "-wal"))]).status == 0)
        try sqlite(store, "DELETE FROM note")
        let later = try guarding("--json", "--keep", "1", running: "true")
        #expect(later.status == 0 && !later.output.contains("removed"), "\(later.output)")
    }

    /// The program's own function is part of an index.
    @Test func aStoreThatSQLiteCannotCheckHereIsNotDamaged() throws {
        let make = """
            import sqlite3, sys
            store = sqlite3.connect(sys.argv[1])
            store.create_function("own", 1, lambda x: x, deterministic=True)
            store.execute("CREATE INDEX i ON note(own(text))")
            """
        #expect(try run("python3", ["-c", Word(make), Word(store)]).status == 0)
        let done = try guarding("--json", "--fail-on-loss", "note", running: "true")
        #expect(done.status == 0 && done.outcome == "unchanged", "\(done.output)")
        #expect(done.summary.string("unchecked") == "unknown function: own()")
    }

    @Test func theCopyStaysForAProgramThatTheCommandHasLeft() throws {
        let gate = scratch.path.appending("gate")
        #expect(mkfifo(gate.string, 0o600) == 0)
        let script = """
            (cat "${1%/*}/gate"; sqlite3 "$1" 'DELETE FROM note'; touch "${1%/*}/done") </dev/null >/dev/null 2>&1 &
            """
        #expect(try guarding("--json", running: Word(script)).outcome == "unchanged")
        _ = try Descriptor(opening: gate, flags: O_WRONLY)
        let deadline = Deadline(after: .ample)
        while FileStatus(following: scratch.path.appending("done")) == nil, !deadline.hasPassed {
            pause(.milliseconds(10))
        }
        #expect(try sqlite(store, "SELECT count(*) FROM note") == "0\n")
        for _ in 0..<2 { #expect(try guarding("--keep", "1", running: "true").status == 0) }
        let archives = try groupstore("archive", "list", Word(scratch.path), "--json").objects
        #expect(archives.filter { $0.type == "archive" }.count == 2, "\(archives)")
    }
}
