import NATSStreams
import PersistentHistory
import StoreReplication
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

@Suite struct RelayMessageTests {
    private let key = RelayKey(bytes: Array("0123456789abcdef".utf8))

    /// Test case 2 of RFC 4231.
    @Test func digestsAreHMACsOfSHA256() throws {
        let key = RelayKey(bytes: Array("Jefe".utf8))
        #expect(
            try key.digest(of: [], Array("what do ya want for nothing?".utf8))
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    }

    @Test func fieldsAreSeparated() throws {
        let digests = [
            try key.digest(of: ["a", "bc"], []), try key.digest(of: ["ab", "c"], []), try key.digest(of: ["a"], [0x62]),
        ]
        #expect(Set(digests).count == 3)
        #expect(try key.digest(of: ["a", "b"], [0x63]) == key.digest(of: [], Array("a\nb\nc".utf8)))
    }

    @Test func acceptsOnlyTheRightDigest() throws {
        let digest = try key.digest(of: ["a"], [1])
        #expect(try key.accepts(digest, of: ["a"], [1]))
        for wrong in [nil, "", String(digest.dropLast()), digest.uppercased(), String(digest.reversed())] {
            #expect(try !key.accepts(wrong, of: ["a"], [1]))
        }
        #expect(try !key.accepts(digest, of: ["b"], [1]))
        #expect(try !key.accepts(digest, of: ["a"], [2]))
    }

    @Test func readsAKeyWithoutItsNewline() throws {
        let scratch = try TemporaryDirectory()
        func key(_ text: String) throws -> RelayKey {
            let file = scratch.path.appending("key")
            let written = try run("sh", ["-c", "umask 077; printf '%s' \"$1\" > \"$0\"", Word(file), Word(text)])
            #expect(written.status == 0)
            return try RelayKey(file: file)
        }
        #expect(try key("0123456789abcdef\n").digest(of: [], []) == self.key.digest(of: [], []))
        #expect(throws: RelayError.self) { try key("short\n") }
    }

    private let stream: RelayStream

    init() throws { stream = try RelayStream("Notes") }

    private func message(_ headers: [(name: String, value: String)], _ body: String) -> NATSMessage {
        NATSMessage(
            subject: stream.changes, headers: Dictionary(uniqueKeysWithValues: headers.map { ($0.name, $0.value) }),
            body: Array(body.utf8))
    }

    private func part(_ number: Int, isLast: Bool) throws -> BatchPart {
        BatchPart(
            number: number, isLast: isLast, from: try #require(HistoryToken("h1.abc.1.2")),
            upto: try #require(HistoryToken("h1.abc.5.ff")), schema: "s", body: Array("body".utf8))
    }

    @Test(arguments: [(1, false), (1, true), (12, true)])
    func aPartSurvivesTheMessage(number: Int, isLast: Bool) throws {
        let part = try part(number, isLast: isLast)
        let (headers, mac) = try BatchMessage.headers(part, in: stream, after: "before", key: key)
        let found = try #require(BatchMessage(message(headers, "body")))
        #expect(found.part == part)
        #expect(found.mac == mac && found.previous == "before")
        #expect(try found.isAuthentic(in: stream, key: key))
        #expect(try !found.isAuthentic(in: RelayStream("Other"), key: key))
        #expect(try BatchMessage.headers(part, in: stream, after: "x", key: nil).list.count == 4)
    }

    /// Each header, and the body, is covered by the digest.
    @Test func noticesEveryAlteration() throws {
        let (headers, _) = try BatchMessage.headers(part(2, isLast: false), in: stream, after: "before", key: key)
        let others = [
            "Gs-From": "h1.abc.0.2", "Gs-Upto": "h1.abc.6.ff", "Gs-Part": "2 last", "Gs-Schema": "t", "Gs-Prev": "",
            "Gs-Mac": String(repeating: "0", count: 64),
        ]
        #expect(others.count == headers.count)
        for index in headers.indices {
            var altered = headers
            altered[index].value = try #require(others[headers[index].name])
            let found = try #require(BatchMessage(message(altered, "body")))
            #expect(try !found.isAuthentic(in: stream, key: key), "\(headers[index].name)")
        }
        #expect(try BatchMessage(message(headers, "bodY"))?.isAuthentic(in: stream, key: key) == false)
        #expect(try BatchMessage(message(headers.dropLast(), "body"))?.isAuthentic(in: stream, key: key) == false)
    }

    @Test(arguments: ["", "0", "-1", "1 first", "1  last", "x", "1 last ", "99999999999999999999"])
    func rejectsAPartWithoutANumber(place: String) throws {
        var (headers, _) = try BatchMessage.headers(part(1, isLast: true), in: stream, after: "", key: nil)
        headers[2].value = place
        #expect(BatchMessage(message(headers, "")) == nil)
    }

    @Test func anAcknowledgementIsItsFollowersOwn() throws {
        let token = try #require(HistoryToken("h1.abc.5.ff"))
        let sent = try Acknowledgement(token, by: "laptop").message(stream, key: key)
        func received(_ subject: String) throws -> Acknowledgement? {
            let headers = Dictionary(uniqueKeysWithValues: sent.headers.map { ($0.name, $0.value) })
            return try Acknowledgement(
                NATSMessage(subject: subject, headers: headers, body: sent.body), stream, key: key)
        }
        #expect(try received("gs.Notes.ack.laptop") == Acknowledgement(token, by: "laptop"))
        #expect(try received("gs.Notes.ack.other") == nil)
        #expect(try received("gs.Notes.ack.") == nil)
        #expect(try received("gs.Notes.changes") == nil)
    }

    @Test(arguments: ["", "a.b", "a b", "a*", ">", "ä", String(repeating: "a", count: 65), "a\n"])
    func rejectsNamesThatSubjectsCanNotHave(name: String) {
        #expect(throws: RelayError.self) { try RelayStream(name) }
    }

    /// Each header has room, and something is left for the body, with every broker that is accepted.
    @Test(arguments: [BatchOutlet.minPayload, 8 << 10, 17 << 10, 1 << 20, 64 << 20])
    func partsFitIntoABrokersMessages(maxPayload: Int) {
        let body = BatchOutlet.body(ofMessage: maxPayload)
        #expect(body >= 2 << 10 && maxPayload - body >= 2 << 10)
    }
}
