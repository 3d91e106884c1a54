import FileCoordination
import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
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
        try first.changeFirstPage()
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.run("c.execute('DELETE FROM t WHERE id = 3')")
        try other.insert(5, "e")
        try other.changeFirstPage()
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

    /// A program or a person copies a log to the store's name: all its times are new.
    enum Copy: CaseIterable {
        /// Of an earlier log, which was checkpointed since.
        case earlierLog, earlierLogThatIsRead
        /// Of the log that a program has open.
        case ownLog
    }

    @Test(arguments: Copy.allCases) func takesNoBaseBesideACopyOfALog(copy: Copy) throws {
        let saved = rig.path.appending(suffix: ".saved")
        func copyLog(from: String, to: String) throws {
            // Another process: a holder that closes a file of its own drops its locks.
            let (from, to) = (rig.path.appending(suffix: from), rig.path.appending(suffix: to))
            let done = try TestSupport.run("cp", [Word(from), Word(to)])
            guard done.status == 0 else { throw Unexpected("cp: \(done.errors)") }
        }
        let before = try rig.holder()
        try before.changeFirstPage()
        try before.run("c.execute('UPDATE t SET v = \"old\" WHERE id = 2')")
        try copyLog(from: "-wal", to: ".saved")
        try before.run("c.execute('UPDATE t SET v = \"new\" WHERE id = 2')")
        try before.insert(5, "e")
        try before.end()
        let first = try rig.holder()
        try first.insert(6, "f")
        try first.changeFirstPage()
        if copy == .ownLog { try copyLog(from: "-wal", to: ".saved") }
        guard Glibc.rename(saved.string, rig.path.string + "-wal") == 0 else { throw Unexpected("rename: \(errno)") }
        rig.unlink("-shm")
        if copy == .earlierLogThatIsRead { try rig.holder().kill() }
        let report = try rig.rescue(prefer: .legacy, splitMargin: .zero).run()
        guard case .none? = report.branches.first?.base else { throw Unexpected("a base beside a copy of \(copy)") }
        #expect(try rig.rows() == ["1=base", "2=new", "3=c", "4=d", "5=e", "6=f"])
    }

    /// Nothing shows on which state such a log follows.
    @Test func takesNoBaseIfALogDoesNotChangeTheFirstPage() throws {
        let first = try rig.holder()
        try first.run("c.execute('DELETE FROM t WHERE id = 2')")
        rig.unlink("-wal", "-shm")
        let report = try rig.rescue(splitMargin: .zero).run()
        guard case .none(let reason)? = report.branches.first?.base else { throw Unexpected("a base") }
        #expect(reason.contains("first page"))
        #expect(try rig.rows() == ["1=base", "2=b", "3=c", "4=d"])
    }

    /// Whatever happens before, the first transaction in WAL mode that changes page 1 counts one up.
    @Test(arguments: [
        "INSERT INTO t VALUES (9, zeroblob(9000))",
        "UPDATE t SET v = 'x'; INSERT INTO t VALUES (9, zeroblob(9000)); INSERT INTO t VALUES (10, zeroblob(9000))",
        "BEGIN; INSERT INTO t VALUES (9, zeroblob(9000)); ROLLBACK; CREATE TABLE u (a)",
        "PRAGMA cache_size = 1; BEGIN; INSERT INTO t VALUES (9, zeroblob(90000)); ROLLBACK; VACUUM",
        "BEGIN; SAVEPOINT s; INSERT INTO t VALUES (9, zeroblob(9000)); ROLLBACK TO s; PRAGMA user_version = 5; COMMIT",
        "PRAGMA locking_mode = EXCLUSIVE; INSERT INTO t VALUES (9, zeroblob(9000))",
        "PRAGMA locking_mode = EXCLUSIVE; UPDATE t SET v = 'x'; PRAGMA locking_mode = NORMAL; DROP TABLE t",
    ])
    func aLogShowsOnWhichStateItFollows(script: String) throws {
        let store = try rig.store.directory.open(rig.store.name.database, flags: O_RDONLY)
        let former = try #require(DatabaseHeader(try store.read(count: DatabaseHeader.length, at: 0)))
        let writer = try StoreWriter(rig.path)
        try writer.execute(script: "PRAGMA wal_autocheckpoint = 0; " + script)
        let log = try rig.store.directory.open(rig.store.name.wal, flags: O_RDONLY)
        let first = try #require(try WriteAheadLog.Origin(log, path: rig.path)?.header)
        #expect(former.versionValidFor == former.changeCounter && first.versionValidFor == first.changeCounter)
        #expect(first.changeCounter == former.changeCounter + 1)
        try writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }
}
