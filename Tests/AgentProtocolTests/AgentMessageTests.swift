import Testing

@testable import AgentProtocol

@Suite struct AgentMessageTests {
    private let error = WireError(code: "unknown_store", "no such store", hint: "name one")

    private func parsed(_ message: AgentMessage) throws -> AgentMessage {
        try AgentMessage(parsing: WireLine.bytes(message.json).dropLast())
    }

    @Test func roundTripsEveryMessage() throws {
        #expect(
            try parsed(.hello(protocol: 1, agent: "0.1.0", maxLineLength: 32_768))
                == .hello(protocol: 1, agent: "0.1.0", maxLineLength: 32_768))
        for id in [nil, JSONValue.integer(3), "x"] {
            #expect(try parsed(.failure(id: id, error)) == .failure(id: id, error))
            guard case .reply(let found, let object) = try parsed(.reply(id: id, ["token": "e-1"])) else {
                Issue.record("no reply")
                continue
            }
            #expect(found == id)
            #expect(object.string("token") == "e-1")
        }
        guard case .event("change", let object) = try parsed(.event(type: "change", ["token": "e-2"])) else {
            Issue.record("no event")
            return
        }
        #expect(object.string("token") == "e-2")
    }

    /// A relocation's last line is also its reply.
    @Test func parsesAReplyWithATypeAsAReply() throws {
        guard case .reply(5, let object) = try parsed(.reply(id: 5, ["type": "summary", "outcome": "busy"])) else {
            Issue.record("no reply")
            return
        }
        #expect(object.string("type") == "summary")
    }

    @Test(arguments: ["", "7", "{}", "nothing", #"{"id":1}"#])
    func rejectsAnInvalidMessage(_ line: String) {
        #expect(throws: WireError.self) { try AgentMessage(parsing: Array(line.utf8)) }
    }

    @Test func encodesStoreAndTokenInEvents() throws {
        let store = try #require(StoreAddress(bytes: Array("g/Notes.sqlite".utf8)))
        #expect(
            StoreEvent.change(.unknown).json(store: store, token: "e-1").text
                == #"{"type":"change","store":"g/Notes.sqlite","complete":false,"token":"e-1"}"#)
        #expect(
            StoreEvent.relocated(from: Array("/a".utf8), to: [0x2F, 0xFF]).json(store: store, token: "e-2").text
                == #"{"type":"relocated","store":"g/Notes.sqlite","from":"/a","to_b64":"L/8=","token":"e-2"}"#)
        #expect(
            StoreEvent.reset(.lagged).json(store: store, token: "e-3").text
                == #"{"type":"reset","store":"g/Notes.sqlite","reason":"lagged","token":"e-3"}"#)
        #expect(
            StoreEvent.relocating(waitingFor: [.init(pid: 1, program: "sh")]).json(store: store, token: "e-4").text
                == #"{"type":"relocating","store":"g/Notes.sqlite","waiting_for":[{"pid":1,"program":"sh"}],"#
                + #""token":"e-4"}"#)
    }

    @Test func shortensALongLine() throws {
        let store = try #require(StoreAddress(group: "g", name: [UInt8](repeating: 1, count: 255)))
        let long = [UInt8(ascii: "/")] + [UInt8](repeating: 1, count: 4000)
        let text = String(repeating: "x", count: 40_000)
        let event = StoreEvent.abandoned(outcome: "busy", message: text)
        let line = WireLine.bytes(event.json(store: store, token: "e-1"))
        #expect(line.count <= WireLine.maxLength)
        // Two long paths fit a line, whatever their bytes.
        let relocated = WireLine.bytes(StoreEvent.relocated(from: long, to: long).json(store: store, token: "e-1"))
        guard case .event(_, let whole) = try AgentMessage(parsing: relocated.dropLast()) else {
            Issue.record("no event")
            return
        }
        #expect(whole.path("from") == long && whole.path("to") == long && whole.bool("truncated") == nil)
        guard case .event("abandoned", let object) = try AgentMessage(parsing: line.dropLast()) else {
            Issue.record("no event")
            return
        }
        #expect(object.store == store)
        #expect(object.bool("truncated") == true)
        #expect(object.string("token") == "e-1")
    }

    @Test func roundTripsAToken() {
        let token = FeedToken(epoch: "0a-b", number: .max)
        #expect(FeedToken(token.description) == token)
        #expect(FeedToken("") == nil)
        #expect(FeedToken("epoch") == nil)
        #expect(FeedToken("epoch-x") == nil)
    }
}
