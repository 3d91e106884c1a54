import Testing

@testable import AgentProtocol

/// What doesn't fit a line must not become consent.
@Suite struct AnswerTests {
    private func answer(_ failure: String?) -> AgentRequest {
        AgentRequest(id: .integer(1), .answer(AnswerOperation(.relinquished, claim: 7, presenter: 3, failure: failure)))
    }

    @Test(arguments: [
        String(repeating: "x", count: 1_100_000), String(repeating: "\u{1}", count: 70_000),
        "e" + String(repeating: "\u{301}", count: 40_000), String(repeating: "😀", count: 20_000), "", "no",
    ])
    func aRefusalStaysOne(_ failure: String) throws {
        let line = try #require(WireLine.request(answer(failure).json))
        guard case .answer(let received) = try AgentRequest(parsing: line.dropLast()).operation else {
            throw WireError(code: "test", "another operation")
        }
        let text = try #require(received.failure)
        #expect(
            text == failure
                || text.hasSuffix("…") && failure.unicodeScalars.starts(with: text.unicodeScalars.dropLast()))
        #expect(received.claim == 7 && received.presenter == 3)
    }

    @Test func anAnswerWithoutAnErrorIsConsent() throws {
        let line = try #require(WireLine.request(answer(nil).json))
        #expect(try AgentRequest(parsing: line.dropLast()) == answer(nil))
    }

    /// A client in another language may send something else than a text.
    @Test(arguments: [#""error":{"code":5}"#, #""error":false"#, #""error":[]"#, #""truncated":true"#])
    func anythingElseThanNoErrorIsARefusal(_ member: String) throws {
        let request = try AgentRequest(parsing: Array(#"{"op":"saved","claim":"c1",\#(member)}"#.utf8))
        guard case .answer(let received) = request.operation else { throw WireError(code: "test", "another operation") }
        #expect(received.failure != nil)
    }

    @Test func anErrorFitsALine() throws {
        let holder = StoreEvent.Holder(pid: 1, program: String(repeating: "\u{2}", count: 5000))
        let error = WireError(
            code: "presenter_failed", String(repeating: "\u{1}", count: 40_000),
            hint: String(repeating: "\"", count: 40_000), holders: Array(repeating: holder, count: 900))
        let line = WireLine.bytes(AgentMessage.failure(id: .string(String(repeating: "\u{1}", count: 256)), error).json)
        #expect(line.count <= WireLine.maxLength)
        guard case .failure(_, let received) = try AgentMessage(parsing: line.dropLast()) else {
            throw WireError(code: "test", "another message")
        }
        #expect(received.code == "presenter_failed" && received.message.hasSuffix("…"))
        #expect(received.holders.first?.pid == 1)
    }

    /// Absent models would mean that the presenter opens any version.
    @Test func aRequestLosesNoMember() throws {
        var present = PresentOperation(item: try #require(ItemAddress(group: "group.example", path: Array("N".utf8))))
        present.models = Array(repeating: String(repeating: "m", count: 256), count: PresentOperation.maxModels)
        #expect(WireLine.request(AgentRequest(id: nil, .present(present)).json) == nil)
    }

    @Test func movesThatDontFitALineTakeSeveral() throws {
        let long = [UInt8](repeating: 0x01, count: 250) + [0x2F] + [UInt8](repeating: 0x22, count: 200)
        let moves = try (0..<200).map { number in
            let from = try #require(ItemAddress(group: "group.example", path: Array("\(number)-".utf8) + long))
            return ReleaseOperation.Move(from: from, to: from)
        }
        let requests = ReleaseOperation.all(claim: 7, tookPlace: true, moves: moves)
        #expect(requests.flatMap(\.moves) == moves)
        #expect(requests.dropLast().allSatisfy(\.hasMore) && requests.last?.hasMore == false)
        for request in requests {
            let line = try #require(WireLine.request(AgentRequest(id: nil, .release(request)).json))
            #expect(try AgentRequest(parsing: line.dropLast()).operation == .release(request))
        }
    }

    /// Three paths of the greatest length fit one event, whatever their bytes.
    @Test(arguments: [UInt8(0x01), 0x22, 0x61, 0xFF]) func anEventKeepsItsPaths(_ byte: UInt8) throws {
        let name = [UInt8](repeating: byte, count: 254) + [0x2F]
        let names = Array(repeating: name, count: 16).flatMap { $0 }
        let item = try #require(ItemAddress(group: "group.example", path: Array(names.dropLast())))
        let event = PresenterEvent.didMove(to: item, subitem: item)
        let object = event.json(item: item, presenter: 1, claim: 2, path: names, deadline: nil)
        let line = WireLine.bytes(AgentMessage.event(type: event.type, object).json)
        guard case .event(let type, let received) = try AgentMessage(parsing: line.dropLast()) else {
            throw WireError(code: "test", "another message")
        }
        #expect(PresenterEvent(type: type, received) == event && received.bool("truncated") == nil)
    }
}
