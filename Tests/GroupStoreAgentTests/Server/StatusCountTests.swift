import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// The counts in `status`.
@Suite struct StatusCountTests {
    private let loop: EventLoop
    private let publisher: Publisher
    private let store: StoreAddress

    init() throws {
        loop = try EventLoop()
        publisher = Publisher(loop: loop, epoch: "e")
        store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
    }

    private func subscriber(_ connection: UInt64, capacity: CInt? = nil) throws -> SocketPair {
        let pair = try SocketPair(capacity: capacity)
        try loop.add(pair.served.raw, token: connection)
        publisher.add(connection, raw: pair.served.raw)
        publisher.open(store)
        publisher.subscribe(connection, SubscribeOperation(store), id: 1, path: [0x2F])
        return pair
    }

    private func counts(of store: StoreAddress) throws -> JSONObject {
        let status = try #require(publisher.status()[store])
        return status.counts.json(with: status.subscriptions.map(\.counts))
    }

    @Test func countsEventsByTheirKind() throws {
        publisher.open(store)
        for event in [
            StoreEvent.change(.unknown), .branchChange(.unknown, pid: 1), .reset(.overflow), .reset(.lagged),
            .reset(.overflow),
            .relocating(waitingFor: []), .relocated(from: [1], to: [2]), .relocating(waitingFor: []),
            .abandoned(outcome: "conflict", message: ""),
        ] {
            publisher.publish(event, of: store)
        }
        let found = try counts(of: store)
        #expect(found.integer("changes") == 2)
        #expect(found.object("resets") == ["lagged": 1, "overflow": 2])
        #expect(found.object("relocations") == ["conflict": 1, "relocated": 1])
    }

    /// A counter that went back would look like a restart of the agent.
    @Test func countsContinueWhenAStoreIsOpenedAgain() throws {
        let first = try subscriber(1)
        publisher.publish(.change(.unknown), of: store)
        #expect(publisher.remove(1) == [store])
        #expect(publisher.close(store))
        #expect(publisher.status()[store] == nil)
        publisher.open(store)
        publisher.publish(.change(.unknown), of: store)
        #expect(try counts(of: store).integer("changes") == 2)
        withExtendedLifetime(first) {}
    }

    /// Any client may subscribe to any number of names.
    @Test func remembersABoundedNumberOfClosedStores() throws {
        for number in 0..<3000 {
            let other = try #require(StoreAddress(bytes: Array("g/\(number).sqlite".utf8)))
            publisher.open(other)
            #expect(publisher.close(other))
        }
        #expect(publisher.state.withLock { $0.closedCounts.count } == Publisher.State.maximumClosed)
    }

    @Test func countsLagsOverflowsAndLostConnections() throws {
        let slow = try subscriber(1, capacity: 4608)
        let quick = try subscriber(2)
        for _ in 1...250 {
            publisher.publish(.relocating(waitingFor: []), of: store)
            publisher.publish(.abandoned(outcome: "refused", message: ""), of: store)
            _ = try quick.received()
        }
        let status = try #require(publisher.status()[store]?.subscriptions.first { $0.connection == 1 })
        #expect(status.behind > 0 && status.lag != nil)
        #expect(status.counts.lags == 1 && status.counts.overflows > 0)
        let row = status.json { _ in nil }
        #expect(row["lagging_seconds"] != nil && row.string("lagging_since") != nil)
        #expect(try counts(of: store).integer("lags") == 1)
        #expect(publisher.connections.counts.accepted == 2 && publisher.connections.counts.lost == 0)

        // Its counts outlive it; the other connection ends with nothing to send.
        _ = publisher.remove(1)
        _ = publisher.remove(2)
        #expect(publisher.connections.open == 0 && publisher.connections.counts.lost == 1)
        let after = try counts(of: store)
        #expect(after.integer("lags") == 1 && after.integer("overflows") ?? 0 > 0)
        withExtendedLifetime(slow) {}
    }
}

/// Requests for a part of the status.
@Suite(.ownThreads) struct PartialStatusTests {
    private func rows(_ client: TestClient, _ request: String, id: JSONValue) throws -> [JSONObject] {
        try client.send(request + "\n")
        var found: [JSONObject] = []
        while let line = try client.next() {
            guard line["id"] == id else { continue }
            found.append(line)
            if line["ok"] != nil { return found }
        }
        throw Unexpected("the connection ended")
    }

    @Test func aStoreLimitsTheRows() throws {
        let server = try RunningServer()
        let client = try server.connect()
        for (id, name) in [(1, "A.sqlite"), (2, "B.sqlite")] {
            _ = try client.ask(
                #"{"id":\#(id),"op":"subscribe","store":"group.example/\#(name)"}"#, id: .integer(Int64(id)))
        }
        let all = try rows(client, #"{"id":3,"op":"status"}"#, id: 3)
        #expect(all.filter { $0.string("type") == "store" }.count == 2)
        let one = try rows(client, #"{"id":4,"op":"status","store":"group.example/B.sqlite"}"#, id: 4)
        #expect(
            one.filter { $0.string("type") == "store" }.compactMap { $0.string("store") } == ["group.example/B.sqlite"])
        #expect(one.filter { $0.string("type") == "subscription" }.count == 1)
        // The reply is about the whole agent.
        #expect(one.last?.integer("stores") == 2 && one.last?.integer("subscribers") == 2)
        let none = try rows(client, #"{"id":5,"op":"status","store":"group.example/C.sqlite"}"#, id: 5)
        #expect(none.filter { $0.string("type") == "store" }.isEmpty)
        let wrong = try rows(client, #"{"id":6,"op":"status","store":"nothing"}"#, id: 6)
        #expect(wrong.last?.object("error")?.string("code") == "bad_request")
    }

    /// An agent that is asked each second must not read the disk each time.
    @Test func aBriefAnswerReadsNothing() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.ask(#"{"id":1,"op":"subscribe","store":"group.example/A.sqlite"}"#, id: 1)
        let whole = try rows(client, #"{"id":2,"op":"status"}"#, id: 2)
        let brief = try rows(client, #"{"id":3,"op":"status","brief":true}"#, id: 3)
        #expect(brief.count == whole.count)
        let left: Set<String> = ["exists", "program", "descriptors", "reloads", "cpu_seconds", "resident_bytes"]
        for (short, long) in zip(brief, whole) {
            let missing = Set(long.members.map(\.key)).subtracting(short.members.map(\.key))
            #expect(missing.isSubset(of: left), "\(missing)")
            #expect(Set(short.members.map(\.key)).isDisjoint(with: left))
        }
        #expect(whole.contains { $0["program"] != nil } && whole.contains { $0["exists"] != nil })
    }
}
