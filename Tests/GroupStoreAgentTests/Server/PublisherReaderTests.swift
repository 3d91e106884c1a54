import AgentProtocol
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import GroupStoreAgent

/// What subscribers of other users are told, and until when.
@Suite struct PublisherReaderTests {
    private let loop: EventLoop
    private let hub: Publisher
    private let store: StoreAddress
    private static let others = PeerCredentials(pid: 1, uid: geteuid() == 70_000 ? 70_001 : 70_000, gid: 70_000)

    init() throws {
        loop = try EventLoop()
        hub = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    private func subscriber(
        _ connection: UInt64, _ peer: PeerCredentials?, capacity: CInt? = nil
    ) throws -> SocketPair {
        let pair = try SocketPair(capacity: capacity)
        try loop.add(pair.served.raw, token: connection)
        hub.add(connection, raw: pair.served.raw, peer: peer)
        hub.open(store)
        hub.subscribe(connection, SubscribeOperation(store, since: nil), id: 1, path: [0x2F])
        return pair
    }

    private let events: [StoreEvent] = [
        .relocating(waitingFor: []), .abandoned(outcome: "conflict", message: "/private/Notes.sqlite holds 3 rows"),
        .relocated(from: Array("/private/Notes.sqlite".utf8), to: Array("/group/Notes.sqlite".utf8)),
    ]

    /// Told at once, or later, or as what a token missed.
    @Test(arguments: [nil, 4608 as CInt]) func othersHearOfNoOtherPlace(capacity: CInt?) throws {
        let own = try subscriber(1, nil)
        let others = try subscriber(2, Self.others, capacity: capacity)
        // Fills the socket that is to be full.
        if capacity != nil { for _ in 0..<200 { hub.publish(.change(.unknown), of: store) } }
        for event in events { hub.publish(event, of: store) }
        var told: [JSONObject] = []
        for _ in 0..<100 {
            told += try others.received()
            hub.flush(2)
        }
        let late = try subscriber(3, Self.others)
        hub.subscribe(3, SubscribeOperation(store, since: "e-0"), id: 2, path: [0x2F])
        told += try late.received()
        #expect(!told.contains { $0.text.contains("private") || $0.text.contains("rows") }, "\(told.map(\.text))")
        #expect(told.contains { $0.string("type") == "relocated" && $0.string("to") == "/group/Notes.sqlite" })
        let owns = try own.received()
        #expect(owns.contains { $0.string("from") == "/private/Notes.sqlite" })
        #expect(owns.contains { $0.string("message")?.contains("3 rows") == true })
    }

    @Test(arguments: [StoreEvent.reset(.replaced), .reset(.appeared), .relocated(from: [1], to: [2])])
    func whoMayNotReadAnyMoreIsToldBefore(_ event: StoreEvent) throws {
        let mayRead = Mutex(true)
        let asked = Mutex<[uid_t]>([])
        hub.checkReaders { peer, _ in
            asked.withLock { $0.append(peer.uid) }
            return mayRead.withLock { $0 }
        }
        let own = try subscriber(1, nil)
        let others = try subscriber(2, Self.others)
        hub.publish(event, of: store)
        hub.publish(.change(.unknown), of: store)
        #expect(try others.received().count == 3)
        mayRead.withLock { $0 = false }
        hub.publish(event, of: store)
        hub.publish(.change(.unknown), of: store)
        let last = try others.received()
        #expect(last.count == 1 && last.first?.object("error")?.string("code") == "not_permitted")
        #expect(hub.takeFinished() == [2])
        #expect(hub.remove(2).isEmpty)
        #expect(try own.received().count == 5)
        // The agent's own user is never asked about.
        #expect(Set(asked.withLock { $0 }) == [Self.others.uid])
    }
}

extension PublisherReaderTests {
    /// However often one subscribes.
    @Test func whoSubscribesPutsOffNoQuestion() throws {
        let asked = Mutex(0)
        hub.checkReaders { _, _ in
            asked.withLock { $0 += 1 }
            return true
        }
        let first = try subscriber(1, Self.others)
        hub.state.withLock { $0.readByOthers[store] = .now.advanced(by: .seconds(-11)) }
        let second = try subscriber(2, Self.others)
        hub.publish(.change(.unknown), of: store)
        #expect(asked.withLock { $0 } == 1)
        withExtendedLifetime((first, second)) {}
    }
}

/// Guessing which file a client means.
@Suite struct GuessLimitTests {
    @Test func wrongOnesAreLimitedAndRightOnesAreNot() throws {
        let limit = FailedRequestLimit()
        let start = ContinuousClock.now
        for _ in 0..<2000 {
            let guess = try limit.begin(now: start)
            // When it is recognized, and when it is done.
            guess.wasRight()
            guess.wasRight()
        }
        for _ in 0..<FailedRequestLimit.most { _ = try limit.begin(now: start) }
        #expect(throws: WireError.self) { try limit.begin(now: start) }
        _ = try limit.begin(now: start.advanced(by: .seconds(1)))
        #expect(throws: WireError.self) { try limit.begin(now: start.advanced(by: .seconds(1.5))) }
        for _ in 0..<FailedRequestLimit.most { _ = try limit.begin(now: start.advanced(by: .seconds(100_000))) }
        #expect(throws: WireError.self) { try limit.begin(now: start.advanced(by: .seconds(100_000))) }
    }
}
