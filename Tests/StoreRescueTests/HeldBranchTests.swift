import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// A copy is removed because a program has the branch open, and the program ends at that moment.
@Suite(.ownThreads) struct HeldBranchTests {
    private let rig: RescueRig
    private let first: SQLiteHolder
    private let container: GroupContainer

    init() throws {
        rig = try RescueRig()
        first = try rig.holder()
        try first.insert(2, "first")
        rig.unlink("-wal", "-shm")
        container = try Relocation.container(at: rig.store.directory.path)
    }

    private var branch: OrphanedBranch { get throws { try #require(OrphanedBranch.find(rig.store).first) } }

    /// Returns the directory of a run.
    private func run(_ name: FilePath.Component = "7-a") throws -> Directory {
        try GroupContainer.child(name, of: GroupContainer.child("rescue", of: container.bookkeeping()))
    }

    /// Makes the beginning of a copy of a branch.
    private func unfinished(_ branch: OrphanedBranch, in run: Directory) throws -> FilePath {
        let place = try GroupContainer.child("branch-0", of: run)
        try BranchRecord(name: rig.store.name.database, branch: branch.record).write(in: place)
        try rig.sql(place.path.appending("building"), "CREATE TABLE part (y)")
        return place.path.appending("building")
    }

    @Test func filesOfAProgramThatEndsTakeThePlaceOfTheCopy() throws {
        let branch = try branch
        let run = try run()
        let file = try unfinished(branch, in: run)
        let held = try HeldBranch(branch)
        try first.kill()
        let record = BranchRecord(name: rig.store.name.database, branch: branch.record)
        #expect(try !held.discard("branch-0", in: run, record))
        #expect(try SavedBranches(container).unfinished().map { $0?.name } == [rig.store.name.database])
        #expect(try rig.rows(file) == ["1=base", "2=first"])
    }

    @Test func aBranchIsCopiedWhoseProgramEndsMeanwhile() throws {
        func copied() throws -> FilePath {
            let branch = try branch
            let held = try HeldBranch(branch)
            try first.kill()
            return try BranchCopies.copy(branch, 0, of: rig.store, in: run(), recording: true, held).location.path
        }
        #expect(try rig.rows(copied()) == ["1=base", "2=first"])
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first"])
    }

    @Test func aCopyIsRemovedWhileItsProgramRuns() throws {
        let branch = try branch
        let run = try run()
        let file = try unfinished(branch, in: run)
        let record = BranchRecord(name: rig.store.name.database, branch: branch.record)
        #expect(try HeldBranch(branch).discard("branch-0", in: run, record))
        #expect(FileStatus(following: file.removingLastComponent()) == nil)
        try first.end()
    }

    /// The look that finds the program is a moment older than the removal.
    @Test(arguments: [nil, "7-a"]) func aCopyStaysIfItsProgramHasEndedSinceTheLook(kept: String?) throws {
        let branches = try [branch]
        let file = try unfinished(branches[0], in: run())
        try first.kill()
        let notes = try BranchSettlement(container).run(
            of: rig.store.name.database, keeping: kept.flatMap { TransferIdentifier($0) }, isOpen: { _ in true },
            discard: branches.discard)
        #expect(FileStatus(following: file) != nil)
        #expect(notes.contains { $0.contains(file.removingLastComponent().string) }, "\(notes)")
    }

    /// A program that closes its lost log writes it to the store, and removes the log at the name.
    @Test(arguments: [false, true]) func theStoresCopyStaysIfAProgramHasClosedItsLog(hasClosed: Bool) throws {
        let other = try rig.holder()
        try other.insert(3, "other")
        try other.kill()
        let branches = try [branch]
        let record = ArchiveNote.Branch(database: try branch.record.database, log: nil, holders: "programs")
        let run = try run()
        _ = try BranchCopies.name(
            of: rig.store, without: rig.store.foreign(branches, []), branches, in: run,
            record: BranchRecord(name: rig.store.name.database, branch: record))
        let open = branches.map(\.record)
        if hasClosed { try first.run("c.close()") }
        _ = try BranchSettlement(container).run(of: nil, isOpen: { $0.isOpen(open) }, discard: branches.discard)
        let rows = try SavedBranches(container).copies().map { try rig.rows($0.location.path) }
        #expect(rows == (hasClosed ? [["1=base", "3=other"]] : []))
        try first.end()
    }

    /// Two rescues run at once: the one with the earlier copy goes on after the other has made its own.
    @Test(arguments: [false, true]) func theCopyThatWasBegunLastCounts(isArchivedLast: Bool) throws {
        let branch = try branch
        func copy(in run: Directory) throws -> FilePath {
            try BranchCopies.copy(branch, 0, of: rig.store, in: run, recording: true).location.path
        }
        let early = try copy(in: run())
        try first.insert(3, "late")
        let late = try copy(in: run("8-b"))
        let settlement = BranchSettlement(container)
        _ = try settlement.run(
            of: nil, keeping: TransferIdentifier("7-a"), isOpen: { $0.isOpen([branch.record]) },
            discard: { _, _ in false })
        #expect(FileStatus(following: early) != nil && FileStatus(following: late) != nil)

        try first.kill()
        for waiting in [isArchivedLast ? late : early, nil] {
            _ = try settlement.run(of: nil, isOpen: { $0.location.path == waiting }, discard: { _, _ in false })
        }
        #expect(try rig.rescue().run().outcome == .rescued)
        #expect(try rig.rows() == ["1=base", "2=first", "3=late"])
        #expect(try rig.rescue().run().outcome == .nothingToDo)
    }

    /// The copy may be another rescue's, while which this one can't make any.
    @Test func aFailureSaysThatAProgramHasCommittedSinceItsCopy() throws {
        let failure = RelocationFailure(.busy, code: "busy", "a program has the store open", remedy: "close it")
        pause(FileTime.resolution * 2)
        let copy = try BranchCopies.copy(branch, 0, of: rig.store, in: run(), recording: true).location.directory.path
        let whole = failure.described(of: rig.store).message
        #expect(whole.contains("has committed until now is kept in \(copy)"), "\(whole)")
        try first.insert(3, "late")
        let older = failure.described(of: rig.store).message
        #expect(older.contains("is kept in \(copy), and it has written since"), "\(older)")
    }

    /// A whole copy that was begun earlier hasn't got what the program has committed since.
    @Test(arguments: [false, true]) func anUnfinishedCopyStaysUnlessALaterOneIsWhole(isLater: Bool) throws {
        let branch = try branch
        func copy() throws { _ = try rig.rescue().copyBranches() }
        if !isLater { try copy() }
        let file = try unfinished(branch, in: run())
        if isLater {
            // A later copy removes an unfinished one while the program runs: it is made aside.
            let place = try run("8-b")
            _ = try BranchCopies.copy(branch, 0, of: rig.store, in: place, recording: true)
        }
        try first.kill()
        for _ in 0..<2 {
            _ = try StoreRescue.interrupted(in: rig.store.directory.path, settling: true, rig.request())
        }
        #expect((FileStatus(following: file) == nil) == isLater)
    }
}
