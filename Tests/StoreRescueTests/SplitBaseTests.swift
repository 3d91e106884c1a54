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

/// Rescues with the database that the logs share as the common base, and without.
@Suite(.ownThreads, .enabled(if: RescueRig.hasTimes, "needs a file system whose times show every write"))
struct SplitBaseTests {
    private let rig: RescueRig

    init() throws {
        rig = try RescueRig()
        try rig.sql(rig.path, "INSERT INTO t VALUES (2, 'b'), (3, 'c'), (4, 'd')")
    }

    /// - Parameter isSmall: True if no commit changes page 1.
    private func split(isSmall: Bool = false) throws -> (first: SQLiteHolder, other: SQLiteHolder) {
        let first = try rig.holder()
        try first.run("c.execute('DELETE FROM t WHERE id = 2'); c.execute('UPDATE t SET v = \"D\" WHERE id = 4')")
        if !isSmall { try first.changeFirstPage() }
        rig.unlink("-wal", "-shm")
        let other = try rig.holder()
        try other.run("c.execute('DELETE FROM t WHERE id = 3')")
        try other.insert(5, "e")
        if !isSmall { try other.changeFirstPage() }
        return (first, other)
    }

    @Test func deletesNothingUnlessABaseIsAskedFor() throws {
        let (first, other) = try split()
        defer { withExtendedLifetime(first) {} }
        try other.kill()
        let report = try rig.rescue(prefer: .legacy).run()
        #expect(report.merge?.base.isEmpty == true && report.merge?.deletedByOneSide == 0)
        #expect(try rig.rows() == ["1=base", "2=b", "3=c", "4=D", "5=e"])
        // It is the store's own log.
        #expect(report.otherNotes.isEmpty)
    }

    /// A log without page 1 contradicts no base.
    @Test func takesABaseOfSmallCommits() throws {
        let (first, other) = try split(isSmall: true)
        defer { withExtendedLifetime(first) {} }
        try other.kill()
        let report = try rig.rescue(baseMargin: .zero).run()
        #expect(report.merge?.deletedByOneSide == 2 && report.merge?.changedByOneSide == 1 && report.notes.isEmpty)
        #expect(try rig.rows() == ["1=base", "4=D", "5=e"])
    }

    /// What happens until the store is joined.
    enum Course: CaseIterable {
        case otherIsKilled, otherCloses, otherClosesWhenAsked, branchCommits
    }

    @Test(arguments: Tier.cases(Course.allCases, quick: [.otherIsKilled, .branchCommits]))
    func joinsWithTheCommonBase(course: Course) throws {
        let (first, other) = try split()
        #expect(try rig.rescue(baseMargin: .zero).dryRun().merge?.deletedByOneSide == 2)
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
        let report = try rig.rescue(registry: registry, baseMargin: .zero).run()
        #expect(report.merge?.deletedByOneSide == 2 && report.notes.isEmpty)
        let late = course == .otherClosesWhenAsked || course == .branchCommits ? ["6=f"] : []
        #expect(try rig.rows() == ["1=base", "4=D", "5=e"] + late)
        // What was deleted is in the archive.
        let branch = ["1=base", "3=c", "4=D"] + (course == .branchCommits ? late : [])
        #expect(try rig.archivedRows().contains(branch))
        try first.insert(7, "late")
        try refuses("another database file")
        _ = try rig.rescue().run()
        #expect(try rig.rows().last == "7=late")
    }

    /// Expects that a join with a base is refused, and that nothing is changed.
    private func refuses(_ reason: String, baseMargin: Duration = .zero) throws {
        let before = try rig.rows()
        for isDry in [true, false] {
            let failure = #expect(throws: RelocationFailure.self) {
                let rescue = rig.rescue(prefer: .group, baseMargin: baseMargin)
                _ = try isDry ? rescue.dryRun() : rescue.run()
            }
            #expect(failure?.code == "no_common_base" && failure?.kind == .badData)
            #expect(failure?.message.contains(reason) == true, "\(failure?.message ?? "")")
        }
        #expect(try rig.rows() == before)
    }

    enum Contradiction: String, CaseIterable {
        case branchCheckpoints = "written to after", storeIsCheckpointed = "was written to"
        case branchCloses = "program of a branch", branchIsKilled = "branch has ended"
        case writtenShortlyBefore = "shortly before", modeIsChanged = "after a log was created"
    }

    /// Whatever else happens, a row that one side still has is in the result without a base.
    @Test(arguments: Tier.cases(Contradiction.allCases, quick: [.storeIsCheckpointed, .branchIsKilled]))
    func refusesABaseThatIsContradicted(doubt: Contradiction) throws {
        let (first, other) = try split()
        _ = try rig.rescue(baseMargin: .zero).copyBranches()
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
        try refuses(
            doubt.rawValue, baseMargin: doubt == .writtenShortlyBefore ? BaseContradiction.margin : .zero)
        _ = try rig.rescue(prefer: .group).run()
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
        try refuses("common base")
        _ = try rig.rescue(prefer: .legacy).run()
        #expect(try rig.rows() == ["1=base", "2=new", "3=c", "4=d", "5=e", "6=f"])
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
