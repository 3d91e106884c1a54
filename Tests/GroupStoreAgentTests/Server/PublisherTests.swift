import AgentProtocol
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct PublisherTests {
    private let loop: EventLoop
    private let hub: Publisher
    private let store: StoreAddress

    init() throws {
        loop = try EventLoop()
        hub = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    private func subscriber(_ connection: UInt64, capacity: CInt? = nil, since: String? = nil) throws -> SocketPair {
        let pair = try SocketPair(capacity: capacity)
        try loop.add(pair.served.raw, token: connection)
        hub.add(connection, raw: pair.served.raw)
        hub.open(store)
        hub.subscribe(connection, SubscribeOperation(store, since: since), id: 1, path: [0x2F])
        return pair
    }

    private func numbers(_ objects: [JSONObject]) -> [UInt64] {
        objects.compactMap { $0.string("token").flatMap { FeedToken($0) }?.number }
    }

    @Test func everySubscriberIsToldInOrder() throws {
        let pairs = [try subscriber(1), try subscriber(2)]
        for event in [
            StoreEvent.change(.unknown), .relocating(waitingFor: []), .relocated(from: [1], to: [2]), .change(.unknown),
        ] {
            hub.publish(event, of: store)
        }
        for pair in pairs {
            let lines = try pair.received()
            #expect(lines.first?.bool("ok") == true)
            #expect(lines.dropFirst().map { $0.string("type") } == ["change", "relocating", "relocated", "change"])
            #expect(numbers(lines) == [0, 1, 2, 3, 4])
        }
    }

    @Test func othersHearNothing() throws {
        let pair = try subscriber(1)
        let other = try #require(StoreAddress(bytes: Array("g/Other.sqlite".utf8)))
        hub.open(other)
        hub.publish(.change(.unknown), of: other)
        #expect(try pair.received().count == 1)
        #expect(hub.unsubscribe(1, from: store))
        hub.publish(.change(.unknown), of: store)
        #expect(try pair.received().isEmpty)
    }

    /// A subscriber that doesn't read gets what its socket took, then one change; the one beside it gets every one.
    @Test func whoLagsGetsOneChangeAndDelaysNobody() throws {
        let slow = try subscriber(1, capacity: 4608)
        let fast = try subscriber(2)
        _ = try fast.received()
        for number in 1...2000 {
            hub.publish(.change(.unknown), of: store)
            #expect(try numbers(fast.received()) == [UInt64(number)])
        }
        let taken = numbers(try slow.received())
        #expect(taken.count < 1000)
        #expect(taken == taken.sorted())
        #expect(try loop.wait(timeout: .ample).contains { $0.token == 1 && $0.isWritable })
        hub.flush(1)
        let late = try slow.received()
        // Where a line was cut in the middle, its rest comes first.
        #expect(late.count <= 2)
        #expect(late.last?.string("type") == "change")
        #expect(numbers(late).last == 2000)
        #expect(hub.isFlushed)
        hub.publish(.change(.unknown), of: store)
        #expect(numbers(try slow.received()) == [2001])
    }

    @Test func aRelocationThatALaggardMissedComesLate() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...500 { hub.publish(.change(.unknown), of: store) }
        hub.publish(.relocated(from: [1], to: [2]), of: store)
        hub.publish(.change(.unknown), of: store)
        var late: [JSONObject] = try slow.received()
        while !hub.isFlushed {
            hub.flush(1)
            late += try slow.received()
        }
        #expect(late.suffix(2).map { $0.string("type") } == ["relocated", "change"])
        #expect(numbers(late).last == 502)
    }

    @Test func tooManyMissedEventsAreAReset() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...250 {
            hub.publish(.relocating(waitingFor: []), of: store)
            hub.publish(.abandoned(outcome: "refused", message: ""), of: store)
        }
        var late: [JSONObject] = try slow.received()
        while !hub.isFlushed {
            hub.flush(1)
            late += try slow.received()
        }
        #expect(late.contains { $0.string("type") == "reset" && $0.string("reason") == "lagged" })
        #expect(numbers(late).last == 500)
    }

    /// Whoever joins while a relocation lasts hears of it at once, and of who is waited for now.
    @Test func aRelocationIsAState() throws {
        let holder = StoreEvent.Holder(pid: 7, program: "old")
        let first = try subscriber(1)
        hub.publish(.relocating(waitingFor: [holder]), of: store)
        hub.publish(.relocating(waitingFor: [holder]), of: store)
        hub.publish(.relocating(waitingFor: []), of: store)
        hub.publish(.reset(.overflow), of: store)
        let types = try first.received().dropFirst().map { $0.string("type") }
        #expect(types == ["relocating", "relocating", "reset", "relocating"])
        for since in [nil, "e-0", "e-4", "other-1"] {
            let joined = try subscriber(2, since: since)
            let last = try joined.received().last
            #expect(last?.string("type") == "relocating", "\(since ?? "none")")
            #expect(last?.string("token") == "e-4")
            _ = hub.remove(2)
        }
        #expect(hub.status()[store]?.relocation?.phase == .relocating(waitingFor: []))
        hub.publish(.abandoned(outcome: "refused", message: "no"), of: store)
        #expect(try subscriber(3).received().count == 1)
        #expect(hub.status()[store]?.relocation?.json.string("state") == "abandoned")
        withExtendedLifetime(first) {}
    }

    /// A relocation of a store that nobody followed when it began.
    @Test func aRelocationIsKnownBeforeTheFirstSubscriber() throws {
        hub.publish(.relocating(waitingFor: []), of: store)
        let first = try subscriber(1)
        #expect(try first.received().last?.string("type") == "relocating")
    }

    @Test func aLaggardsResetIsFollowedByTheRelocationThatLasts() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...500 { hub.publish(.change(.unknown), of: store) }
        for _ in 1...20 {
            hub.publish(.abandoned(outcome: "refused", message: ""), of: store)
            hub.publish(.relocating(waitingFor: []), of: store)
        }
        for _ in 1...3 { hub.publish(.change(.unknown), of: store) }
        var late: [JSONObject] = try slow.received()
        while !hub.isFlushed {
            hub.flush(1)
            late += try slow.received()
        }
        #expect(late.contains { $0.string("type") == "reset" && $0.string("reason") == "lagged" })
        let states = late.compactMap { $0.string("type") }.filter { $0 != "change" }
        #expect(states.last == "relocating")
    }

    /// What the watch does, it does for one after the other.
    @Test func whoHasMuchWorkWaitingIsHeldBack() throws {
        _ = try subscriber(1)
        var waiting = 0
        while !hub.pausesIfCongested(1) {
            hub.beginWork(1)
            waiting += 1
            try #require(waiting <= 100)
        }
        #expect(hub.takeResumed() == [])
        hub.endWork(1)
        #expect(hub.takeResumed() == [1])
        #expect(!hub.pausesIfCongested(1))
        for _ in 1..<waiting { hub.endWork(1) }
        #expect(hub.takeResumed() == [])
    }

    @Test func statusSaysHowFarEachSubscriberIs() throws {
        let slow = try subscriber(1, capacity: 4608)
        let fast = try subscriber(2)
        for _ in 1...500 {
            hub.publish(.change(.unknown), of: store)
            _ = try fast.received()
        }
        let found = try #require(hub.status()[store]?.subscriptions.map { $0.json { _ in "program" } })
        #expect((found[0].integer("behind") ?? 0) > 0)
        #expect((found[0].integer("unread_bytes") ?? 0) > 0)
        #expect(found[0].string("lagging_since") != nil)
        #expect(found[1].integer("behind") == 0)
        #expect(found[1].integer("waiting_bytes") == 0)
        #expect(found[1]["lagging_since"] == nil)
        while !hub.isFlushed {
            _ = try slow.received()
            hub.flush(1)
        }
        #expect(hub.status()[store]?.subscriptions.map(\.behind) == [0, 0])
    }

    @Test func aTokenBringsWhatWasMissed() throws {
        let first = try subscriber(1)
        hub.publish(.change(.unknown), of: store)
        let second = try subscriber(2, since: "e-0")
        let lines = try second.received()
        #expect(lines.map { $0.string("type") } == [nil, "change"])
        #expect(lines.map { $0.string("token") } == ["e-0", "e-1"])
        let third = try subscriber(3, since: "before-1")
        #expect(try third.received().last?.string("reason") == "epoch")
        withExtendedLifetime(first) {}
    }

    /// Nobody followed the store for a while: a token from before is worth nothing.
    @Test func aStoreThatWasNotFollowedIsReset() throws {
        let first = try subscriber(1)
        hub.publish(.change(.unknown), of: store)
        #expect(!hub.close(store))
        #expect(hub.remove(1) == [store])
        #expect(hub.close(store))
        let second = try subscriber(2, since: "e-1")
        #expect(try second.received().last?.string("reason") == "lagged")
        withExtendedLifetime(first) {}
    }

    @Test func aPeerThatIsGoneHarmsNobody() throws {
        let gone = try subscriber(1)
        let other = try subscriber(2)
        gone.hangUp()
        hub.publish(.change(.unknown), of: store)
        #expect(try other.received().count == 2)
        #expect(hub.takeFinished().contains(1))
        #expect(hub.remove(1) == [])
    }

    @Test func subscriptionsAreLimited() throws {
        let pair = try subscriber(1)
        for number in 1...hub.limits.perConnection {
            let other = try #require(StoreAddress(group: "g", name: Array("\(number)".utf8)))
            hub.open(other)
            hub.subscribe(1, SubscribeOperation(other), id: nil, path: [])
            _ = try pair.received()
        }
        let last = try #require(StoreAddress(group: "g", name: [0x61]))
        hub.open(last)
        hub.subscribe(1, SubscribeOperation(last), id: "last", path: [])
        #expect(try pair.received().last?.object("error")?.string("code") == "too_many_subscriptions")
    }

    @Test func subscriptionsOfAllConnectionsAreLimited() throws {
        hub.limits = SubscriptionLimits(perConnection: 10, total: 2)
        let (first, second) = (try subscriber(1), try subscriber(2))
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 3)
        hub.add(3, raw: pair.served.raw)
        hub.subscribe(3, SubscribeOperation(store), id: 1, path: [])
        #expect(try pair.received().last?.object("error")?.string("code") == "too_many_subscriptions")
        // One that asks for its own store again has it already.
        hub.subscribe(2, SubscribeOperation(store), id: 1, path: [])
        #expect(try second.received().last?.bool("ok") == true)
        #expect(hub.remove(1) == [])
        hub.subscribe(3, SubscribeOperation(store), id: 2, path: [])
        #expect(try pair.received().last?.bool("ok") == true)
        withExtendedLifetime(first) {}
    }

    @Test func epochsDiffer() {
        #expect(Publisher.randomEpoch() != Publisher.randomEpoch())
        #expect(Publisher.randomEpoch().utf8.count == 12)
    }

    /// Its answer stands behind all that was told before it, also where that waits for the socket.
    @Test func aBarrierStandsBehindWhatWaits() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...2000 { hub.publish(.change(.unknown), of: store) }
        hub.expectAnswer(1)
        hub.sync(1, store, id: "barrier")
        var lines: [JSONObject] = []
        while lines.last?.string("id") != "barrier" {
            lines += try slow.received()
            hub.flush(1)
        }
        #expect(numbers(lines).suffix(2) == [2000, 2000])
        #expect(lines.dropLast().last?.string("type") == "change")
    }

    /// With nobody to read it, no filter of rows leaves anything out.
    @Test func withoutAHistoryAFilterOfRowsLeavesNothingOut() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        hub.add(1, raw: pair.served.raw)
        hub.open(store)
        var operation = SubscribeOperation(store)
        operation.filter.authors = ["nobody"]
        hub.subscribe(1, operation, id: 1, path: [0x2F])
        hub.publish(.change(ChangedTables(["note"], isComplete: true)), of: store)
        hub.publish(.relocated(from: [1], to: [2]), of: store)
        let lines = try pair.received()
        #expect(lines.first?.bool("history") == false)
        #expect(lines.dropFirst().map { $0.string("type") } == ["change", "relocated"])
        #expect(numbers(lines) == [0, 1, 2])
    }

    /// Replaced before it was answered, a subscription is answered all the same.
    @Test func aReplacedSubscriptionIsAnswered() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        hub.add(1, raw: pair.served.raw)
        hub.open(store)
        hub.readHistories { _ in }
        var operation = SubscribeOperation(store)
        operation.wantsRows = true
        hub.subscribe(1, operation, id: "first", path: [0x2F])
        #expect(try pair.received().isEmpty)
        hub.subscribe(1, SubscribeOperation(store), id: "second", path: [0x2F])
        #expect(try pair.received().map { $0.string("id") } == ["first", "second"])
    }

    /// Who hears nothing is told now and then how far that is.
    @Test func whatIsLeftOutBringsABookmark() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        hub.add(1, raw: pair.served.raw)
        hub.open(store)
        var operation = SubscribeOperation(store, tables: TableFilter(["tag"]))
        operation.wantsBookmarks = true
        hub.subscribe(1, operation, id: 1, path: [0x2F])
        let most = Subscription.bookmarkInterval
        for _ in 1...(2 * most) { hub.publish(.change(ChangedTables(["note"], isComplete: true)), of: store) }
        let lines = try pair.received().dropFirst()
        #expect(lines.map { $0.string("type") } == ["bookmark", "bookmark"])
        #expect(numbers(Array(lines)) == [UInt64(most), UInt64(2 * most)])
    }
}
