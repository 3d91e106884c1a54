import AgentProtocol
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct PublisherTests {
    private let loop: EventLoop
    private let publisher: Publisher
    private let store: StoreAddress

    init() throws {
        loop = try EventLoop()
        publisher = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    private func subscriber(
        _ connection: UInt64, capacity: CInt? = nil, since: String? = nil, wantsProgress: Bool = false
    ) throws -> SocketPair {
        let pair = try SocketPair(capacity: capacity)
        try loop.add(pair.served.raw, token: connection)
        publisher.add(connection, raw: pair.served.raw)
        publisher.open(store)
        var operation = SubscribeOperation(store, since: since)
        operation.wantsProgress = wantsProgress
        publisher.subscribe(connection, operation, id: 1, path: [0x2F])
        return pair
    }

    private func numbers(_ objects: [JSONObject]) -> [UInt64] {
        objects.compactMap { $0.string("token").flatMap { FeedToken($0) }?.number }
    }

    @Test func sendsEventsToEverySubscriberInOrder() throws {
        let pairs = [try subscriber(1), try subscriber(2)]
        for event in [
            StoreEvent.change(.unknown), .relocating(waitingFor: []), .relocated(from: [1], to: [2]), .change(.unknown),
        ] {
            publisher.publish(event, of: store)
        }
        for pair in pairs {
            let lines = try pair.received()
            #expect(lines.first?.bool("ok") == true)
            #expect(lines.dropFirst().map { $0.string("type") } == ["change", "relocating", "relocated", "change"])
            #expect(numbers(lines) == [0, 1, 2, 3, 4])
        }
    }

    @Test func sendsNothingToOtherSubscribers() throws {
        let pair = try subscriber(1)
        let other = try #require(StoreAddress(bytes: Array("g/Other.sqlite".utf8)))
        publisher.open(other)
        publisher.publish(.change(.unknown), of: other)
        #expect(try pair.received().count == 1)
        #expect(publisher.unsubscribe(1, from: store))
        publisher.publish(.change(.unknown), of: store)
        #expect(try pair.received().isEmpty)
    }

    /// A subscriber that doesn't read gets what its socket took, then one change; another subscriber gets every change.
    @Test func slowSubscriberGetsOneChangeAndDelaysNoOther() throws {
        let slow = try subscriber(1, capacity: 4608)
        let fast = try subscriber(2)
        _ = try fast.received()
        for number in 1...2000 {
            publisher.publish(.change(.unknown), of: store)
            #expect(try numbers(fast.received()) == [UInt64(number)])
        }
        let taken = numbers(try slow.received())
        #expect(taken.count < 1000)
        #expect(taken == taken.sorted())
        #expect(try loop.wait(timeout: .ample).contains { $0.token == 1 && $0.isWritable })
        publisher.flush(1)
        let late = try slow.received()
        // If a line was cut in the middle, its rest comes first.
        #expect(late.count <= 2)
        #expect(late.last?.string("type") == "change")
        #expect(numbers(late).last == 2000)
        #expect(publisher.isFlushed)
        publisher.publish(.change(.unknown), of: store)
        #expect(numbers(try slow.received()) == [2001])
    }

    @Test func sendsAMissedRelocationToASlowSubscriber() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...500 { publisher.publish(.change(.unknown), of: store) }
        publisher.publish(.relocated(from: [1], to: [2]), of: store)
        publisher.publish(.change(.unknown), of: store)
        var late: [JSONObject] = try slow.received()
        while !publisher.isFlushed {
            publisher.flush(1)
            late += try slow.received()
        }
        #expect(late.suffix(2).map { $0.string("type") } == ["relocated", "change"])
        #expect(numbers(late).last == 502)
    }

    @Test func tooManyMissedEventsBecomeAReset() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...250 {
            publisher.publish(.relocating(waitingFor: []), of: store)
            publisher.publish(.abandoned(outcome: "refused", message: ""), of: store)
        }
        var late: [JSONObject] = try slow.received()
        while !publisher.isFlushed {
            publisher.flush(1)
            late += try slow.received()
        }
        #expect(late.contains { $0.string("type") == "reset" && $0.string("reason") == "lagged" })
        #expect(numbers(late).last == 500)
    }

    /// A new subscriber is told at once of a running relocation and of its present holders.
    @Test func newSubscriberReceivesARunningRelocation() throws {
        let holder = StoreEvent.Holder(pid: 7, program: "old")
        let first = try subscriber(1)
        publisher.publish(.relocating(waitingFor: [holder]), of: store)
        publisher.publish(.relocating(waitingFor: [holder]), of: store)
        publisher.publish(.relocating(waitingFor: []), of: store)
        publisher.publish(.reset(.overflow), of: store)
        let types = try first.received().dropFirst().map { $0.string("type") }
        #expect(types == ["relocating", "relocating", "reset", "relocating"])
        for since in [nil, "e-0", "e-4", "other-1"] {
            let joined = try subscriber(2, since: since)
            let last = try joined.received().last
            #expect(last?.string("type") == "relocating", "\(since ?? "none")")
            #expect(last?.string("token") == "e-4")
            _ = publisher.remove(2)
        }
        #expect(publisher.status()[store]?.relocation?.phase == .relocating(waitingFor: []))
        publisher.publish(.abandoned(outcome: "refused", message: "no"), of: store)
        #expect(try subscriber(3).received().count == 1)
        #expect(publisher.status()[store]?.relocation?.json.string("state") == "abandoned")
        withExtendedLifetime(first) {}
    }

    private func types(_ pair: SocketPair) throws -> [String] { try pair.received().compactMap { $0.string("type") } }

    private func progress(_ work: StoreProgress.Work, _ fraction: Double) -> StoreEvent {
        .progress(StoreProgress(work, fraction: fraction, activity: "busy"))
    }

    /// It needs no number of its own: nobody has to catch up with it.
    @Test func sendsProgressToThoseWhoAskedForIt() throws {
        let (asked, other) = (try subscriber(1, wantsProgress: true), try subscriber(2))
        publisher.publish(.relocating(waitingFor: []), of: store)
        publisher.publish(progress(.relocating, 0.25), of: store)
        publisher.publish(progress(.migrating, 0.12345), of: store)
        let lines = try asked.received()
        #expect(numbers(lines) == [0, 1, 1, 1])
        #expect(lines.dropFirst().compactMap { $0.string("type") } == ["relocating", "relocating", "migrating"])
        #expect(lines.last?.number("fraction") == 0.123 && lines.last?.string("doing") == "busy")
        #expect(try types(other) == ["relocating"])
        let (late, lateOther) = (try subscriber(3, wantsProgress: true), try subscriber(4))
        #expect(try types(late) == ["relocating", "migrating"])
        #expect(try types(lateOther) == ["relocating"])
        #expect(publisher.status()[store]?.relocation?.json.number("fraction") == 0.123)
        publisher.publish(.reset(.overflow), of: store)
        #expect(try types(asked) == ["reset", "relocating", "migrating"])
        publisher.publish(.relocated(from: [1], to: [2]), of: store)
        publisher.publish(progress(.migrating, 0.9), of: store)
        #expect(try types(asked) == ["relocated"])
        #expect(try types(subscriber(5, wantsProgress: true)) == [])
    }

    @Test func keepsOnlyTheLastProgressForASlowSubscriber() throws {
        let slow = try subscriber(1, capacity: 4608, wantsProgress: true)
        publisher.publish(.relocating(waitingFor: []), of: store)
        for step in 1...1000 { publisher.publish(progress(.migrating, Double(step) / 1000), of: store) }
        var late: [JSONObject] = try slow.received()
        while !publisher.isFlushed {
            publisher.flush(1)
            late += try slow.received()
        }
        #expect(late.count < 500 && !late.contains { $0.string("type") == "reset" })
        #expect(late.last?.number("fraction") == 1)
    }

    /// A relocation that began before the store was followed.
    @Test func firstSubscriberReceivesARunningRelocation() throws {
        publisher.publish(.relocating(waitingFor: []), of: store)
        let first = try subscriber(1)
        #expect(try first.received().last?.string("type") == "relocating")
    }

    @Test func announcesARunningRelocationAfterAReset() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...500 { publisher.publish(.change(.unknown), of: store) }
        for _ in 1...20 {
            publisher.publish(.abandoned(outcome: "refused", message: ""), of: store)
            publisher.publish(.relocating(waitingFor: []), of: store)
        }
        for _ in 1...3 { publisher.publish(.change(.unknown), of: store) }
        var late: [JSONObject] = try slow.received()
        while !publisher.isFlushed {
            publisher.flush(1)
            late += try slow.received()
        }
        #expect(late.contains { $0.string("type") == "reset" && $0.string("reason") == "lagged" })
        let states = late.compactMap { $0.string("type") }.filter { $0 != "change" }
        #expect(states.last == "relocating")
    }

    /// The feed thread does all connections' work in order.
    @Test func holdsBackAConnectionWithTooMuchWork() throws {
        _ = try subscriber(1)
        var waiting = 0
        while !publisher.pausesIfCongested(1) {
            publisher.beginWork(1)
            waiting += 1
            try #require(waiting <= 100)
        }
        #expect(publisher.drainResumed() == [])
        publisher.endWork(1)
        #expect(publisher.drainResumed() == [1])
        #expect(!publisher.pausesIfCongested(1))
        for _ in 1..<waiting { publisher.endWork(1) }
        #expect(publisher.drainResumed() == [])
    }

    @Test func statusReportsTheLagOfEachSubscriber() throws {
        let slow = try subscriber(1, capacity: 4608)
        let fast = try subscriber(2)
        for _ in 1...500 {
            publisher.publish(.change(.unknown), of: store)
            _ = try fast.received()
        }
        let found = try #require(publisher.status()[store]?.subscriptions.map { $0.json { _ in "program" } })
        #expect((found[0].integer("behind") ?? 0) > 0)
        #expect((found[0].integer("unread_bytes") ?? 0) > 0)
        #expect(found[0].string("lagging_since") != nil)
        #expect(found[1].integer("behind") == 0)
        #expect(found[1].integer("waiting_bytes") == 0)
        #expect(found[1]["lagging_since"] == nil)
        while !publisher.isFlushed {
            _ = try slow.received()
            publisher.flush(1)
        }
        #expect(publisher.status()[store]?.subscriptions.map(\.behind) == [0, 0])
    }

    @Test func tokenBringsMissedEvents() throws {
        let first = try subscriber(1)
        publisher.publish(.change(.unknown), of: store)
        let second = try subscriber(2, since: "e-0")
        let lines = try second.received()
        #expect(lines.map { $0.string("type") } == [nil, "change"])
        #expect(lines.map { $0.string("token") } == ["e-0", "e-1"])
        let third = try subscriber(3, since: "before-1")
        #expect(try third.received().last?.string("reason") == "epoch")
        withExtendedLifetime(first) {}
    }

    /// The store was not followed for a while: an earlier token is useless.
    @Test func resetsAStoreThatWasNotFollowed() throws {
        let first = try subscriber(1)
        publisher.publish(.change(.unknown), of: store)
        #expect(!publisher.close(store))
        #expect(publisher.remove(1) == [store])
        #expect(publisher.close(store))
        let second = try subscriber(2, since: "e-1")
        #expect(try second.received().last?.string("reason") == "lagged")
        withExtendedLifetime(first) {}
    }

    @Test func deadPeerAffectsNoOther() throws {
        let gone = try subscriber(1)
        let other = try subscriber(2)
        gone.hangUp()
        publisher.publish(.change(.unknown), of: store)
        #expect(try other.received().count == 2)
        #expect(publisher.drainFinished().contains(1))
        #expect(publisher.remove(1) == [])
    }

    @Test func limitsSubscriptionsPerConnection() throws {
        let pair = try subscriber(1)
        for number in 1...publisher.limits.perConnection {
            let other = try #require(StoreAddress(group: "g", name: Array("\(number)".utf8)))
            publisher.open(other)
            publisher.subscribe(1, SubscribeOperation(other), id: nil, path: [])
            _ = try pair.received()
        }
        let last = try #require(StoreAddress(group: "g", name: [0x61]))
        publisher.open(last)
        publisher.subscribe(1, SubscribeOperation(last), id: "last", path: [])
        #expect(try pair.received().last?.object("error")?.string("code") == "too_many_subscriptions")
    }

    @Test func limitsSubscriptionsOfAllConnections() throws {
        publisher.limits = SubscriptionLimits(perConnection: 10, total: 2)
        let (first, second) = (try subscriber(1), try subscriber(2))
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 3)
        publisher.add(3, raw: pair.served.raw)
        publisher.subscribe(3, SubscribeOperation(store), id: 1, path: [])
        #expect(try pair.received().last?.object("error")?.string("code") == "too_many_subscriptions")
        // A repeated subscription to the same store doesn't count.
        publisher.subscribe(2, SubscribeOperation(store), id: 1, path: [])
        #expect(try second.received().last?.bool("ok") == true)
        #expect(publisher.remove(1) == [])
        publisher.subscribe(3, SubscribeOperation(store), id: 2, path: [])
        #expect(try pair.received().last?.bool("ok") == true)
        withExtendedLifetime(first) {}
    }

    @Test func epochsDiffer() {
        #expect(Publisher.randomEpoch() != Publisher.randomEpoch())
        #expect(Publisher.randomEpoch().utf8.count == 12)
    }

    /// The answer follows all earlier events, even if they wait for the socket.
    @Test func answersSyncAfterWaitingEvents() throws {
        let slow = try subscriber(1, capacity: 4608)
        for _ in 1...2000 { publisher.publish(.change(.unknown), of: store) }
        publisher.expectAnswer(1)
        publisher.sync(1, store, id: "barrier")
        var lines: [JSONObject] = []
        while lines.last?.string("id") != "barrier" {
            lines += try slow.received()
            publisher.flush(1)
        }
        #expect(numbers(lines).suffix(2) == [2000, 2000])
        #expect(lines.dropLast().last?.string("type") == "change")
    }

    /// Without a history, a filter of rows leaves nothing out.
    @Test func rowFilterLeavesNothingOutWithoutAHistory() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        publisher.add(1, raw: pair.served.raw)
        publisher.open(store)
        var operation = SubscribeOperation(store)
        operation.filter.authors = ["nobody"]
        publisher.subscribe(1, operation, id: 1, path: [0x2F])
        publisher.publish(.change(ChangedTables(["note"], isComplete: true)), of: store)
        publisher.publish(.relocated(from: [1], to: [2]), of: store)
        let lines = try pair.received()
        #expect(lines.first?.bool("history") == false)
        #expect(lines.dropFirst().map { $0.string("type") } == ["change", "relocated"])
        #expect(numbers(lines) == [0, 1, 2])
    }

    /// A subscription that is replaced before its answer is answered all the same.
    @Test func answersAReplacedSubscription() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        publisher.add(1, raw: pair.served.raw)
        publisher.open(store)
        publisher.readHistories { _ in }
        var operation = SubscribeOperation(store)
        operation.wantsRows = true
        publisher.subscribe(1, operation, id: "first", path: [0x2F])
        #expect(try pair.received().isEmpty)
        publisher.subscribe(1, SubscribeOperation(store), id: "second", path: [0x2F])
        #expect(try pair.received().map { $0.string("id") } == ["first", "second"])
    }

    /// A subscriber that gets no events is sent its position from time to time.
    @Test func sendsBookmarksForLeftOutEvents() throws {
        let pair = try SocketPair()
        try loop.add(pair.served.raw, token: 1)
        publisher.add(1, raw: pair.served.raw)
        publisher.open(store)
        var operation = SubscribeOperation(store, tables: TableFilter(["tag"]))
        operation.wantsBookmarks = true
        publisher.subscribe(1, operation, id: 1, path: [0x2F])
        let interval = Subscription.bookmarkInterval
        for _ in 1...(2 * interval) { publisher.publish(.change(ChangedTables(["note"], isComplete: true)), of: store) }
        let lines = try pair.received().dropFirst()
        #expect(lines.map { $0.string("type") } == ["bookmark", "bookmark"])
        #expect(numbers(Array(lines)) == [UInt64(interval), UInt64(2 * interval)])
    }
}
