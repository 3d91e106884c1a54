import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import ChangeFeed

/// Each state of the detector, and what follows it.
@Suite struct CommitDetectorTests {
    private enum Step: CaseIterable {
        case readNothing, readCommit, publishedProven, publishedUnproven, pollEnded
    }

    /// The states, and the steps that lead to them.
    private static let ways: [(CommitDetector.State, [Step])] = [
        (.unread, []), (.read, [.readNothing]), (.published, [.readCommit]), (.unproven, [.publishedUnproven]),
    ]

    /// The next state, and whether a commit is published or, at the end of the poll, reported again.
    private static func expected(_ state: CommitDetector.State, _ step: Step) -> (CommitDetector.State, Bool) {
        switch (state, step) {
        case (.unread, .readNothing), (.read, .readNothing): (.read, false)
        // The poll that must follow comes first.
        case (.published, .readNothing): (.published, false)
        // The tables may be others than those that were published.
        case (.unproven, .readNothing), (_, .readCommit): (.published, true)
        case (_, .publishedProven): (.published, false)
        case (_, .publishedUnproven): (.unproven, false)
        case (.unproven, .pollEnded): (.unread, true)
        case (_, .pollEnded): (.unread, false)
        }
    }

    private func take(_ step: Step, _ detector: inout CommitDetector) -> Bool {
        switch step {
        case .readNothing: return detector.recordRead(showsCommit: false)
        case .readCommit: return detector.recordRead(showsCommit: true)
        case .publishedProven: detector.recordProbed(isProven: true)
        case .publishedUnproven: detector.recordProbed(isProven: false)
        case .pollEnded: return detector.endPoll()
        }
        return false
    }

    @Test func followsTheTable() {
        for (state, way) in Self.ways {
            for step in Step.allCases {
                var detector = CommitDetector()
                for former in way { _ = take(former, &detector) }
                #expect(detector.state == state)
                let (next, isReported) = Self.expected(state, step)
                let reports = take(step, &detector)
                #expect(reports == isReported, "\(state), \(step)")
                #expect(detector.state == next, "\(state), \(step)")
                // The poll need not wait a second time for a commit to become visible.
                #expect(detector.leavesIndexUnread == (next == .unread))
                #expect(detector.hasPublished == (next == .published))
            }
        }
    }

    /// Whatever was read, a commit is published or left to the poll, never both and never neither.
    @Test func reportsEachCommitOnce() {
        for reads in [[false], [true], [false, false], [false, true], [true, false]] {
            var detector = CommitDetector()
            var reports = reads.count(where: { detector.recordRead(showsCommit: $0) })
            if detector.endPoll() { reports += 1 }
            #expect(reports == (reads.contains(true) ? 1 : 0))
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

    private func complete(_ names: Set<ExactName>) -> TableChanges { TableChanges(names, isComplete: true) }

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
        #expect(rig.pollWALIndex() == complete(["a"]))
        #expect(rig.eventReadings == 0)
        #expect(try rig.findings().isEmpty)
        #expect(rig.pollWALIndex() == nil)
        try shell.close()
    }

    @Test func namesTheTablesOnceTheEventsAreRead() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO a VALUES (1)")
        #expect(rig.pollWALIndex() == complete(["a"]))
        #expect(rig.eventReadings == 1)
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
        #expect(rig.pollWALIndex() == complete(["b"]))
        #expect(rig.eventReadings == 1)
        #expect(try rig.findings().isEmpty)
        try second.close()
    }

    /// Without the events, its tables are unknown.
    @Test func reportsACommitWhoseEventsWereLost() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO a VALUES (1)")
        #expect(rig.pollWALIndexWithoutEvents() == .unknown)
        #expect(try rig.findings().isEmpty)
        try shell.close()
    }

    @Test func leavesACommitDuringTheReadingToTheNextPoll() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO b VALUES (1)")
        #expect(rig.pollWALIndex { try shell.execute("INSERT INTO a VALUES (2)") } == complete(["b"]))
        #expect(try rig.tables {} == complete(["a"]))
        try shell.close()
    }

    /// The session ends and another begins while the events are read: they prove nothing about the first any more.
    @Test func namesNoTablesIfASessionBeganDuringTheReading() throws {
        let shell = try shellBeforeItsFirstCommit()
        try shell.execute("INSERT INTO b VALUES (1)")
        let found = rig.pollWALIndex {
            try shell.close()
            try rig.once("INSERT INTO a VALUES (2)")
        }
        #expect(found == .unknown)
        #expect(try rig.findings() == [.changed])
    }
}
