import AgentProtocol
import DirectoryWatching
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// When the scheduler tries a store again, and when it doesn't.
@Suite struct LegacyStoreRetryTests {
    private let scratch: TemporaryDirectory
    private let store: LegacyStore
    /// The same, without a settle time.
    private let settled: LegacyStore
    private let path: FilePath
    private let failure = LegacyStore.Failure(
        state: "refused", code: "hard_linked", detail: "has another name", exitCode: 65)

    init() throws {
        scratch = try TemporaryDirectory()
        path = scratch.path.appending("Notes.sqlite")
        let directory = try Directory(scratch.path)
        try directory.makeDirectory("group", mode: 0o700)
        try DurableFile.write(Array("a store".utf8), as: "Notes.sqlite", in: directory, mode: 0o600)
        var configuration = Configuration.Store(name: try #require(StoreName("Notes.sqlite")), legacy: [path])
        configuration.settle = .seconds(3600)
        let address = try #require(StoreAddress(group: "group.example", name: Array("Notes.sqlite".utf8)))
        let group = scratch.path.appending("group")
        store = try #require(LegacyStore(path, of: address, in: group, configuration))
        configuration.settle = .zero
        settled = try #require(LegacyStore(path, of: address, in: group, configuration))
    }

    private func holder(_ pid: Int32) -> FileHolder { FileHolder(pid: pid, program: "app") }

    /// A copy that takes longer than the settle time is waited for; its close restarts that time.
    @Test func aCloseBeforeTheStoreIsWholeIsNotForgotten() throws {
        store.record(.database, .created)
        store.awaitClosing()
        store.record(.database, .closedAfterWriting)
        #expect(!store.shouldTryNow())
        let due = try #require(store.dueAt)
        #expect(due > .now.advanced(by: .seconds(3000)))
        #expect(!store.shouldTryNow() && store.dueAt != nil)
    }

    /// No event tells that the other name of a file is removed in a directory that isn't watched.
    @Test func retriesARefusalOnceItsFilesHaveChanged() throws {
        let other = scratch.path.appending("other")
        try run("ln", [Word(path), Word(other)])
        store.begin()
        store.end { store.failed(failure, isTransient: false) }
        for _ in 0..<3 {
            let due = try #require(store.dueAt)
            #expect(!store.shouldTryNow(at: due), "nothing has changed")
            #expect(try #require(store.dueAt) > due)
        }
        try run("rm", [Word(other)])
        #expect(store.shouldTryNow(at: try #require(store.dueAt)))
    }

    @Test func retriesARefusalOnceTheDirectorysOwnerOrModeHasChanged() throws {
        store.begin()
        store.end { store.failed(failure, isTransient: false) }
        #expect(!store.shouldTryNow(at: try #require(store.dueAt)))
        try run("chmod", ["0710", Word(scratch.path.appending("group"))])
        #expect(store.shouldTryNow(at: try #require(store.dueAt)))
    }

    /// An attempt that presenters refuse opens and closes the store, and so do presenters that are asked.
    @Test func anAttemptsOwnClosesAreNoReasonToTryAgain() {
        settled.inspect()
        #expect(settled.shouldTryNow())
        settled.wait(for: [], because: "an app doesn't let go")
        settled.recordPresenterRefusal(by: [holder(1)])
        for kinds: DirectoryEvent.Kinds in [.closedAfterReading, .closedAfterWriting] {
            settled.record(.database, kinds)
            #expect(!settled.shouldTryNow())
        }
        #expect(settled.dueAt != nil)
        // Other presenters are another matter.
        settled.presentersChanged(to: [holder(2)])
        #expect(settled.shouldTryNow())
    }

    @Test func presentersThatRegisterAgainAreAskedLessAndLessOften() throws {
        store.wait(for: [], because: "an app doesn't let go")
        store.recordPresenterRefusal(by: [holder(1), holder(2)])
        for _ in 0..<12 {
            store.presentersChanged(to: [holder(1)])
            store.presentersChanged(to: [holder(1), holder(2)])
            store.recordPresenterRefusal(by: [holder(1), holder(2)])
        }
        // Each round has doubled the delay twice.
        store.presentersChanged(to: [])
        #expect(!store.mayAsk)
        #expect(try #require(store.dueAt) > .now.advanced(by: .seconds(100)))
        store.presentersChanged(to: [holder(3)])
        #expect(store.mayAsk)
    }

    @Test func waitsSinceItArrivedThroughAllAttempts() throws {
        store.inspect()
        let since = try #require(store.status?.waitingSince)
        store.awaitClosing()
        #expect(store.status?.waitingSince == since)
        store.begin()
        #expect(store.status?.waitingSince == nil)
        store.end { store.wait(for: [], because: "open") }
        #expect(store.status?.waitingSince == since)
        store.failed(failure, isTransient: false)
        #expect(store.status?.waitingSince == nil)
    }

    /// A slow copy may close the database, and write its log while the agent looks.
    @Test func aCheckThatIsDueBeforeTheStoreIsWholeStaysDue() throws {
        store.record(.database, .created)
        store.awaitClosing()
        store.scheduleRetry()
        let check = try #require(store.dueAt)
        #expect(check > .now.advanced(by: .seconds(3000)), "once the store is whole")
        #expect(!store.shouldTryNow(at: .now.advanced(by: .seconds(10))))
        #expect(store.dueAt == check)
    }

    /// Not only that of the database.
    @Test(arguments: [StorePart.wal, .journal]) func theCloseOfALogEndsAWait(_ log: StorePart) {
        settled.inspect()
        #expect(settled.shouldTryNow())
        settled.awaitClosing()
        settled.record(log, .closedAfterWriting)
        #expect(settled.shouldTryNow())
        #expect(!settled.shouldTryNow())
    }

    @Test func checksAStoreWithoutVisibleHoldersForAMinute() throws {
        let start = ContinuousClock.now
        var schedule = RetrySchedule()
        var times: [ContinuousClock.Instant] = []
        for _ in 0..<100 {
            schedule.recheckUnseenHolder()
            guard let due = schedule.consumeNext() else { break }
            times.append(due)
        }
        #expect(times.count > 5 && times.count < 10)
        #expect(times.allSatisfy { $0 < start.advanced(by: .seconds(60)) })
        schedule.resetChecks()
        schedule.recheckUnseenHolder()
        #expect(schedule.dueAt != nil, "a close starts over")
    }
}

extension RetrySchedule {
    /// Passes the next check, and returns when it was due.
    fileprivate mutating func consumeNext() -> Instant? {
        guard let due = dueAt else { return nil }
        return consumeDue(at: due) ? due : nil
    }
}
