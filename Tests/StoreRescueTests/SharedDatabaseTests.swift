import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Two logs follow on one database, and a program writes one of them into it; or another log is put over the one that
/// programs use.
@Suite(.ownThreads) struct SharedDatabaseTests {
    private let rig: RescueRig
    /// Has lost its log in most tests.
    private let first: SQLiteHolder

    init() throws {
        rig = try RescueRig()
        first = try rig.holder()
        try first.insert(2, "first")
    }

    private func checkpoint(_ holder: SQLiteHolder, _ mode: String = "PASSIVE") throws {
        try holder.run("c.execute('PRAGMA wal_checkpoint(\(mode))').fetchall()")
    }

    private func refusals() -> [RelocationFailure?] {
        [
            #expect(throws: RelocationFailure.self) { try rig.rescue(prefer: .group).dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue(prefer: .group).run() },
        ]
    }

    /// One program has committed a row on a page that the other one frees in the database. SQLite finds no fault then.
    @Test(arguments: [true, false])
    func refusesALogWithRowsOnAPageThatAnotherProgramHasFreed(isBranch: Bool) throws {
        for id in 10..<50 { try first.run("c.execute('INSERT INTO t VALUES (\(id)0, zeroblob(3000))')") }
        // The freelist has a trunk with leaves from before the split.
        try first.run("c.execute('DELETE FROM t WHERE id BETWEEN 100 AND 150')")
        try checkpoint(first, "TRUNCATE")
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        let (freeing, writing) = isBranch ? (other, first) : (first, other)
        try writing.insert(305, "acknowledged")
        try freeing.run("c.execute('DELETE FROM t WHERE id = 300')")
        try checkpoint(freeing)
        // The log at the name stays: the program that has lost its own has the database open.
        try other.run("c.close()")
        for failure in refusals() {
            #expect(failure?.code == "branch_damaged" && failure?.message.contains("has freed") == true)
        }
        if isBranch { try first.run("assert c.execute('SELECT v FROM t WHERE id = 305').fetchone()") }
        #expect(try rig.archivedRows().isEmpty)
    }

    @Test func aLogMayFreeItsOwnPages() throws {
        for id in 10..<50 { try first.run("c.execute('INSERT INTO t VALUES (\(id)0, zeroblob(3000))')") }
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try first.run("c.execute('DELETE FROM t WHERE id BETWEEN 200 AND 400')")
        for id in 10..<20 { try first.run("c.execute('UPDATE t SET v = zeroblob(7000) WHERE id = \(id)0')") }
        try first.run("c.execute('DELETE FROM t WHERE id BETWEEN 100 AND 150')")
        try other.insert(3, "other")
        try other.end()
        #expect(try rig.rescue(prefer: .legacy).run().outcome == .rescued)
        #expect(try rig.rows().contains("3=other"))
    }

    @Test func saysThatOneSideMayHaveWrittenTheSharedDatabase() throws {
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.insert(3, "other")
        try other.end()
        for notes in [try rig.rescue().dryRun().notes, try rig.rescue().run().notes] {
            #expect(notes.contains { $0.contains("under another side's log") }, "\(notes)")
        }
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"])
    }

    @Test func saysNothingOfDatabasesThatAreNotShared() throws {
        try rig.renameAndCopy()
        try first.insert(3, "late")
        let report = try rig.rescue().run()
        #expect(report.notes == report.otherNotes)
    }

    /// A restore puts back an older log; the program's index has commits that it lacks, or that the database has.
    @Test(arguments: [true, false]) func refusesALogThatAnOlderOneWasPutOver(isCheckpointed: Bool) throws {
        let scratch = try TemporaryDirectory()
        let (log, copy) = (rig.path.appending(suffix: "-wal"), scratch.path.appending("copy"))
        #expect(try run("cp", [Word(log), Word(copy)]).status == 0)
        try checkpoint(first, "RESTART")
        for id in 3..<8 { try first.insert(id, "later") }
        if isCheckpointed { try checkpoint(first, "FULL") }
        rig.unlink("-shm")
        #expect(try run("cp", [Word(copy), Word(log)]).status == 0)
        for failure in refusals() {
            #expect(failure?.code == "branch_damaged" && failure?.message.contains("overwritten") == true)
        }
    }

    /// What a command would read with the log, a copy without it hasn't got.
    @Test func aRelocationLeavesALogThatABranchExplains() throws {
        let holders = [first, try rig.holder()]
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.changeFirstPage()
        try other.insert(3, "other")
        // Programs that commit in turn increment the change counter each time.
        for id in 4..<8 {
            try holders[id % 2].changeFirstPage()
            try holders[id % 2].insert(id, "first")
        }
        try checkpoint(first)
        try other.end()
        #expect(try rig.rescue().copyBranches().outcome == .copied)
        for holder in holders { try holder.kill() }
        try #require(try rig.store.foreignLog() != nil)
        let group = try TemporaryDirectory()
        var request = rig.request()
        request.group = group.path
        let failure = #expect(throws: RelocationFailure.self) { _ = try Relocation(request).run() }
        #expect(failure?.code == "foreign_log" && failure?.remedy.contains("groupstore rescue") == true)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"] + (4..<8).map { "\($0)=first" })
    }
}
