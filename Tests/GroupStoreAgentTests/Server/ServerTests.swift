import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import TestSupport
import Testing

@testable import GroupStoreAgent
@testable import StoreWatching

@Suite struct ServerTests {
    private static let subscribe = #"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite"}"#

    @Test func subscriberReceivesAReset() throws {
        let server = try RunningServer()
        let client = try server.connect()
        let hello = try client.next()
        #expect(hello?.string("type") == "hello")
        #expect(hello?.integer("proto") == 1)
        let reply = try client.ask(Self.subscribe, id: 1)
        #expect(reply.bool("ok") == true)
        #expect(reply.string("path") == server.group.appending("Notes.sqlite").string)
        #expect(server.source.watched.keys.contains(server.group))
        server.source.emit(.overflow)
        let event = try client.next()
        #expect(event?.string("type") == "reset")
        #expect(event?.string("token") != reply.string("token"))
    }

    @Test func stopsWatchingAfterTheLastUnsubscription() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.ask(Self.subscribe, id: 1)
        let other = try server.connect()
        _ = try other.ask(Self.subscribe, id: 1)
        let unsubscribe = #"{"id":2,"op":"unsubscribe","store":"group.example/Notes.sqlite"}"#
        #expect(try client.ask(unsubscribe, id: 2).bool("ok") == true)
        #expect(server.source.watched.keys.contains(server.group))
        #expect(try client.ask(unsubscribe, id: 2).object("error")?.string("code") == "not_subscribed")
        #expect(try other.ask(unsubscribe, id: 2).bool("ok") == true)
        // The feed thread's work after an answer is done before its next answer.
        _ = try other.ask(unsubscribe, id: 2)
        #expect(server.source.watched.isEmpty)
    }

    @Test func refusesStoresThatAreNotServed() throws {
        let server = try RunningServer()
        let client = try server.connect()
        for store in ["group.other/Notes.sqlite", "group.example/.groupstore"] {
            let reply = try client.ask(#"{"id":1,"op":"subscribe","store":"\#(store)"}"#, id: 1)
            #expect(reply.object("error")?.string("code") == "unknown_store")
        }
        server.source.refuse(server.group)
        #expect(try client.ask(Self.subscribe, id: 1).object("error")?.string("code") == "not_watchable")
        #expect(server.source.watched.isEmpty)
    }

    /// Garbage is answered, and the lines after it are understood.
    @Test func answersMalformedLines() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.next()
        for line in ["garbage", "{", "[1]", "\u{0}\u{1}", #"{"op":"dance","id":3}"#] {
            try client.send(line + "\n\n  \n")
            #expect(try client.next()?.bool("ok") == false)
        }
        #expect(try client.ask(#"{"id":4,"op":"status"}"#, id: 4).bool("ok") == true)
    }

    @Test func acceptsARequestByteByByte() throws {
        let server = try RunningServer()
        let client = try server.connect()
        let other = try server.connect()
        let request = #"{"id":4,"op":"status"}"#
        for character in request {
            try client.send(String(character))
            // The other client isn't delayed by the partial line.
            #expect(try other.ask(request, id: 4).bool("ok") == true)
        }
        #expect(try client.ask("", id: 4).bool("ok") == true)
    }

    @Test func closesTheConnectionAfterATooLongLine() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.next()
        try client.send(String(repeating: "x", count: WireLine.maxLength))
        #expect(try client.next()?.object("error")?.string("code") == "line_too_long")
        #expect(try client.next() == nil)
        #expect(try server.connect().next() != nil)
    }

    /// `printf … | nc` shuts down its side at once, and still expects the answer.
    @Test func answersAPeerThatHasStoppedSending() throws {
        let server = try RunningServer()
        let client = try server.connect()
        try client.send(#"{"id":"s","op":"status"}"# + "\n" + #"{"half"#)
        client.endSending()
        #expect(try client.next()?.string("type") == "hello")
        var types: [String?] = []
        while let line = try client.next() { types.append(line.string("type")) }
        #expect(types == ["group", nil])

        let subscriber = try server.connect()
        try subscriber.send(Self.subscribe + "\n")
        subscriber.endSending()
        _ = try subscriber.next()
        #expect(try subscriber.next()?.bool("ok") == true)
        server.source.emit(.overflow)
        #expect(try subscriber.next()?.string("type") == "reset")
    }

    @Test func holdsBackAClientThatDoesNotRead() throws {
        let server = try RunningServer()
        let client = try server.connect()
        let line = #"{"id":1,"op":"status"}"# + "\n"
        // Sent from another thread: the server stops reading until its answers are taken.
        let requestCount = 5000
        let sender = try SystemThread(name: "test-sender") { [client = Unchecked(client)] in
            for _ in 1...requestCount { try? client.value.send(line) }
        }
        #expect(try server.connect().ask(#"{"id":2,"op":"status"}"#, id: 2).bool("ok") == true)
        var answers = 0
        while answers < requestCount, let line = try client.next() {
            if line["ok"] != nil { answers += 1 }
        }
        #expect(answers == requestCount)
        #expect(sender.join(within: .ample))
    }

    /// Neither while its requests are handled nor when it closes the connection with unread answers.
    @Test(arguments: [false, true]) func floodDelaysNoOtherClient(_ closes: Bool) throws {
        let server = try RunningServer()
        var flooding: TestClient? = try server.connect()
        let other = try server.connect()
        _ = try other.next()
        server.scheduler.gate.close()
        // Their answers have fewer bytes than those from which on a client is held back.
        let flood = 600
        let line = #"{"op":"relocate","source":"/flood","group":"/g"}"# + "\n"
        try flooding?.send(String(repeating: line, count: flood))
        try server.scheduler.gate.waitUntilReached()
        if closes { flooding = nil }
        try other.send(#"{"id":1,"op":"relocate","source":"/other","group":"/g"}"# + "\n")
        server.scheduler.gate.open()
        while let line = try other.next(), line["ok"] == nil {}
        #expect(server.scheduler.sources.prefix { $0 != "/other" }.count < flood / 2)
        withExtendedLifetime(flooding) {}
    }

    @Test func refusesUnknownUsersWithOneLine() throws {
        let server = try RunningServer(users: [geteuid() + 1])
        let client = try server.connect()
        #expect(try client.next()?.object("error")?.string("code") == "not_permitted")
        #expect(try client.next() == nil)
    }

    /// A client that gets EPIPE for its request may end before it has read why. Twenty are more than are kept.
    @Test func aRefusedClientMaySendItsRequestFirst() throws {
        let server = try RunningServer(users: [geteuid() + 1])
        for _ in 0..<20 {
            let client = try server.connect()
            #expect(try client.next()?.object("error")?.string("code") == "not_permitted")
            try client.send(#"{"id":1,"op":"status"}"# + "\n")
            #expect(try client.next() == nil)
        }
    }

    @Test func limitsConnectionsPerUser() throws {
        let server = try RunningServer(connectionsPerUser: 2)
        let first = try server.connect()
        var second: TestClient? = try server.connect()
        #expect(try first.next() != nil)
        #expect(try second?.next() != nil)
        let third = try server.connect()
        #expect(try third.next()?.object("error")?.string("code") == "too_many_connections")
        second = nil
        let deadline = Deadline(after: .ample)
        while try server.connect().next()?.string("type") != "hello" {
            try #require(!deadline.hasPassed, "the closed connection's place is not reused")
        }
    }

    @Test func answersARelocationUntilItsSummary() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.next()
        try client.send(#"{"id":7,"op":"relocate","source":"/s","group":"/g"}"# + "\n")
        let plan = try client.next()
        #expect(plan?.string("type") == "plan")
        #expect(plan?["id"] == 7)
        let summary = try client.next()
        #expect(summary?.string("type") == "summary")
        #expect(summary?.string("outcome") == "relocated")
        #expect(summary?["id"] == 7)
    }

    @Test func sendsWaitingEventsBeforeStopping() throws {
        let server = try RunningServer()
        let client = try server.connect()
        _ = try client.ask(Self.subscribe, id: 1)
        server.publisher.publish(
            .change(.unknown),
            of: try RunningServer.required(StoreAddress(bytes: Array("group.example/Notes.sqlite".utf8))))
        #expect(server.stop())
        #expect(try client.next()?.string("type") == "change")
        #expect(try client.next() == nil)
        #expect(throws: SystemError.self) { _ = try server.connect() }
    }

    /// The client's side.
    @Test func connectionRequestsAndReceivesEvents() throws {
        let server = try RunningServer()
        let connection = try AgentConnection(server.socket)
        #expect(connection.agent == "test")
        let store = try RunningServer.required(StoreAddress(bytes: Array("group.example/A b".utf8)))
        let deadline = Deadline(after: .ample)
        _ = try connection.request(.subscribe(SubscribeOperation(store)), deadline: deadline)
        server.publisher.publish(.change(.unknown), of: store)
        var rows: [String] = []
        // The event comes before the answer, and is kept.
        let summary = try connection.request(.status(StatusOperation()), deadline: deadline) { type, _ in
            rows.append(type)
        }
        #expect(rows == ["group", "store", "subscription"])
        #expect(summary.integer("subscribers") == 1)
        #expect(try connection.event(deadline: deadline)?.type == "change")
        #expect(try connection.event(deadline: Deadline(after: .milliseconds(1))) == nil)
        server.stop()
        #expect(throws: AgentConnectionError.lost(server.socket)) { _ = try connection.event(deadline: deadline) }
    }
}

/// The test ensures that two threads don't use it for the same purpose: one sends, one receives.
private struct Unchecked<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}
