import AgentProtocol
import LinuxSystem
import PersistentHistory
import TestSupport
import Testing

@testable import GroupStoreAgent

/// A subscriber that returns with a position in the store's history to the agent that has numbered its events.
@Suite struct ReturningSubscriberTests {
    private let loop: EventLoop
    private let publisher: Publisher
    private let store: StoreAddress

    init() throws {
        loop = try EventLoop()
        publisher = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    /// Returns the lines for a subscriber with the token, after a read from its position, and one from the present.
    private func lines(since token: String, own: HistoryReadResult) throws -> [JSONObject] {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        publisher.add(1, raw: pair.served.raw)
        publisher.open(store)
        publisher.readHistories { _ in }
        publisher.subscribe(1, SubscribeOperation(store, since: token), id: 1, path: [0x2F])
        let round = try #require(publisher.beginRound(store))
        publisher.endRound(
            round, .position(try #require(HistoryToken("h1.pages-a.9.9.f9"))),
            returning: round.returning.mapValues { _ in own }, isCaughtUp: true)
        return try pair.received()
    }

    /// The rows between the two positions would be left out.
    @Test func aPositionThatCannotBeReadBecomesNoOther() throws {
        let lines = try lines(since: "e-0/h1.pages-a.1.1.f1", own: .failed)
        #expect(lines.map { $0.string("token") } == ["e-0"] && lines.first?["history"] == nil)
    }

    @Test func aPositionThatCannotBePlacedIsAReset() throws {
        let present = try #require(HistoryToken("h1.pages-a.9.9.f9"))
        let lines = try lines(since: "e-0/h1.pages-a.9.9.f1", own: .discontinued(.epoch, present))
        #expect(lines.map { $0.string("token") } == ["e-0/h1.pages-a.9.9.f1", "e-0/h1.pages-a.9.9.f9"])
        #expect(lines.last?.string("reason") == "epoch")
    }

    /// A later version's, or a damaged one.
    @Test func aPositionThatIsNotUnderstoodIsAReset() throws {
        let lines = try lines(since: "e-0/h1.pages-a.9.9.f9.7", own: .failed)
        #expect(lines.map { $0.string("token") } == ["e-0/h1.pages-a.9.9.f9.7", "e-0/h1.pages-a.9.9.f9"])
        #expect(lines.last?.string("reason") == "epoch")
    }
}
