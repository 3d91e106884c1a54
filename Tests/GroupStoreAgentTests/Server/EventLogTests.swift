import AgentProtocol
import Testing

@testable import GroupStoreAgent

@Suite struct EventLogTests {
    private let epoch = "e"
    private let moved = StoreEvent.relocated(from: [1], to: [2])

    private func missed(_ eventLog: EventLog, since number: UInt64, epoch: String = "e") -> [StoreEvent] {
        eventLog.missed(since: FeedToken(epoch: epoch, number: number).description, epoch: self.epoch).map(\.event)
    }

    @Test func upToDateTokenMissesNothing() {
        var eventLog = EventLog(startingAt: 0)
        #expect(missed(eventLog, since: 0) == [])
        let last = eventLog.append(.change(.unknown))
        #expect(missed(eventLog, since: last.number) == [])
    }

    @Test func combinesManyChangesIntoOne() {
        var eventLog = EventLog(startingAt: 0)
        for _ in 1...5 { _ = eventLog.append(.change(.unknown)) }
        #expect(eventLog.missed(since: "e-2", epoch: epoch) == [.init(event: .change(.unknown), number: 5)])
    }

    private func tables(_ names: String..., isComplete: Bool = true) -> StoreEvent {
        .change(ChangedTables(Set(names), isComplete: isComplete))
    }

    @Test func combinedChangesNameAllTables() {
        var eventLog = EventLog(startingAt: 0)
        _ = eventLog.append(tables("a"))
        _ = eventLog.append(tables("b"))
        let moved = eventLog.append(moved)
        _ = eventLog.append(tables("c"))
        #expect(missed(eventLog, since: 1) == [moved.event, tables("c")])
        _ = eventLog.append(tables("a", "d"))
        #expect(missed(eventLog, since: moved.number) == [tables("a", "c", "d")])
        _ = eventLog.append(tables("e", isComplete: false))
        #expect(missed(eventLog, since: moved.number) == [tables("a", "c", "d", "e", isComplete: false)])
        #expect(missed(eventLog, since: eventLog.number - 2) == [tables("a", "d", "e", isComplete: false)])
    }

    /// The kept history is bounded: before it, changes are known, but not their tables.
    @Test func forgetsTheTablesOfOldChanges() {
        var eventLog = EventLog(startingAt: 0)
        for number in 1...1000 { _ = eventLog.append(tables("t\(number)")) }
        #expect(missed(eventLog, since: 998) == [tables("t1000", "t999")])
        guard case .change(let found)? = missed(eventLog, since: 1).first else {
            Issue.record("no change")
            return
        }
        #expect(!found.isComplete)
    }

    @Test func backlogNamesAllTables() {
        var backlog = Backlog()
        backlog.append(.init(event: tables("a"), number: 1))
        backlog.append(.init(event: tables("b"), number: 2))
        #expect(backlog.entries == [.init(event: tables("a", "b"), number: 2)])
        backlog.append(.init(event: .change(.unknown), number: 3))
        #expect(backlog.drain() == [.init(event: tables("a", "b", isComplete: false), number: 3)])
    }

    @Test(arguments: ["other-1", "e-99", "nonsense", "", "e-"])
    func unknownTokenBecomesAReset(_ token: String) {
        var eventLog = EventLog(startingAt: 0)
        _ = eventLog.append(.change(.unknown))
        #expect(eventLog.missed(since: token, epoch: epoch).map(\.event) == [.reset(.epoch)])
    }

    @Test func resetSinceTheTokenReplacesChanges() {
        var eventLog = EventLog(startingAt: 0)
        let before = eventLog.append(.change(.unknown))
        let reset = eventLog.append(.reset(.overflow))
        _ = eventLog.append(.change(.unknown))
        #expect(missed(eventLog, since: before.number) == [.reset(.overflow)])
        #expect(missed(eventLog, since: reset.number) == [.change(.unknown)])
    }

    @Test func tokenBringsAMissedRelocation() {
        var eventLog = EventLog(startingAt: 0)
        let relocated = eventLog.append(moved)
        #expect(eventLog.missed(since: "e-0", epoch: epoch) == [relocated])
        let change = eventLog.append(.change(.unknown))
        #expect(eventLog.missed(since: "e-0", epoch: epoch) == [relocated, change])
        #expect(missed(eventLog, since: relocated.number) == [.change(.unknown)])
    }

    /// The store was not followed before the log's start: a token from then can't be answered.
    @Test func tokenFromBeforeTheStartHasLagged() {
        let eventLog = EventLog(startingAt: 7)
        #expect(missed(eventLog, since: 6) == [.reset(.lagged)])
        #expect(missed(eventLog, since: 7) == [])
    }

    @Test func foldsCommitsToTheStoreAndToABranchThatAlternate() {
        var backlog = Backlog()
        for number in 1...1000 {
            let event: StoreEvent = number % 2 == 0 ? .change(.unknown) : .branchChange(.unknown, pid: 7)
            backlog.append(.init(event: event, number: UInt64(number)))
        }
        #expect(
            backlog.entries == [
                .init(event: .branchChange(.unknown, pid: 7), number: 999),
                .init(event: .change(.unknown), number: 1000),
            ])
        #expect(backlog.overflows == 0)
    }

    @Test func backlogCombinesChanges() {
        var backlog = Backlog()
        for number in 1...1000 { backlog.append(.init(event: .change(.unknown), number: UInt64(number))) }
        #expect(backlog.entries == [.init(event: .change(.unknown), number: 1000)])
    }

    @Test func backlogKeepsTheOrderOfOtherEvents() {
        var backlog = Backlog()
        let events: [StoreEvent] = [
            .change(.unknown), .relocating(waitingFor: []), moved, .change(.unknown), .change(.unknown),
        ]
        for (index, event) in events.enumerated() { backlog.append(.init(event: event, number: UInt64(index))) }
        #expect(
            backlog.drain().map(\.event) == [.change(.unknown), .relocating(waitingFor: []), moved, .change(.unknown)])
        #expect(backlog.isEmpty)
    }

    @Test func longBacklogBecomesOneReset() {
        var backlog = Backlog()
        for number in 1...50 {
            backlog.append(.init(event: .relocating(waitingFor: []), number: UInt64(2 * number - 1)))
            backlog.append(.init(event: moved, number: UInt64(2 * number)))
        }
        #expect(backlog.entries.count <= 8)
        #expect(backlog.entries.first?.event == .reset(.lagged))
        backlog.append(.init(event: .change(.unknown), number: 101))
        #expect(backlog.entries.last?.number == 101)
    }
}
