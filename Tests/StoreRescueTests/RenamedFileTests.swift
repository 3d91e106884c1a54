import LinuxSystem
import StoreRelocation
import TestSupport
import Testing

@testable import StoreRescue

/// Files of a store that have other names than those by which their program opened them.
@Suite(.ownThreads) struct RenamedFileTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
    }

    /// The database is renamed, and a copy gets its name; another program then removes the log.
    @Test func joinsABranchWhoseDatabaseWasRenamed() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try first.run("c.execute('PRAGMA wal_checkpoint').fetchall()")
        try rig.renameAndCopy()
        try rig.sql(rig.path, "INSERT INTO t VALUES (3, 'other')")
        try first.insert(4, "late")
        let report = try rig.rescue().run()
        #expect(report.outcome == .rescued && report.branches.map(\.code) == ["orphaned_database"])
        #expect(try rig.rows() == ["1=base", "2=first", "3=other", "4=late"])
        try first.insert(5, "later")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().last == "5=later")
    }

    @Test(arguments: [false, true]) func joinsARenamedLogWithARenamedIndex(_ isReplaced: Bool) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try rig.rename("-wal", to: "w")
        try rig.rename("-shm", to: "s")
        if isReplaced { try rig.replace(rows: "(1, 'base')") }
        try first.insert(3, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
        try first.insert(4, "later")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late", "4=later"])
    }

    /// Nothing but the index tells that the log once had more.
    @Test func refusesARenamedLogThatWasCheckpointed() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try rig.rename("-wal", to: "w")
        try rig.rename("-shm", to: "s")
        try rig.sql(rig.path, "INSERT INTO t VALUES (9, 'other')")
        try first.run("c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "branch_damaged")
    }

    /// Returns two programs that have one log and an index each. The first has committed row 3, which the second's
    /// index doesn't have.
    private func holdersOfTwoIndexes() throws -> (SQLiteHolder, SQLiteHolder) {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-shm")
        let second = try rig.holder()
        try second.run("c.execute('SELECT * FROM t').fetchall()")
        try first.insert(3, "late")
        return (first, second)
    }

    /// Two programs write one log by two indexes. Each sees what it has committed.
    @Test func refusesALogThatAnotherProgramHasOverwritten() throws {
        let (first, second) = try holdersOfTwoIndexes()
        try first.insert(4, "later")
        try second.insert(20, "other")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "branch_damaged" && failure?.message.contains("overwritten") == true)
    }

    /// SQLite takes a log without a valid header for empty. What it finds wrong itself is damage like any other.
    @Test(arguments: [("-wal", 16, 8), ("", 4096, 100)])
    func keepsTheFilesOfAGarbledBranch(_ suffix: String, _ offset: Int, _ count: Int) throws {
        let program = try rig.holder()
        try program.insert(2, "first")
        if suffix.isEmpty { try program.run("c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()") }
        let garbled = rig.path.appending(suffix: suffix)
        try run(
            "sh",
            [
                "-c", "yes | head -c $3 | dd of=\"$1\" bs=1 seek=$2 conv=notrunc status=none", "sh", Word(garbled),
                "\(offset)", "\(count)",
            ])
        if suffix.isEmpty { try rig.replace(rows: "(1, 'base')") }
        rig.unlink("-wal", "-shm")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "branch_damaged")
        let saved = try SavedBranches(Relocation.container(at: rig.store.directory.path))
        let place = try #require(saved.damaged().first).location.directory
        #expect(failure?.message.contains(place.path.string) == true, "\(failure?.message ?? "")")
        #expect(try place.status(SavedBranches.damagedName) != nil)
        try program.kill()
        #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(try saved.damaged().count == 1)
    }

    /// Until a person removes them, also if the program has the whole branch again, and after the store has moved.
    @Test func namesTheFilesThatItHasKept() throws {
        let program = try rig.holder()
        try program.insert(2, "first")
        try program.run("fds = [n for n in range(3, 12) if os.path.lexists(f'/proc/self/fd/{n}')]")
        try program.run("n = [n for n in fds if os.readlink(f'/proc/self/fd/{n}').endswith('-wal')][0]")
        try program.run("old = os.pread(n, 8, 16); os.pwrite(n, b'garbled!', 16)")
        rig.unlink("-wal", "-shm")
        #expect(throws: RelocationFailure.self) { try rig.rescue().copyBranches() }
        try program.run("os.pwrite(n, old, 16)")
        let saved = try SavedBranches(Relocation.container(at: rig.store.directory.path))
        let place = try #require(saved.damaged().first).location.directory.path.string
        var notes: [String] = []
        let rescue = StoreRescue(
            rig.store, .init(), rig.request(),
            report: { event in if case .note(let text) = event { notes.append(text) } })
        for run in [rescue.dryRun, { try rescue.copyBranches() }, rescue.run] {
            notes = []
            _ = try run()
            #expect(notes.contains { $0.contains("kept in \(place)") }, "\(notes)")
        }
        #expect(try rig.rows() == ["1=base", "2=first"])
        try program.end()
        let group = try TemporaryDirectory()
        var request = RelocationRequest(source: rig.path, group: group.path)
        request.deadline = .ample
        let summary = try Relocation(request).run()
        #expect(summary.notes.contains { $0.contains("kept in \(place)") }, "\(summary.notes)")
    }

    /// The programs may end right after the refusal. Their files are kept as they are, and the next rescue finds them.
    @Test func keepsTheFilesOfABranchThatItRefuses() throws {
        let (first, second) = try holdersOfTwoIndexes()
        try first.insert(4, "later")
        try second.insert(20, "other")
        rig.unlink("-wal", "-shm")
        let saved = try SavedBranches(Relocation.container(at: rig.store.directory.path))
        // The first files and the last ones stay.
        for value in 21...23 {
            let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
            let damaged = try saved.damaged()
            #expect(damaged.count == min(value - 20, 2))
            let place = try #require(damaged.last).location.directory
            #expect(failure?.message.contains(place.path.string) == true, "\(failure?.message ?? "")")
            #expect(
                try place.names().map(\.string).sorted() == [
                    "branch.json", "damaged", "damaged-shm", "damaged-shm-2", "damaged-wal",
                ])
            try second.insert(value, "more")
        }
        try first.kill()
        try second.kill()
        // What a program commits to another log meanwhile is joined, and the damaged files stay.
        let third = try rig.holder()
        try third.insert(30, "third")
        rig.unlink("-wal", "-shm")
        #expect(try rig.rescue().run().outcome == .rescued)
        try third.end()
        for failure in [
            #expect(throws: RelocationFailure.self) { try rig.rescue().dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().run() },
        ] {
            let place = try #require(saved.damaged().first).location.directory.path
            #expect(failure?.code == "branch_damaged" && failure?.message.contains(place.string) == true)
        }
        let last = try #require(saved.damaged().last).location
        #expect(try rig.rows(last.path).contains("22=more"))
        for damaged in try saved.damaged() { try run("rm", ["-r", Word(damaged.location.directory.path)]) }
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try rig.rows() == ["1=base", "30=third"])
    }

    /// The program that has lost its commits isn't always the first one, and its index may be the one at the name.
    @Test(arguments: [true, false]) func refusesALogThatLacksWhatAnotherIndexHas(isLost: Bool) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-shm")
        let second = try rig.holder()
        try second.insert(20, "other")
        try first.insert(3, "late")
        if isLost {
            rig.unlink("-wal", "-shm")
            try rig.sql(rig.path, "INSERT INTO t VALUES (30, 'third')")
        }
        for failure in [
            #expect(throws: RelocationFailure.self) { try rig.rescue().dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().copyBranches() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().run() },
        ] {
            #expect(failure?.code == "branch_damaged")
            #expect(failure?.message.contains("(pid \(second.pid)) has: another") == true, "\(failure?.message ?? "")")
        }
    }

    /// A checkpoint by one index copies only the frames that this one knows.
    @Test func refusesALogThatAnotherIndexHasBegunAnew() throws {
        let (first, second) = try holdersOfTwoIndexes()
        defer { withExtendedLifetime(first) {} }
        try second.run("c.execute('PRAGMA wal_checkpoint(RESTART)').fetchall()")
        try second.insert(20, "other")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.message.contains("begun anew") == true, "\(failure?.message ?? "")")
    }

    @Test func refusesSeveralLogsOfOneProgram() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try first.run("import sqlite3; path = c.execute('PRAGMA database_list').fetchone()[2]")
        rig.unlink("-wal", "-shm")
        try rig.replace(rows: "(1, 'base')")
        try first.run("d = sqlite3.connect(path, isolation_level=None)")
        try first.run("d.execute('PRAGMA journal_mode = WAL').fetchall()")
        try first.run("d.execute('INSERT INTO t VALUES (3, NULL)')")
        rig.unlink("-wal", "-shm")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "branch_damaged" && failure?.message.contains("several") == true)
    }

    /// The log stays at the store's name, where the next program would take it for the copy's.
    @Test func joinsARenamedDatabaseWhoseLogStayed() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try rig.renameAndCopy()
        try first.insert(3, "late")
        let report = try rig.rescue().run()
        #expect(report.outcome == .rescued && report.remaining.map(\.holder.pid) == [first.pid])
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
        #expect(try rig.rescue().dryRun().outcome == .nothingToDo)
        // Its log is in the archive now.
        try first.insert(4, "later")
        let again = try rig.rescue().run()
        #expect(again.outcome == .rescued && again.remaining.map(\.holder.pid) == [first.pid])
        #expect(try rig.rows() == ["1=base", "2=first", "3=late", "4=later"])
        try first.end()
        #expect(try rig.rescue().run().remaining.isEmpty)
        #expect(try rig.rows().last == "4=later")
    }

    /// A journal at the store's name would be rolled back into the copy.
    @Test func movesTheJournalOfARenamedDatabaseAway() throws {
        let first = try rig.holder()
        try first.run("c.execute('PRAGMA journal_mode = DELETE').fetchall()")
        try first.insert(2, "first")
        try first.run("c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')")
        try first.run("c.execute('UPDATE t SET v = NULL')")
        try first.run("c.executemany('INSERT INTO t VALUES (?, ?)', [(i, 'x' * 900) for i in range(100, 400)])")
        // A file made from now on is certainly newer than the journal.
        while let status = FileStatus(following: rig.path.appending(suffix: "-journal")),
            !FileTime.isSettled(status.modified)
        {
            pause(.milliseconds(1))
        }
        try rig.rename("", to: "Notes.old")
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.entries == [".groupstore", "Notes.old", "Notes.sqlite"])
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
        try first.run("c.execute('ROLLBACK')")
        try first.run("assert c.execute('SELECT v FROM t').fetchall() == [('base',), ('first',)]")
    }

    /// Between transactions, nothing tells whether a database in rollback mode was renamed.
    @Test func namesAnOlderDatabaseWithTheSameTables() throws {
        let first = try rig.holder()
        try first.run("c.execute('PRAGMA journal_mode = DELETE').fetchall(); c.execute('BEGIN IMMEDIATE')")
        try first.insert(2, "first")
        try rig.renameAndCopy()
        try first.run("c.execute('COMMIT')")
        for report in [try rig.rescue().dryRun(), try rig.rescue().run()] {
            #expect(report.outcome == .nothingToDo && report.notes.count == 1)
            #expect(report.notes.first?.contains("pid \(first.pid)") == true, "\(report.notes)")
            #expect(report.notes.first?.contains("Notes.old") == true, "\(report.notes)")
        }
        #expect(try rig.rows() == ["1=base"])
        try first.end()
        #expect(try rig.rescue().run().notes.isEmpty)
    }

    @Test func joinsABranchWithARenamedLogAgain() throws {
        let first = try rig.holder()
        try rig.rename("-wal", to: "Notes.sqlite-wal.bak")
        try first.insert(2, "first")
        #expect(try rig.rescue().run().outcome == .rescued)
        try first.insert(3, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
    }

    /// The log had even the tables.
    @Test(arguments: [false, true]) func countsTheRowsOfABranchThatIsAllThereIs(isDryRun: Bool) throws {
        let path = rig.store.directory.path.appending("New.sqlite")
        let holder = try SQLiteHolder(path)
        try holder.run("c.execute('PRAGMA journal_mode = WAL').fetchall()")
        try holder.run("c.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, v)')")
        try holder.insert(1, "one")
        try holder.insert(2, "two")
        let rig = try RescueRig(self.rig, path)
        rig.unlink("-wal", "-shm")
        let rescue = rig.rescue()
        let report = try isDryRun ? rescue.dryRun() : rescue.run()
        #expect(report.merge?.sum(\.onlyLegacy) == 2)
        if !isDryRun { #expect(try rig.rows() == ["1=one", "2=two"]) }
        try holder.end()
    }
}
