import Glibc
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import TestSupport
import Testing

@testable import StoreRescue

@Suite(.ownThreads) struct StoreRescueTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
    }

    @Test func changesNothingWhereNothingIsLost() throws {
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        let holder = try rig.holder()
        try holder.insert(2, "p")
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try rig.entries == ["Notes.sqlite", "Notes.sqlite-shm", "Notes.sqlite-wal"])
    }

    /// The other program ends or is killed: its log is gone or stays.
    @Test(arguments: [false, true]) func joinsALostLogWhileItsProgramRuns(otherIsKilled: Bool) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.insert(3, "other")
        try first.insert(4, "first again")
        if otherIsKilled { try other.kill() } else { try other.end() }
        let report = try rig.rescue().run()
        #expect(report.outcome == .rescued && report.branches.map(\.commits) == [2])
        #expect(try rig.rows() == ["1=base", "2=first", "3=other", "4=first again"])
        let archived = try rig.archivedRows()
        #expect(archived == [["1=base", "2=first", "4=first again"], ["1=base", "3=other"]])
        #expect(report.remaining.map(\.code) == [.orphanedDatabase])
        // The program goes on, and so does its hazard.
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try rig.archivedRows() == archived)
        try first.insert(5, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().last == "5=late")
        try first.end()
        #expect(try rig.rescue().run().branches.isEmpty)
        #expect(try rig.rows().count == 5)
    }

    /// A merge takes rows.
    @Test func namesTheObjectsThatOnlyTheBranchHas() throws {
        let first = try rig.holder()
        try first.run("c.execute('CREATE VIEW v AS SELECT * FROM t'); c.execute('CREATE INDEX i ON t (v)')")
        try first.run("c.execute('CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END')")
        rig.unlink("-wal", "-shm")
        let note = "only the branch has the view v, the trigger r, the index i: not in the result"
        #expect(try rig.rescue().dryRun().otherNotes == [note])
        #expect(try rig.rescue().run().otherNotes == [note])
    }

    @Test(arguments: ["-wal", "-shm"]) func joinsABranchThatLostOneFile(suffix: String) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink(suffix)
        try first.insert(3, "first again")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=first again"])
        try first.insert(4, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().last == "4=late")
    }

    /// A store is moved over the first one, alone or after the log was removed.
    @Test(arguments: [false, true]) func joinsAFormerDatabase(logIsRemoved: Bool) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        if logIsRemoved { rig.unlink("-wal", "-shm") }
        try rig.replace(rows: "(1, 'base'), (7, 'new')")
        try first.insert(3, "first again")
        if logIsRemoved { try rig.sql(rig.path, "INSERT INTO t VALUES (8, 'other')") }
        #expect(try rig.rescue().run().outcome == .rescued)
        let expected = ["1=base", "2=first", "3=first again", "7=new"] + (logIsRemoved ? ["8=other"] : [])
        #expect(try rig.rows() == expected)
        try first.insert(4, "late")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().contains("4=late"))
    }

    @Test func putsARemovedStoreBack() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("", "-wal", "-shm")
        try first.insert(3, "first again")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=first again"])
        #expect(try rig.archivedRows() == [["1=base", "2=first", "3=first again"]])
    }

    @Test func aDryRunNamesTheRowsAndChangesNothing() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        try first.insert(3, "first")
        rig.unlink("-wal", "-shm")
        try rig.sql(rig.path, "INSERT INTO t VALUES (4, 'other')")
        let before = try rig.entries
        let report = try rig.rescue().dryRun()
        let table = try #require(report.branches.first?.changes?.tables.first)
        #expect(table.came == 2 && table.went == 1 && table.changed == 0)
        #expect(report.branches.first?.holders.map(\.pid) == [first.pid])
        #expect(try rig.entries == before)
        #expect(try rig.rows() == ["1=base", "4=other"])
    }

    @Test func refusesRowsInConflictAndListsAllOfThem() throws {
        let first = try rig.holder()
        rig.unlink("-wal", "-shm")
        for id in 2...9 {
            try first.insert(id, "first")
            try rig.sql(rig.path, "INSERT INTO t VALUES (\(id), 'other')")
        }
        var listed: [String] = []
        let failure = #expect(throws: RelocationFailure.self) {
            try StoreRescue(
                rig.store, .init(), rig.request(),
                report: { event in
                    guard case .merging(let report) = event else { return }
                    listed = report.entities.flatMap(\.samplesDifferent).map { "\($0.key[0].value)" }
                }
            ).run()
        }
        #expect(failure?.code == "merge_undecided" && failure?.kind == .badData)
        #expect(listed.count == 8)
        #expect(try rig.rows().dropFirst().allSatisfy { $0.hasSuffix("=other") })
        #expect(try rig.archivedRows().isEmpty)
        #expect(try rig.rescue(prefer: .legacy).run().outcome == .rescued)
        #expect(try rig.rows().dropFirst().allSatisfy { $0.hasSuffix("=first") })
        #expect(try rig.archivedRows().contains { $0.contains("2=other") })
    }

    /// Two branches that are in conflict with each other only.
    @Test func saysWhichBranchesEachPlanIsAbout() throws {
        let first = try rig.holder()
        rig.unlink("-wal", "-shm")
        try first.insert(2, "first")
        let second = try rig.holder()
        rig.unlink("-wal", "-shm")
        try second.insert(2, "second")
        var events: [String] = []
        let failure = #expect(throws: RelocationFailure.self) {
            try StoreRescue(
                rig.store, .init(), rig.request(),
                report: { event in
                    switch event {
                    case .note(let text): events.append(text)
                    case .merging(let report): events.append("\(report.sum(\.different))")
                    default: break
                    }
                }
            ).dryRun()
        }
        #expect(failure?.code == "merge_undecided")
        let names = OrphanedBranch.find(rig.store).map(\.holders.list)
        #expect(
            events == [
                "what \(names[0]) has committed, beside the store:", "0",
                "what \(names[1]) has committed, beside the store with the rows of \(names[0]):", "1",
            ])
        try second.kill()
    }

    @Test func anotherProgramWithTheStoreOpenIsNamed() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.insert(3, "other")
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue(deadline: .zero).run() }
        #expect(failure?.code == "in_use" && failure?.holders.map(\.pid) == [other.pid])
        #expect(try rig.archivedRows().isEmpty)
        try other.insert(4, "other again")
        try other.end()
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other", "4=other again"])
    }

    /// Both programs use the index that has kept its name. The one with the lost log must go on until the other one has
    /// closed the store.
    @Test func aProgramWithABranchIsNotAskedToCloseIt() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal")
        let other = try SQLiteHolder(rig.path)
        // It finds no frame in the new log where the index says.
        try other.run(#"exec("try: c.execute('SELECT * FROM t')\nexcept sqlite3.Error: pass")"#)
        let failure = #expect(throws: RelocationFailure.self) { try rig.rescue(deadline: .zero).run() }
        #expect(failure?.code == "in_use" && failure?.holders.map(\.pid) == [other.pid])
        #expect(failure?.message.contains("keep it running") == true, "\(failure?.message ?? "")")
        #expect(failure?.remedy.contains("(pid \(other.pid))") == true, "\(failure?.remedy ?? "")")
        #expect(try rig.archivedRows().isEmpty)
        try first.insert(3, "later")
        try other.end()
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=later"])
    }

    /// A branch of a process that has ended is no success, even if it was there a moment before.
    @Test func aProgramThatEndsBeforeItsFilesAreCopiedIsALoss() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        let branch = try #require(OrphanedBranch.find(rig.store).first)
        try first.kill()
        let place = try TemporaryDirectory()
        #expect(throws: BranchFile.Lost.self) {
            _ = try BranchCopy(
                branch.database, branch.log, ownWriters: true, in: Directory(place.path), of: rig.path, subject: "it")
        }
        #expect(try rig.rescue().run().branches.isEmpty)
    }

    /// Another rescue has replaced the store, or a program its log.
    @Test(arguments: [false, true]) func aStoreThatIsReplacedWhileItIsCopiedIsBusy(hasLog: Bool) throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        let database = try #require(FileStatus(following: rig.path)).identity
        let other = FileIdentity(device: database.device, inode: .max)
        let log = BranchFile(path: rig.path.appending(suffix: "-wal"), identity: other)
        let place = try TemporaryDirectory()
        let failure = #expect(throws: RelocationFailure.self) {
            _ = try BranchCopy(
                BranchFile(path: rig.path, identity: hasLog ? database : other), hasLog ? log : nil,
                ownWriters: false, in: Directory(place.path), of: rig.path, subject: "it")
        }
        #expect(failure?.kind == .busy && failure?.code == "in_use")
    }

    /// The frames of an open transaction may be in the log already.
    @Test func takesNoPartOfATransaction() throws {
        let first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        try first.run("c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')")
        try first.run(
            "c.executemany('INSERT INTO t VALUES (?, ?)', [(i, 'x' * 900) for i in range(100, 400)])")
        #expect((FileStatus(following: rig.path)?.size ?? 0) > 0)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
        try first.run("c.execute('COMMIT')")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().count == 302)
    }
}
