import AgentProtocol
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication
import StoreWatching
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// Tokens, histories, sessions with an agent, and a relay's stream, as releases wrote them.
@Suite struct RecordedStreamTests {
    private let scratch: TemporaryDirectory

    init() throws { scratch = try TemporaryDirectory() }

    @Test(arguments: RecordedVersion.all) func understandsTokensOfEveryKind(_ version: RecordedVersion) throws {
        let tokens = try version.object("tokens.json")
        for (kind, value) in tokens.members {
            guard case .string(let text) = value else { throw Unexpected(kind) }
            let found: String? =
                if kind.hasPrefix("direct") {
                    DirectToken(text)?.description
                } else if kind.hasPrefix("an agent's") {
                    SubscriptionToken(text)?.description
                } else {
                    HistoryToken(text)?.description
                }
            #expect(found == text, "\(kind)")
        }
        let both = try #require(tokens.string("an agent's feed with a history").flatMap(SubscriptionToken.init))
        #expect(both.feed != nil && both.history.flatMap(HistoryToken.init) != nil)
        #expect(tokens.string("history of a Core Data store").flatMap(HistoryToken.init)?.model != nil)
        #expect(tokens.members.count == 9)
    }

    private func changes(_ store: StoreLocation, after token: HistoryToken? = nil) throws -> [HistoryChange] {
        try StoreReader.read(store) { reader in
            let history = try StoreHistory(reader)
            return try history.changes(after: token ?? history.start(), limit: 100).changes
        }
    }

    @Test(arguments: RecordedVersion.all, 1...4)
    func readsHistoriesOfEveryVersion(_ version: RecordedVersion, number: Int) throws {
        let store = try version.store("history/version\(number).sql", in: scratch)
        let tokens = try version.object("tokens.json")
        if let before = tokens.string("history version \(number), before").flatMap(HistoryToken.init) {
            let after = try changes(store, after: before)
            #expect(after.map(\.operation) == [.insert, .update, .delete])
            let current = try StoreReader.read(store) { try StoreHistory($0).current() }
            #expect("\(current)" == tokens.string("history version \(number)"))
        }
        let known = try changes(store)
        #expect(known.map(\.operation) == [.insert, .update, .delete] && known[1].columns == ["title"])
        // An upgrade keeps what is there, and records on.
        let outcome = try HistoryInstallation(store).enable()
        #expect(outcome.kind == (number < 3 ? .updated : .unchanged) && outcome.gaps.isEmpty)
        #expect(try changes(store) == known)
        try StoreWriter(store.path).execute("INSERT INTO note (title) VALUES ('later')")
        #expect(try changes(store).count == 4)
    }

    @Test(arguments: RecordedVersion.all) func resetsATokenOfAnotherHistory(_ version: RecordedVersion) throws {
        let store = try version.store("history/version3.sql", in: scratch)
        let tokens = try version.object("tokens.json")
        for kind in ["history version 4", "history of a Core Data store", "an agent's feed with a history"] {
            let token = try #require(tokens.string(kind).flatMap(HistoryToken.init))
            #expect(throws: StoreHistory.Discontinuity.epoch) { try changes(store, after: token) }
        }
    }

    @Test(arguments: RecordedVersion.all) func continuesACoreDataStoresHistory(_ version: RecordedVersion) throws {
        let store = try version.store("history/core-data.sql", in: scratch)
        let tokens = try version.object("tokens.json")
        let known = try #require(tokens.string("history of a Core Data store").flatMap(HistoryToken.init))
        #expect(try changes(store, after: known).isEmpty)
        try StoreWriter(store.path).execute("UPDATE ZNOTE SET ZTITLE = 'later'")
        #expect(try changes(store, after: known).map(\.operation) == [.update])
    }

    @Test(arguments: RecordedVersion.all) func understandsASessionInBothDirections(_ version: RecordedVersion) throws {
        var types: Set<String> = []
        var refused: [String] = []
        for entry in try version.lines("wire/session.jsonl") {
            let line = Array(try #require(entry.string("line")).utf8)
            if entry.string("from") == "client" {
                do throws(RefusedLine) {
                    _ = try AgentRequest(parsing: line)
                } catch {
                    refused.append(error.error.code)
                }
                continue
            }
            let message = try AgentMessage(parsing: line)
            if case .hello(let wire, let agent, _) = message {
                #expect(wire == WireLine.protocolVersion && agent == version.name)
            }
            if case .event(let type, let object) = message {
                types.insert(type)
                if object["id"] == nil, let token = object.string("token") {
                    let event = try #require(StoreEvent(type: type, object), "\(type)")
                    let rows = object["rows"].map { _ in object.objects("rows") }
                    #expect(event.json(store: object.path("store") ?? [], token: token, rows: rows) == object)
                }
            }
            #expect(try JSONValue.object(message.json).includes(JSONValue(parsing: line)))
        }
        #expect(refused == ["unknown_op"])
        #expect(types.isSuperset(of: ["change", "reset", "row", "store"]))
    }

    @Test(arguments: RecordedVersion.all) func aReplicaFollowsTheStream(_ version: RecordedVersion) throws {
        let stream = try RelayStream("Notes")
        let key = RelayKey(bytes: Array("0123456789abcdef0123456789abcdef".utf8))
        let store = try version.store("relay/replica.sql", in: scratch)
        let replica = try Replica(opening: store, stream: "GS_Notes")
        var former: String?
        var outcomes: [Replica.Outcome] = []
        var followers: [String] = []
        for entry in try version.lines("relay/stream.jsonl") {
            let headers = (entry.object("headers")?.members ?? []).compactMap { member -> (String, String)? in
                if case .string(let value) = member.value { (member.key, value) } else { nil }
            }
            let received = NATSMessage(
                subject: try #require(entry.string("subject")), headers: Dictionary(uniqueKeysWithValues: headers),
                body: Array((entry.string("body") ?? "").utf8))
            if received.subject == stream.changes {
                let batch = try #require(BatchMessage(received))
                #expect(try batch.isAuthentic(in: stream, key: key))
                if let former { #expect(batch.previous == former) }
                former = batch.mac
                outcomes.append(try replica.apply(batch.part))
            } else if let sent = try Acknowledgement(received, stream, key: key) {
                followers.append(sent.follower)
            }
        }
        #expect(outcomes.count >= 2 && outcomes.last == .applied(replica.position))
        #expect(followers.allSatisfy { $0 == "laptop" } && !followers.isEmpty)
        let rows = try StoreWriter(store.path).text("SELECT group_concat(id || ' ' || title) FROM note")
        #expect(rows == "1 changed,3 ü")
    }
}
