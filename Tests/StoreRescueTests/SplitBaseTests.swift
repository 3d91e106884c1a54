import FileCoordination
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Rescues of branches whose last common state with the store is proved, or isn't.
@Suite(.ownThreads, .enabled(if: RescueRig.hasTimes, "needs a file system whose times prove something"))
struct SplitBaseTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
        try rig.sql(rig.path, "INSERT INTO t VALUES (2, 'b'), (3, 'c'), (4, 'd')")
    }

    private func split() throws -> (first: SQLiteHolder, other: SQLiteHolder) {
        let first = try rig.holder()
        try first.run("c.execute('DELETE FROM t WHERE id = 2'); c.execute('UPDATE t SET v = \"D\" WHERE id = 4')")
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.run("c.execute('DELETE FROM t WHERE id = 3')")
        try other.insert(5, "e")
        return (first, other)
    }

    /// What happens until the store is joined.
    enum Course: CaseIterable {
        case otherIsKilled, otherCloses, otherClosesWhenAsked, branchCommits
    }

    @Test(arguments: Tier.cases(Course.allCases, quick: [.otherIsKilled, .branchCommits]))
    func joinsWithTheCommonBase(course: Course) throws {
        let (first, other) = try split()
        #expect(try rig.rescue(splitMargin: .zero).dryRun().branches.map(\.base) == [.proved])
        var registry = InProcessRegistry()
        switch course {
        case .otherIsKilled: try other.kill()
        case .otherCloses: try other.end()
        case .otherClosesWhenAsked, .branchCommits:
            registry = try rig.presenting(other) {
                try? (course == .branchCommits ? first : other).insert(6, "f")
                try? other.run("c.close()")
            }
        }
        let report = try rig.rescue(registry: registry, splitMargin: .zero).run()
        #expect(report.branches.map(\.base) == [.proved] && report.merge?.deletedByOneSide == 2)
        let late = course == .otherClosesWhenAsked || course == .branchCommits ? ["6=f"] : []
        #expect(try rig.rows() == ["1=base", "4=D", "5=e"] + late)
        // What was deleted is in the archive.
        let branch = ["1=base", "3=c", "4=D"] + (course == .branchCommits ? late : [])
        #expect(try rig.archivedRows().contains(branch))
        try first.insert(7, "late")
        #expect(try rig.rescue(splitMargin: .zero).run().branches.map(\.base) == [.none(SplitBase.otherFile)])
        #expect(try rig.rows().last == "7=late")
    }

    enum Doubt: CaseIterable {
        case branchCheckpoints, storeIsCheckpointed, branchCloses, branchIsKilled, writtenShortlyBefore, modeIsChanged
    }

    /// Whatever else happens, a row that one side still has is in the result.
    @Test(arguments: Tier.cases(Doubt.allCases, quick: [.storeIsCheckpointed, .branchIsKilled]))
    func joinsWithoutABaseInDoubt(doubt: Doubt) throws {
        let (first, other) = try split()
        _ = try rig.rescue(splitMargin: .zero).copyBranches()
        switch doubt {
        case .branchCheckpoints: try first.run("c.execute('PRAGMA wal_checkpoint')")
        case .storeIsCheckpointed: try other.run("c.execute('PRAGMA wal_checkpoint')")
        case .branchCloses: try first.end()
        case .branchIsKilled: try first.kill()
        case .writtenShortlyBefore: break
        // A change of the file's status that no program can hide, and that is none of its content.
        case .modeIsChanged: chmod(rig.path.string, 0o640)
        }
        try other.kill()
        let report = try rig.rescue(
            prefer: .group, splitMargin: doubt == .writtenShortlyBefore ? SplitProof.margin : .zero
        ).run()
        let base = try #require(report.branches.first?.base)
        guard case .none = base else { throw Unexpected("a base, though \(doubt)") }
        #expect(try rig.rows().map { String($0.prefix(1)) } == ["1", "2", "3", "4", "5"])
    }
}
