import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// What is at the store's name is no store, or not only this one's.
@Suite(.ownThreads) struct StoreAtNameTests {
    private let rig: RescueRig
    private let first: SQLiteHolder

    init() throws {
        rig = try RescueRig()
        first = try rig.holder()
        try first.insert(2, "first")
    }

    private func rename(_ path: FilePath, to other: FilePath) throws {
        guard Glibc.rename(path.string, other.string) == 0 else { throw Unexpected("rename: \(errno)") }
    }

    @Test func namesTheOtherNameOfAHardLinkedDatabase() throws {
        let other = rig.path.removingLastComponent().appending("other.db")
        #expect(link(rig.path.string, other.string) == 0)
        rig.unlink("-wal", "-shm")
        let failures = [
            #expect(throws: RelocationFailure.self) { try rig.rescue().dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().run() },
        ]
        for failure in failures {
            #expect(failure?.code == "hard_linked" && failure?.message.contains(other.string) == true)
            #expect(failure?.remedy.hasSuffix("rm \(other.shellWord)") == true)
        }
        #expect(try rig.archivedRows().isEmpty)
        #expect(unlink(other.string) == 0)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
    }

    @Test func putsTheStoreInThePlaceOfAnEmptyFile() throws {
        let empty = rig.path.removingLastComponent().appending("empty")
        _ = try Descriptor(opening: empty, flags: O_WRONLY | O_CREAT, mode: 0o600)
        try rename(empty, to: rig.path)
        try first.insert(3, "late")
        #expect(try rig.rescue().dryRun().outcome == .rescued)
        #expect(FileStatus(following: rig.path)?.size == 0)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
        try first.insert(4, "later")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows().last == "4=later")
    }

    /// Removes two programs' log, commits beside it, and then lets it be checkpointed into the database: the log at the
    /// name looks like another database's. Programs that commit in turn increment the change counter each time.
    private func checkpointUnderAnotherLog(_ holders: [SQLiteHolder]) throws {
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.changeFirstPage()
        try other.insert(3, "other")
        for id in 4..<8 {
            try holders[id % 2].changeFirstPage()
            try holders[id % 2].insert(id, "first")
        }
        try holders[0].run("c.execute('PRAGMA wal_checkpoint(PASSIVE)').fetchall()")
        try other.end()
        #expect(try rig.store.foreignLog() != nil)
    }

    /// The programs with the lost log run, or were killed once their branch was copied.
    @Test(arguments: [false, true]) func keepsTheRowsOfALogThatACheckpointHasContradicted(areKilled: Bool) throws {
        let holders = [first, try rig.holder()]
        try checkpointUnderAnotherLog(holders)
        #expect(try rig.rescue().copyBranches().outcome == .copied)
        if areKilled { try holders.forEach { try $0.kill() } }
        let plan = try rig.rescue().dryRun().merge
        let result = try rig.rescue().run()
        #expect(result.outcome == .rescued)
        #expect(result.merge?.entities.map(\.onlyLegacy) == plan?.entities.map(\.onlyLegacy))
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"] + (4..<8).map { "\($0)=first" })
    }

    /// Nothing shows whose the log is: SQLite replays it, and groupstore would leave it out.
    @Test func refusesALogThatNoBranchExplains() throws {
        rig.unlink("-wal", "-shm")
        try rig.replace(rows: "(1, 'base')")
        try rig.sql(rig.path, "PRAGMA journal_mode = WAL")
        let holders = [try rig.holder(), try rig.holder()]
        try checkpointUnderAnotherLog(holders)
        for holder in holders { try holder.kill() }
        for failure in [
            #expect(throws: RelocationFailure.self) { try rig.rescue().dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().run() },
        ] { #expect(failure?.code == "foreign_log") }
        #expect(try rig.store.foreignLog() != nil)
        try rig.sql(rig.path, "PRAGMA wal_checkpoint(TRUNCATE)")
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=other"])
    }

    enum Obstacle: CaseIterable { case danglingLink, linkToAStore, directory, pipe }

    /// The branch is copied nevertheless: its program may end before the name is free.
    @Test(arguments: Obstacle.allCases)
    func copiesTheBranchOfAStoreWhoseNameSomethingElseHas(obstacle: Obstacle) throws {
        let other = rig.path.appending(suffix: ".other")
        if obstacle == .linkToAStore { try rig.sql(other, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)") }
        rig.unlink("")
        let code: String
        switch obstacle {
        case .danglingLink: (code, _) = ("dangling_link", symlink("nowhere/Notes.sqlite", rig.path.string))
        case .linkToAStore: (code, _) = ("symbolic_link", symlink(other.string, rig.path.string))
        case .directory: (code, _) = ("not_a_file", mkdir(rig.path.string, 0o755))
        case .pipe: (code, _) = ("not_a_file", mkfifo(rig.path.string, 0o644))
        }
        for failure in [
            #expect(throws: RelocationFailure.self) { try rig.rescue().dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue().run() },
        ] {
            #expect(failure?.code == code && failure?.message.contains("pid \(first.pid)") == true)
        }
        try first.kill()
        #expect(remove(rig.path.string) == 0)
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
    }

    @Test func refusesDatabasesThatHaveChangedPlaces() throws {
        let scratch = try TemporaryDirectory()
        let other = scratch.path.appending("Other.sqlite")
        try rig.sql(other, "PRAGMA journal_mode = WAL", "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        let second = try SQLiteHolder(other)
        try second.insert(9, "second")
        let free = scratch.path.appending("free")
        func swap() throws {
            try rename(rig.path, to: free)
            try rename(other, to: rig.path)
            try rename(free, to: other)
        }
        try swap()
        for failure in [
            #expect(throws: RelocationFailure.self) { try rig.rescue(prefer: .group).dryRun() },
            #expect(throws: RelocationFailure.self) { try rig.rescue(prefer: .group).run() },
        ] {
            #expect(failure?.code == "swapped" && failure?.message.contains(other.string) == true)
        }
        try swap()
        #expect(try rig.rescue().run().outcome == .nothingToDo)
        #expect(try rig.rows() == ["1=base", "2=first"])
        try second.end()
    }

    /// A program that begins its log anew all the time could otherwise never be copied.
    @Test func aReadersLocksKeepALogFromBeingBegunAnew() throws {
        rig.unlink("-wal", "-shm")
        let branch = try #require(OrphanedBranch.find(rig.store).first)
        let index = try #require(branch.indexFile)
        func restart(isBusy: Bool) throws {
            try first.run("assert c.execute('PRAGMA wal_checkpoint(RESTART)').fetchone()[0] == \(isBusy ? 1 : 0)")
        }
        try first.run("c.execute('PRAGMA busy_timeout = 0')")
        let lock = BranchReadLock(branch.database, index)
        #expect(lock != nil)
        try withExtendedLifetime(lock) {
            try first.insert(3, "late")
            try restart(isBusy: true)
        }
        _ = consume lock
        try restart(isBusy: false)
    }
}
