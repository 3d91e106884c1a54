import AgentProtocol
import Testing

@testable import GroupStoreAgent

@Suite struct EventLogTests {
    private let epoch = "e"
    private let moved = StoreEvent.relocated(from: [1], to: [2])

    private func missed(_ channel: EventLog, since number: UInt64, epoch: String = "e") -> [StoreEvent] {
        channel.missed(since: FeedToken(epoch: epoch, number: number).description, epoch: self.epoch).map(\.event)
    }

    @Test func whoKnowsAllIsToldNothing() {
        var channel = EventLog(startingAt: 0)
        #expect(missed(channel, since: 0) == [])
        let last = channel.append(.change(.unknown))
        #expect(missed(channel, since: last.number) == [])
    }

    @Test func manyChangesAreOne() {
        var channel = EventLog(startingAt: 0)
        for _ in 1...5 { _ = channel.append(.change(.unknown)) }
        #expect(channel.missed(since: "e-2", epoch: epoch) == [.init(event: .change(.unknown), number: 5)])
    }

    private func tables(_ names: String..., isComplete: Bool = true) -> StoreEvent {
        .change(ChangedTables(Set(names), isComplete: isComplete))
    }

    @Test func changesThatAreToldAsOneNameAllTables() {
        var channel = EventLog(startingAt: 0)
        _ = channel.append(tables("a"))
        _ = channel.append(tables("b"))
        let moved = channel.append(moved)
        _ = channel.append(tables("c"))
        #expect(missed(channel, since: 1) == [moved.event, tables("c")])
        _ = channel.append(tables("a", "d"))
        #expect(missed(channel, since: moved.number) == [tables("a", "c", "d")])
        _ = channel.append(tables("e", isComplete: false))
        #expect(missed(channel, since: moved.number) == [tables("a", "c", "d", "e", isComplete: false)])
        #expect(missed(channel, since: channel.number - 2) == [tables("a", "d", "e", isComplete: false)])
    }

    /// What is kept of the past is bounded: beyond, a change is there, but nobody knows which.
    @Test func tablesOfLongAgoAreForgotten() {
        var channel = EventLog(startingAt: 0)
        for number in 1...1000 { _ = channel.append(tables("t\(number)")) }
        #expect(missed(channel, since: 998) == [tables("t1000", "t999")])
        guard case .change(let found)? = missed(channel, since: 1).first else {
            Issue.record("no change")
            return
        }
        #expect(!found.isComplete)
    }

    @Test func aBacklogNamesAllTables() {
        var backlog = Backlog()
        backlog.append(.init(event: tables("a"), number: 1))
        backlog.append(.init(event: tables("b"), number: 2))
        #expect(backlog.entries == [.init(event: tables("a", "b"), number: 2)])
        backlog.append(.init(event: .change(.unknown), number: 3))
        #expect(backlog.take() == [.init(event: tables("a", "b", isComplete: false), number: 3)])
    }

    @Test(arguments: ["other-1", "e-99", "nonsense", "", "e-"])
    func anUnknownTokenIsReset(_ token: String) {
        var channel = EventLog(startingAt: 0)
        _ = channel.append(.change(.unknown))
        #expect(channel.missed(since: token, epoch: epoch).map(\.event) == [.reset(.epoch)])
    }

    @Test func aResetSinceTheTokenOutweighsChanges() {
        var channel = EventLog(startingAt: 0)
        let before = channel.append(.change(.unknown))
        let reset = channel.append(.reset(.overflow))
        _ = channel.append(.change(.unknown))
        #expect(missed(channel, since: before.number) == [.reset(.overflow)])
        #expect(missed(channel, since: reset.number) == [.change(.unknown)])
    }

    @Test func aRelocationIsToldToWhoMissedIt() {
        var channel = EventLog(startingAt: 0)
        let relocated = channel.append(moved)
        #expect(channel.missed(since: "e-0", epoch: epoch) == [relocated])
        let change = channel.append(.change(.unknown))
        #expect(channel.missed(since: "e-0", epoch: epoch) == [relocated, change])
        #expect(missed(channel, since: relocated.number) == [.change(.unknown)])
    }

    /// Nobody followed the store before the channel's start: a token from then can't be answered.
    @Test func aTokenFromBeforeTheStartHasLagged() {
        let channel = EventLog(startingAt: 7)
        #expect(missed(channel, since: 6) == [.reset(.lagged)])
        #expect(missed(channel, since: 7) == [])
    }

    @Test func aBacklogFoldsChanges() {
        var backlog = Backlog()
        for number in 1...1000 { backlog.append(.init(event: .change(.unknown), number: UInt64(number))) }
        #expect(backlog.entries == [.init(event: .change(.unknown), number: 1000)])
    }

    @Test func aBacklogKeepsTheOrderOfOtherEvents() {
        var backlog = Backlog()
        let events: [StoreEvent] = [
            .change(.unknown), .relocating(waitingFor: []), moved, .change(.unknown), .change(.unknown),
        ]
        for (index, event) in events.enumerated() { backlog.append(.init(event: event, number: UInt64(index))) }
        #expect(
            backlog.take().map(\.event) == [.change(.unknown), .relocating(waitingFor: []), moved, .change(.unknown)])
        #expect(backlog.isEmpty)
    }

    @Test func aBacklogThatGrowsTooLongIsOneReset() {
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
