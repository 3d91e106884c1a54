import Foundation
import GRDB
import LinuxSystem
import RowShadow
import SystemPackage
import TestSupport
import Testing

@Suite struct ShadowReportTests {
    private static let note = "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 'a')"

    @Test func countsStepsAndDeletedRows() throws {
        let shadow = try FollowedShadow(Self.note)
        #expect(try shadow.place.reports(of: shadow.store).first?.log.first == nil)
        try shadow.write("INSERT INTO note VALUES (2, 'b'), (3, 'c')")
        _ = try shadow.steps()
        try shadow.write("BEGIN; DELETE FROM note WHERE id > 1; UPDATE note SET text = 'z'; COMMIT")
        _ = try shadow.steps()
        let report = try #require(try shadow.place.reports(of: shadow.store).first)
        #expect(report.log.steps == 2 && report.log.rows == 5 && report.log.deletedRows == 2)
        #expect(report.log.first?.number == 1 && report.log.last?.number == 2)
        #expect(report.epoch == shadow.follower?.shadow.epoch)
        #expect(report.size == shadow.follower?.shadow.size && report.logSize > 0)
    }

    @Test(arguments: ["wal", "delete"])
    func saysWhetherTheCopyHasTheStoresState(_ mode: String) throws {
        let shadow = try FollowedShadow(Self.note, mode: mode)
        _ = try shadow.steps()
        shadow.abandon()
        #expect(try shadow.place.reports(of: shadow.store).first?.agreement == .agrees)
        try shadow.write("UPDATE note SET text = 'z'")
        let report = try #require(try shadow.place.reports(of: shadow.store).first)
        guard case .differs(let pages) = report.agreement else {
            Issue.record("\(report.agreement)")
            return
        }
        #expect(pages > 0)
    }

    @Test func namesTheProgramThatFollows() throws {
        let shadow = try FollowedShadow(Self.note)
        let report = try #require(try shadow.place.reports(of: shadow.store).first)
        #expect(report.isUsed && report.user?.hasPrefix("\(getpid()) ") == true)
        shadow.abandon()
        let later = try #require(try shadow.place.reports(of: shadow.store).first)
        #expect(!later.isUsed && later.user == nil)
    }

    @Test func saysThatADamagedCopyDoesNotCount() throws {
        let shadow = try FollowedShadow(Self.note)
        shadow.abandon()
        let state = shadow.place.path.appending("0").appending("state")
        try Data([1, 2, 3]).write(to: URL(fileURLWithPath: state.string))
        let report = try #require(try shadow.place.reports(of: shadow.store).first)
        #expect(report.epoch == nil && report.agreement == .unknown && report.size > 0)
    }

    @Test func estimatesWithoutLeavingAFile() throws {
        let shadow = try FollowedShadow(Self.note)
        let state = shadow.directory.path.appending("other")
        let estimate = try ShadowEstimate(
            of: shadow.store, in: ShadowPlace(of: shadow.store, stateDirectory: state), measures: true)
        #expect(estimate.size == FileStatus(following: shadow.store)?.size)
        #expect(estimate.fits && estimate.measurement.map { $0.part == estimate.size } ?? true)
        #expect(FileStatus(following: state) == nil)
    }

    /// The database has one page less than the log.
    @Test func countsPagesThatAreOnlyInTheLog() throws {
        let shadow = try FollowedShadow(Self.note)
        let length = try #require(FileStatus(following: shadow.store)?.size)
        let queue = try DatabaseQueue(path: shadow.store.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: "INSERT INTO note VALUES (2, hex(zeroblob(10000)))") }
        let estimate = try ShadowEstimate(of: shadow.store, in: shadow.place, measures: false)
        #expect(FileStatus(following: shadow.store)?.size == length && estimate.size > length)
    }

    @Test func removesThePlaceWithItsCopies() throws {
        let shadow = try FollowedShadow(Self.note)
        shadow.abandon()
        let removal = try shadow.place.removeAll()
        #expect(removal.usedCount == 0 && removal.bytes > 0)
        #expect(FileStatus(following: shadow.place.path) == nil)
        #expect(try shadow.place.reports(of: shadow.store).isEmpty)
    }

    /// Its program was killed while it made the copy.
    @Test func removesCopiesThatWereNotCompleted() throws {
        let shadow = try FollowedShadow(Self.note)
        let state = shadow.directory.path.appending("state")
        do {
            let half = try shadow.place.takeSlot(epoch: nil)
            let pages = half.directory.path.appending("pages")
            try Data("half".utf8).write(to: URL(fileURLWithPath: pages.string))
            // It is being made.
            #expect(try shadow.place.reports(of: shadow.store).map { $0.epoch == nil } == [false, true])
            #expect(try KeptShadows.all(stateDirectory: state).first?.unusableCount == 0)
            try shadow.place.removeUnusable()
            #expect(FileStatus(following: pages) != nil && half.isFirst == false)
        }
        #expect(try KeptShadows.all(stateDirectory: state).first?.unusableCount == 1)
        _ = try shadow.place.takeSlot(epoch: nil)
        #expect(try shadow.place.reports(of: shadow.store).count == 1)
        #expect(try KeptShadows.all(stateDirectory: state).first?.unusableCount == 0)
    }

    /// It may also have been moved away with its directory.
    @Test func findsTheCopiesOfAStoreThatIsGone() throws {
        let shadow = try FollowedShadow(Self.note)
        let state = shadow.directory.path.appending("state")
        let used = try #require(try KeptShadows.all(stateDirectory: state).first)
        #expect(used.store == shadow.store && used.place == shadow.place.path && used.isUsed && !used.isOrphaned)
        #expect(used.count == 1 && used.unusableCount == 0 && used.size > 0 && used.lastUse > 0)
        shadow.abandon()
        try FileManager.default.removeItem(atPath: shadow.store.string)
        let orphan = try #require(try KeptShadows.all(stateDirectory: state).first)
        #expect(!orphan.isUsed && orphan.isOrphaned)
        #expect(orphan.removal == "groupstore rows disable \(shadow.store)")
        #expect(try shadow.place.removeAll().usedCount == 0)
        #expect(try KeptShadows.all(stateDirectory: state).isEmpty)
    }

    /// A link may lead to another store's copy, or to files that are no copy.
    @Test(arguments: ["", "0"]) func removesNothingBehindALink(_ name: String) throws {
        let shadow = try FollowedShadow(Self.note)
        shadow.abandon()
        let link = name.isEmpty ? shadow.place.path : shadow.place.path.appending(name)
        let moved = shadow.directory.path.appending("moved")
        try FileManager.default.moveItem(atPath: link.string, toPath: moved.string)
        try FileManager.default.createSymbolicLink(atPath: link.string, withDestinationPath: moved.string)
        let pages = (name.isEmpty ? moved.appending("0") : moved).appending("pages")
        let refusal = SystemError("open", .tooManySymbolicLinkLevels, path: link)
        #expect(throws: refusal) { try shadow.place.removeAll() }
        #expect(throws: refusal) { try shadow.place.reports(of: shadow.store) }
        #expect(FileStatus(following: pages) != nil)
        // Other stores' copies are listed beside it.
        let state = shadow.directory.path.appending("state")
        let other = shadow.directory.path.appending("t.db")
        let slot = try ShadowPlace(of: other, stateDirectory: state).takeSlot(epoch: nil)
        _ = try RowFollower(other, slot, limit: .max, within: .ample)
        let found = try KeptShadows.all(stateDirectory: state)
        #expect(found.map(\.error) == [refusal, nil] && found.last?.store == other)
    }

    @Test func removesNothingBehindALinkInAGroup() throws {
        let directory = try TemporaryDirectory()
        let place = ShadowPlace(of: "gone.db", inGroup: directory.path)
        _ = try place.takeSlot(epoch: nil)
        let rows = place.path.removingLastComponent()
        let moved = directory.path.appending("moved")
        try FileManager.default.moveItem(atPath: rows.string, toPath: moved.string)
        try FileManager.default.createSymbolicLink(atPath: rows.string, withDestinationPath: moved.string)
        let refusal = SystemError("open", .tooManySymbolicLinkLevels, path: rows)
        #expect(throws: refusal) { try place.removeAll() }
        #expect(try KeptShadows.all(inGroup: directory.path).map(\.error) == [refusal])
        #expect(FileStatus(following: moved.appending("gone.db").appending("0").appending("lock")) != nil)
    }

    /// The group's directory may be moved away for a while: nothing may be where it is to come back.
    @Test func makesNoDirectoryInPlaceOfAGroups() throws {
        let directory = try TemporaryDirectory()
        let (group, away) = (directory.path.appending("group"), directory.path.appending("away"))
        let place = ShadowPlace(of: "s.db", inGroup: group)
        func refusal() -> Errno? {
            let error = #expect(throws: SystemError.self) { _ = try place.takeSlot(epoch: nil) }
            return error?.errno
        }
        #expect(refusal() == .noSuchFileOrDirectory && FileStatus(following: group) == nil)
        try #require(mkdir(group.string, 0o700) == 0)
        let slot = try place.takeSlot(epoch: nil)
        #expect(slot.isInPlace)
        try #require(rename(group.string, away.string) == 0)
        #expect(!slot.isInPlace && refusal() == .noSuchFileOrDirectory && FileStatus(following: group) == nil)
        try #require(rename(away.string, group.string) == 0)
        #expect(slot.isInPlace)
    }

    @Test func findsTheCopiesInAGroup() throws {
        let directory = try TemporaryDirectory()
        #expect(try KeptShadows.all(inGroup: directory.path).isEmpty)
        let store = directory.path.appending("gone.db")
        let slot = try ShadowPlace(of: "gone.db", inGroup: directory.path).takeSlot(epoch: nil)
        let follower = try RowFollower(store, slot, limit: .max, within: .ample)
        let found = try #require(try KeptShadows.all(inGroup: directory.path).first)
        #expect(found.store == store && found.isOrphaned && found.isUsed)
        withExtendedLifetime(follower) {}
    }
}
