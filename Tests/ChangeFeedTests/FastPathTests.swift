import SystemPackage
import TestSupport
import Testing

@testable import ChangeFeed

@Suite(.ownThreads) struct FastPathTests {
    @Test func publishesAVisibleCommitAtOnce() {
        var path = FastPath()
        #expect(path.leavesIndexUnread)
        #expect(path.indexWasRead(showsCommit: true, needsEvents: false) == .publish)
        #expect(path.hasPublished && !path.leavesIndexUnread)
        let isUnreported = path.pollEnded()
        #expect(!isUnreported)
        #expect(path == FastPath())
    }

    @Test func leavesAnInvisibleCommitToThePoll() {
        var path = FastPath()
        #expect(path.indexWasRead(showsCommit: false, needsEvents: false) == .poll)
        #expect(!path.hasPublished)
        // The poll need not wait for it a second time.
        #expect(!path.leavesIndexUnread)
        let isUnreported = path.pollEnded()
        #expect(!isUnreported)
    }

    @Test func publishesOnceTheEventsAreRead() {
        var path = FastPath()
        #expect(path.indexWasRead(showsCommit: true, needsEvents: true) == .readEvents)
        #expect(!path.hasPublished)
        #expect(path.eventsWereRead() == .publish)
        #expect(path.hasPublished)
        #expect(path.eventsWereRead() == .poll)
        let isUnreported = path.pollEnded()
        #expect(!isUnreported)
    }

    /// The baseline has moved past the commit, so nothing else would report it.
    @Test func leavesAnUnpublishedCommitToThePoll() {
        var path = FastPath()
        _ = path.indexWasRead(showsCommit: true, needsEvents: true)
        let isUnreported = path.pollEnded()
        #expect(isUnreported)
        #expect(path == FastPath())
        #expect(path.eventsWereRead() == .poll)
    }

    /// Two events without a poll in between, which the caller must not cause but which must not lose a commit.
    @Test func keepsAFoundCommitOverASecondRead() {
        var path = FastPath()
        _ = path.indexWasRead(showsCommit: true, needsEvents: true)
        #expect(path.indexWasRead(showsCommit: false, needsEvents: true) == .readEvents)
        #expect(path.indexWasRead(showsCommit: false, needsEvents: false) == .publish)
        #expect(path.indexWasRead(showsCommit: false, needsEvents: false) == .poll)
        #expect(path.hasPublished)
        #expect(path.indexWasRead(showsCommit: true, needsEvents: false) == .publish)
    }

    /// A commit was published before the index was read, and its pages tell something else.
    @Test func reportsAnUnprovenCommitAgain() {
        for isProven in [false, true] {
            var path = FastPath()
            path.commitWasPublished(isProven: isProven)
            #expect(!path.leavesIndexUnread)
            let isReportedAgain = path.pollEnded()
            #expect(isReportedAgain == !isProven)
            #expect(path == FastPath())
        }
    }

    /// Whatever order the steps come in, a commit is published or left to the poll, never both and never neither.
    @Test func reportsEachCommitOnce() {
        for first in [false, true] {
            for needsEvents in [false, true] {
                for readsEvents in [false, true] {
                    var path = FastPath()
                    var reports = path.indexWasRead(showsCommit: first, needsEvents: needsEvents) == .publish ? 1 : 0
                    if readsEvents, path.eventsWereRead() == .publish { reports += 1 }
                    if path.pollEnded() { reports += 1 }
                    #expect(reports == (first ? 1 : 0))
                }
            }
        }
    }
}

/// The fast path on a store that programs write.
@Suite(.ownThreads) struct WALIndexPollTests {
    private let rig: ObserverRig

    init() throws {
        rig = try ObserverRig { store in
            try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE a (x); CREATE TABLE b (x)")
        }
    }

    private func complete(_ names: Set<String>) -> TableChanges { TableChanges(names, isComplete: true) }

    /// Returns a shell whose first commit starts the log anew, so that only the events prove that no other session
    /// came before it.
    private func shellBeforeItsFirstCommit() throws -> Shell {
        let shell = try rig.shell()
        try rig.findTables()
        return shell
    }

    @Test func publishesTheTablesOfALaterCommitAtOnce() throws {
        let shell = try shellBeforeItsFirstCommit()
        #expect(try rig.tables { try shell.execute("INSERT INTO b VALUES (1)") } == complete(["b"]))
        try shell.execute("INSERT INTO a VALUES (1)")
        #expect(rig.pollWALIndex() == .changed(complete(["a"])))
        #expect(try rig.findings().isEmpty)
        #expect(rig.pollWALIndex() == .unchanged)
        try shell.close()
    }

    @Test func namesTheTablesOnceTheEventsAreRead() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO a VALUES (1)")
        #expect(rig.pollWALIndex() == .needsEvents)
        #expect(rig.finishWALIndexPoll() == .changed(complete(["a"])))
        #expect(try rig.findings().isEmpty)
        try shell.close()
    }

    @Test func namesTheTablesOfTheNextSession() throws {
        let first = try shellBeforeItsFirstCommit()
        #expect(try rig.tables { try first.execute("INSERT INTO a VALUES (1)") } == complete(["a"]))
        try first.close()
        _ = try rig.findings()
        let second = try rig.shell()
        _ = try rig.findings()
        try second.execute("INSERT INTO b VALUES (1)")
        #expect(rig.pollWALIndex() == .needsEvents)
        #expect(rig.finishWALIndexPoll() == .changed(complete(["b"])))
        #expect(try rig.findings().isEmpty)
        try second.close()
    }

    /// Without the events, the poll reports the commit, and its tables are unknown.
    @Test func reportsACommitWhoseEventsWereNotRead() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO a VALUES (1)")
        #expect(rig.pollWALIndex() == .needsEvents)
        #expect(try rig.tables {} == .unknown)
        #expect(rig.tables.count == 1)
        try shell.close()
    }

    @Test func leavesACommitDuringTheReadingToTheNextPoll() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO b VALUES (1)")
        #expect(rig.pollWALIndex() == .needsEvents)
        try shell.execute("INSERT INTO a VALUES (2)")
        #expect(rig.finishWALIndexPoll() == .changed(complete(["b"])))
        #expect(try rig.tables {} == complete(["a"]))
        try shell.close()
    }

    /// The session ends and another begins while the events are read: they prove nothing about the first any more.
    @Test func namesNoTablesIfASessionBeganDuringTheReading() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO b VALUES (1)")
        #expect(rig.pollWALIndex() == .needsEvents)
        try shell.close()
        try rig.once("INSERT INTO a VALUES (2)")
        #expect(rig.finishWALIndexPoll() == .changed(.unknown))
        #expect(try rig.findings() == [.changed])
    }
}
