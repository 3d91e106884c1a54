import Testing

@testable import AgentProtocol

@Suite struct AgentRequestTests {
    private let store = StoreAddress(group: "group.example", name: Array("Notes.sqlite".utf8))
    private let oddStore = StoreAddress(group: "group.example", name: [0xFF, 0x0A, 0x22, 0x20])

    private func refusal(of text: String) -> RefusedLine? {
        do throws(RefusedLine) {
            _ = try AgentRequest(parsing: Array(text.utf8))
            return nil
        } catch {
            return error
        }
    }

    @Test func roundTripsEveryRequest() throws {
        var relocate = RelocateOperation(source: Array("/old/A b".utf8), group: [0x2F, 0xFE])
        let plain = relocate
        relocate.sourceIdentity = .init(device: .max, inode: 7)
        relocate.groupIdentity = .init(device: 1, inode: 1 << 60)
        relocate.name = [0xC3, 0x28]
        relocate.onConflict = "keep-group"
        relocate.mergeKeys = ["Note=uuid", "Page=note,number"]
        relocate.preferences = ["newer:changed", "group"]
        relocate.retire = "symlink"
        relocate.deadline = 1.5
        relocate.dryRun = true
        relocate.opaque = true
        relocate.assumeClosed = true
        relocate.model = .init(path: Array("/a.momd".utf8), identity: .init(device: 1, inode: 2))
        relocate.mergedModels = [.init(path: [0x2F, 0xFE], identity: nil)]
        relocate.configuration = "Local"
        let store = try #require(store)
        let operations: [AgentRequest.Operation] = [
            .subscribe(SubscribeOperation(store)),
            .subscribe(SubscribeOperation(try #require(oddStore), since: "e-7", tables: TableFilter(["A"]))),
            .unsubscribe(store), .cancel(request: .integer(7)), .cancel(request: .string("seven")),
            .status(StatusOperation()), .status(StatusOperation(group: "group.example")),
            .status(StatusOperation(store: store, isBrief: true)), .relocate(plain), .relocate(relocate),
        ]
        for operation in operations {
            for id in [nil, JSONValue.integer(1), .string("x\n"), .number(1.5)] {
                let request = AgentRequest(id: id, operation)
                let line = WireLine.bytes(request.json)
                #expect(line.filter { $0 == 0x0A }.count == 1)
                #expect(try AgentRequest(parsing: line.dropLast()) == request)
            }
        }
    }

    @Test func ignoresUnknownMembers() throws {
        let line = Array(#"{"op":"status","later":{"a":[1,2]},"id":9}"#.utf8)
        #expect(try AgentRequest(parsing: line) == AgentRequest(id: 9, .status(StatusOperation())))
    }

    @Test(arguments: [
        ("", "bad_json"), ("[]", "bad_json"), ("{\"op\":", "bad_json"), ("nonsense", "bad_json"),
        ("{}", "bad_request"), (#"{"op":7}"#, "bad_request"), (#"{"op":"dance"}"#, "unknown_op"),
        (#"{"op":"subscribe"}"#, "bad_request"), (#"{"op":"subscribe","store":"noslash"}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/"}"#, "bad_request"), (#"{"op":"subscribe","store":"g/a/b"}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/.."}"#, "bad_request"), (#"{"op":"subscribe","store":"/a"}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/a","since":4}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/a","detail":"no"}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/a","detail":false,"rows":true}"#, "bad_request"),
        (#"{"op":"subscribe","store":"g/a","detail":false,"tables":["a"]}"#, "bad_request"),
        (#"{"op":"subscribe","store_b64":"%%"}"#, "bad_request"),
        (#"{"op":"status","id":[1]}"#, "bad_request"), (#"{"op":"status","id":true}"#, "bad_request"),
        // A double's nearest number isn't the one that was sent.
        (#"{"op":"status","id":12345678901234567890123}"#, "bad_request"),
        (#"{"op":"status","id":-1e300}"#, "bad_request"),
        (#"{"op":"relocate","source":"rel","group":"/g"}"#, "bad_request"),
        (#"{"op":"relocate","source":"/s"}"#, "bad_request"),
        (#"{"op":"relocate","source":"/s","group":"/g","name":"a/b"}"#, "bad_request"),
        (#"{"op":"relocate","source":"/s","group":"/g","deadline":-1}"#, "bad_request"),
        (#"{"op":"relocate","source":"/s","group":"/g","source_file":{"dev":1}}"#, "bad_request"),
    ])
    func refusesAnInvalidRequestWithACode(_ line: String, _ code: String) {
        #expect(refusal(of: line)?.error.code == code)
    }

    @Test func keepsTheIdentifierInARefusal() {
        #expect(refusal(of: #"{"id":"q","op":"dance"}"#)?.id == "q")
        #expect(refusal(of: #"{"id":4}"#)?.id == 4)
        #expect(refusal(of: "{")?.id == nil)
    }

    @Test func repeatsA64BitIdentifierExactly() throws {
        for id in [Int64.max, .min, 9_007_199_254_740_993] {
            let request = try AgentRequest(parsing: Array("{\"op\":\"status\",\"id\":\(id)}".utf8))
            #expect(request.id == .integer(id))
        }
    }

    /// A table's name may contain a comma.
    @Test func keepsANameWithACommaWhole() throws {
        let line = Array(#"{"op":"changes","store":"g/a","tables":["weird, name","b"]}"#.utf8)
        guard case .history(.changes(_, _, _, let filter, _)) = try AgentRequest(parsing: line).operation else {
            throw RefusedLine(id: nil, error: WireError(code: "test", "another operation"))
        }
        #expect(filter.tables == ["weird, name", "b"])
    }

    @Test(arguments: [
        #"{"op":"changes","store":"g/a","since":""}"#, #"{"op":"changes","store":"g/a","since":7}"#,
        #"{"op":"changes","store":"g/a","since":"a\u0000b"}"#, #"{"op":"changes","store":"g/a","tables":[]}"#,
        #"{"op":"changes","store":"g/a","authors":["a\u0000b"]}"#,
        #"{"op":"ack","store":"g/a","subscriber":"me","token":""}"#,
        #"{"op":"ack","store":"g/a","subscriber":"m\u0000e","token":"h1.1"}"#,
        #"{"op":"subscribe","store":"g/a","entities":[""]}"#,
    ])
    func refusesEmptyAndMalformedNames(_ line: String) { #expect(refusal(of: line)?.error.code == "bad_request") }

    @Test func refusesDeepNesting() {
        let nested = String(repeating: "[", count: 16_000) + String(repeating: "]", count: 16_000)
        #expect(refusal(of: #"{"op":"status","x":"# + nested + "}")?.error.code == "bad_json")
    }
}
