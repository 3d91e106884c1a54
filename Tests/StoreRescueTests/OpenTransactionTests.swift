import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Branches in rollback mode, whose programs have locks or an open transaction. Nobody waits for them.
@Suite(.ownThreads) struct OpenTransactionTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
    }

    /// Returns a program with the store in rollback mode, and a second row.
    private func holder(_ mode: String, exclusive: Bool = false) throws -> SQLiteHolder {
        let holder = try rig.holder()
        try holder.run("c.execute('PRAGMA journal_mode = DELETE').fetchall()")
        if exclusive { try holder.run("c.execute('PRAGMA locking_mode = EXCLUSIVE').fetchall()") }
        try holder.run("c.execute('PRAGMA journal_mode = \(mode)').fetchall()")
        try holder.insert(2, "first")
        return holder
    }

    /// Begins a transaction that changes all rows, and writes part of it to the database.
    private func begin(_ holder: SQLiteHolder) throws {
        try holder.run("c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')")
        try holder.run("c.execute(\"UPDATE t SET v = 'open'\")")
        try holder.run("c.executemany('INSERT INTO t VALUES (?, ?)', [(i, 'x' * 900) for i in range(100, 400)])")
    }

    /// Makes `n` the program's descriptor of a file.
    private func find(_ name: String, _ holder: SQLiteHolder) throws {
        try holder.run("fds = [n for n in range(3, 9) if os.path.lexists(f'/proc/self/fd/{n}')]")
        try holder.run("links = {n: os.readlink(f'/proc/self/fd/{n}') for n in fds}")
        try holder.run("n = [n for n, link in links.items() if link.endswith('/\(name)')][0]")
    }

    /// In exclusive locking mode a program keeps its locks between transactions too.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"]) func joinsABranchInExclusiveMode(mode: String) throws {
        let first = try holder(mode, exclusive: true)
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        rig.unlink("-journal")
        if mode == "TRUNCATE" {
            // An empty journal doesn't show who has emptied it, until the program has written to it without its name.
            let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
            #expect(failure?.code == "in_use")
            settle(rig.store.directory.path)
            try writeAgain(first, "first")
        }
        let plan = try rig.rescue().dryRun()
        #expect(plan.outcome == .rescued && plan.branches.map(\.code) == ["orphaned_database"])
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
        #expect(try rig.archivedRows().contains(["1=base", "2=first"]))
        // The new store has come into the directory since the empty journal was written.
        if mode != "TRUNCATE" { #expect(try rig.rescue().run().outcome == .nothingToDo) }
        try begin(first)
        // Until then, another program could have written to the journal.
        #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        try first.run("c.execute('ROLLBACK')")
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        try first.end()
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
    }

    /// The journal keeps its name, and no commit proves anything. Each way that the remedy names does.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"], [false, true])
    func theRemedyOfExclusiveModeWorks(mode: String, leavesMode: Bool) throws {
        let first = try holder(mode, exclusive: true)
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        try writeAgain(first, "first")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use" && failure?.remedy.contains("PRAGMA locking_mode = NORMAL") == true)
        if leavesMode {
            try first.run("c.execute('PRAGMA locking_mode = NORMAL').fetchall()")
            try first.run("c.execute('SELECT * FROM t').fetchall()")
        } else {
            rig.unlink("-journal")
            settle(rig.store.directory.path)
            try writeAgain(first, "first")
        }
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
    }

    /// In WAL mode, such a program has all locks on the database that the name still leads to.
    @Test(arguments: [false, true]) func joinsALogOfAProgramInExclusiveMode(sinceTheStart: Bool) throws {
        let first = try SQLiteHolder(rig.path)
        if !sinceTheStart { try first.run("c.execute('SELECT * FROM t').fetchall()") }
        try first.run("c.execute('PRAGMA locking_mode = EXCLUSIVE').fetchall()")
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        try first.insert(3, "late")
        let report = try rig.rescue().run()
        #expect(report.outcome == .rescued && report.branches.map(\.code) == ["orphaned_log"])
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
        try first.end()
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
    }

    /// Commits a change of the second row, which then has the value. SQLite writes nothing for a value that is there.
    private func writeAgain(_ holder: SQLiteHolder, _ value: String) throws {
        for value in ["other", value] { try holder.run("c.execute(\"UPDATE t SET v = '\(value)' WHERE id = 2\")") }
    }

    /// Waits until a file made from now on is certainly newer than the journal, or another file.
    private func settle(_ path: FilePath? = nil) {
        let path = path ?? rig.path.appending(suffix: "-journal")
        while let status = FileStatus(following: path), !FileTime.isSettled(status.modified) {
            pause(.milliseconds(1))
        }
    }

    /// What was in the database before is in the journal, which is still there for its program alone.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"], [false, true])
    func rollsBackACopyOfAnOpenTransaction(mode: String, exclusive: Bool) throws {
        let first = try holder(mode, exclusive: exclusive)
        try begin(first)
        settle()
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        if exclusive {
            try rig.rename("-journal", to: "Notes.sqlite-journal.bak")
        } else {
            rig.unlink("-journal")
        }
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
        // The program's own files are as they were. Without a journal to remove, SQLite ends a transaction in an error.
        guard mode != "DELETE" || exclusive else {
            try first.run("c.execute('ROLLBACK')")
            return try first.run("assert c.execute('SELECT v FROM t').fetchall() == [('base',), ('first',)]")
        }
        try first.run("c.execute('COMMIT')")
        try first.run("assert c.execute('SELECT count(*) FROM t').fetchone() == (302,)")
        if mode == "TRUNCATE", exclusive {
            // Whoever knows the other name of the empty journal may have emptied it.
            let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
            #expect(failure?.code == "in_use")
            rig.unlink("-journal.bak")
            settle(rig.store.directory.path)
            try writeAgain(first, "open")
        }
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "merge_undecided")
        #expect(try rig.rescue(prefer: .group).run().outcome == .rescued)
        #expect(try rig.rows().count == 303)
    }

    /// What another program does to the journal of an open transaction that has written to the database.
    enum Harm: CaseIterable {
        case truncated, cut, cleared, headerCleared
    }

    /// Nothing proves which pages were committed: they look like those of a program in exclusive mode.
    @Test(arguments: Tier.cases(Harm.allCases, quick: [.truncated, .headerCleared]))
    func refusesAnOpenTransactionWhoseJournalIsHarmed(harm: Harm) throws {
        let first = try holder(harm == .truncated ? "DELETE" : "PERSIST")
        try first.run("c.executemany('INSERT INTO t VALUES (?, ?)', [(i, 'x' * 900) for i in range(100, 200)])")
        try first.run("c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')")
        try first.run("c.execute(\"UPDATE t SET v = 'open' || substr(v, 5)\")")
        let journal = try Descriptor(opening: rig.path.appending(suffix: "-journal"), flags: O_RDWR)
        let size = Int(try journal.status().size)
        switch harm {
        case .truncated: #expect(ftruncate(journal.raw, 0) == 0)
        case .cut: #expect(ftruncate(journal.raw, off_t(size / 2)) == 0)
        case .cleared: try journal.write([UInt8](repeating: 0, count: size), at: 0, path: rig.path)
        case .headerCleared: try journal.write([UInt8](repeating: 0, count: 28), at: 0, path: rig.path)
        }
        settle()
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use" && failure?.kind == .busy)
        #expect(try rig.rows() == ["1=base", "7=new"] && rig.archivedRows().isEmpty)
        try first.kill()
    }

    /// A program that opens and closes the database beside SQLite loses its locks, and its journal proves its state.
    @Test func rollsBackACopyOfATransactionWithoutLocks() throws {
        let first = try holder("DELETE")
        try begin(first)
        try first.run("os.close(os.open(path, os.O_RDONLY))")
        settle()
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "7=new"])
        try first.kill()
    }

    /// Once another database has the store's name, its programs use the journal of that name too. Their transaction
    /// isn't rolled back into the branch.
    @Test(arguments: [false, true]) func takesNoOtherProgramsJournal(exclusive: Bool) throws {
        let first = try holder("PERSIST", exclusive: exclusive)
        try rig.renameAndCopy()
        // The other program begins, commits and removes the journal that the first one has open.
        try rig.sql(rig.path, "UPDATE t SET v = 'other' WHERE id = 2", "DELETE FROM t WHERE id = 2")
        guard exclusive else {
            return #expect(try rig.rescue().run().outcome == .nothingToDo)
        }
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use")
        #expect(try rig.rows() == ["1=base"] && rig.archivedRows().isEmpty)
        // Its next transaction makes the journal its own.
        try first.insert(3, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
    }

    /// SQLite reuses the file at the journal's name, so a branch's journal is the present store's too. That needs it to
    /// roll back what its program has spilled.
    @Test(arguments: ["TRUNCATE", "PERSIST"]) func leavesAJournalThatTheStoreAtTheNameUses(mode: String) throws {
        let first = try holder("DELETE")
        try first.run("c.execute('BEGIN')")
        try first.insert(9, "open")
        try rig.replace(rows: "(1, 'base')")
        let other = try rig.holder()
        try other.run("c.execute('PRAGMA journal_mode = \(mode)').fetchall()")
        try other.insert(3, "other")
        try other.run("c.execute('BEGIN IMMEDIATE')")
        let failure = #expect(throws: RelocationFailure.self) {
            try rig.rescue(deadline: .milliseconds(100)).run()
        }
        #expect(failure?.code == "in_use" && failure?.kind == .busy)
        #expect(try rig.entries.contains("Notes.sqlite-journal"))
        try other.run("c.execute('ROLLBACK')")
        try begin(other)
        try other.kill()
        #expect(try rig.rows() == ["1=base", "3=other"])
    }

    /// A program that has reserved the right to write, and has written nothing yet.
    @Test func joinsABranchWhoseProgramIsAboutToWrite() throws {
        let first = try holder("DELETE")
        try first.run("c.execute('BEGIN IMMEDIATE')")
        try rig.replace(rows: "(1, 'base')")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
        try first.run("c.execute('COMMIT')")
    }

    /// Nothing on the disk says what was committed.
    @Test(arguments: ["MEMORY", "OFF"]) func refusesAnOpenTransactionWithoutAJournal(mode: String) throws {
        let first = try holder(mode)
        try begin(first)
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use" && failure?.kind == .busy)
        #expect(failure?.message.contains("keep it running") == true, "\(failure?.message ?? "")")
        #expect(try rig.rows() == ["1=base", "7=new"] && rig.archivedRows().isEmpty)
        try first.run("c.execute('COMMIT')")
        #expect(try rig.rescue(prefer: .group).run().outcome == .rescued)
        #expect(try rig.rows().count == 303)
    }

    /// A journal whose program turned journals off: it ended before the last write to the database.
    @Test func refusesALaterWriteThanTheJournals() throws {
        let first = try holder("PERSIST", exclusive: true)
        try rig.replace(rows: "(1, 'base')")
        // As a program with another way to write would: nothing in the journal, and time passes.
        try find("Notes.sqlite (deleted)", first)
        try first.run("os.utime(n, ns=(0, os.fstat(n).st_mtime_ns + 10**9))")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use")
        #expect(try rig.rows() == ["1=base"])
    }

    /// A transaction over two stores is decided by a file that belongs to both.
    @Test func leavesATransactionOverSeveralStoresAlone() throws {
        let first = try holder("PERSIST", exclusive: true)
        try rig.replace(rows: "(1, 'base')")
        let path = rig.store.directory.path.appending("Super-mj000000001")
        _ = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT, mode: 0o600)
        // The end of a journal that names it, as SQLite writes it.
        try find("Notes.sqlite-journal", first)
        try first.run("magic = bytes.fromhex('d9d505f920a163d7'); os.pwrite(n, magic + bytes(8), 0)")
        try first.run("s = (os.path.dirname(path) + '/Super-mj000000001').encode()")
        try first.run(
            "os.pwrite(n, s + len(s).to_bytes(4, 'big') + sum(s).to_bytes(4, 'big') + magic, os.fstat(n).st_size)")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue().run() }
        #expect(failure?.code == "in_use")
        #expect(FileStatus(following: path) != nil)
    }
}
