import AgentProtocol
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import GroupStoreAgent

/// The events that subscribers of other users get, and for how long.
@Suite struct PublisherReaderTests {
    private let loop: EventLoop
    private let publisher: Publisher
    private let store: StoreAddress
    private static let otherUser = PeerCredentials(pid: 1, uid: geteuid() == 70_000 ? 70_001 : 70_000, gid: 70_000)

    init() throws {
        loop = try EventLoop()
        publisher = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    private func subscriber(
        _ connection: UInt64, _ peer: PeerCredentials?, capacity: CInt? = nil
    ) throws -> SocketPair {
        let pair = try SocketPair(capacity: capacity)
        try loop.add(pair.served.raw, token: connection)
        publisher.add(connection, raw: pair.served.raw, peer: peer)
        publisher.open(store)
        publisher.subscribe(connection, SubscribeOperation(store, since: nil), id: 1, path: [0x2F])
        return pair
    }

    private let events: [StoreEvent] = [
        .relocating(waitingFor: []), .abandoned(outcome: "conflict", message: "/private/Notes.sqlite holds 3 rows"),
        .relocated(from: Array("/private/Notes.sqlite".utf8), to: Array("/group/Notes.sqlite".utf8)),
    ]

    /// Sent at once, late, or as events that a token missed.
    @Test(arguments: [nil, 4608 as CInt]) func hidesPathsFromOtherUsers(capacity: CInt?) throws {
        let own = try subscriber(1, nil)
        let untrusted = try subscriber(2, Self.otherUser, capacity: capacity)
        // Fills the small socket.
        if capacity != nil { for _ in 0..<200 { publisher.publish(.change(.unknown), of: store) } }
        for event in events { publisher.publish(event, of: store) }
        var received: [JSONObject] = []
        for _ in 0..<100 {
            received += try untrusted.received()
            publisher.flush(2)
        }
        let late = try subscriber(3, Self.otherUser)
        publisher.subscribe(3, SubscribeOperation(store, since: "e-0"), id: 2, path: [0x2F])
        received += try late.received()
        #expect(
            !received.contains { $0.text.contains("private") || $0.text.contains("rows") }, "\(received.map(\.text))")
        #expect(received.contains { $0.string("type") == "relocated" && $0.string("to") == "/group/Notes.sqlite" })
        let ownLines = try own.received()
        #expect(ownLines.contains { $0.string("from") == "/private/Notes.sqlite" })
        #expect(ownLines.contains { $0.string("message")?.contains("3 rows") == true })
    }

    @Test(arguments: [StoreEvent.reset(.replaced), .reset(.appeared), .relocated(from: [1], to: [2])])
    func endsConnectionsThatLostPermissionBeforeTheEvent(_ event: StoreEvent) throws {
        let mayRead = Mutex(true)
        let checked = Mutex<[uid_t]>([])
        publisher.checkReaders { peer, _ in
            checked.withLock { $0.append(peer.uid) }
            return mayRead.withLock { $0 }
        }
        let own = try subscriber(1, nil)
        let untrusted = try subscriber(2, Self.otherUser)
        publisher.publish(event, of: store)
        publisher.publish(.change(.unknown), of: store)
        #expect(try untrusted.received().count == 3)
        mayRead.withLock { $0 = false }
        publisher.publish(event, of: store)
        publisher.publish(.change(.unknown), of: store)
        let last = try untrusted.received()
        #expect(last.count == 1 && last.first?.object("error")?.string("code") == "not_permitted")
        #expect(publisher.drainFinished() == [2])
        #expect(publisher.remove(2).isEmpty)
        #expect(try own.received().count == 5)
        // The agent's own user is never checked.
        #expect(Set(checked.withLock { $0 }) == [Self.otherUser.uid])
    }
}

extension PublisherReaderTests {
    /// However often a user subscribes.
    @Test func newSubscriptionDoesNotPostponeTheCheck() throws {
        let checked = Mutex(0)
        publisher.checkReaders { _, _ in
            checked.withLock { $0 += 1 }
            return true
        }
        let first = try subscriber(1, Self.otherUser)
        publisher.state.withLock { $0.lastReaderChecks[store] = .now.advanced(by: .seconds(-11)) }
        let second = try subscriber(2, Self.otherUser)
        publisher.publish(.change(.unknown), of: store)
        #expect(checked.withLock { $0 } == 1)
        withExtendedLifetime((first, second)) {}
    }
}

/// Limits guesses about which files exist.
@Suite struct FailedRequestLimitTests {
    @Test func limitsFailedAttemptsOnly() throws {
        let limit = FailedRequestLimit()
        let start = ContinuousClock.now
        for _ in 0..<2000 {
            let attempt = try limit.beginAttempt(now: start)
            // Once when it is recognized, and once when it is done.
            attempt.succeeded()
            attempt.succeeded()
        }
        for _ in 0..<FailedRequestLimit.maximum { _ = try limit.beginAttempt(now: start) }
        #expect(throws: WireError.self) { try limit.beginAttempt(now: start) }
        _ = try limit.beginAttempt(now: start.advanced(by: .seconds(1)))
        #expect(throws: WireError.self) { try limit.beginAttempt(now: start.advanced(by: .seconds(1.5))) }
        for _ in 0..<FailedRequestLimit.maximum {
            _ = try limit.beginAttempt(now: start.advanced(by: .seconds(100_000)))
        }
        #expect(throws: WireError.self) { try limit.beginAttempt(now: start.advanced(by: .seconds(100_000))) }
    }
}
