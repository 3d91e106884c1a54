import PersistentHistory
import SQLiteStore
import TestSupport
import Testing

@testable import StoreReplication

struct HostileBatchTests {
    /// Returns the part with another text, and with the hash that belongs to it.
    private func forged(_ part: BatchPart, _ old: String, _ new: String) throws -> BatchPart {
        var lines = String(decoding: part.body, as: UTF8.self).split(separator: "\n").map(String.init)
        let ending = lines.removeLast()
        var text = lines.map { $0 + "\n" }.joined()
        #expect(text.contains(old))
        text = text.replacing(old, with: new)
        let digest = "\"sha256\":\""
        let hash = SHA256Stream.digest(Array(text.utf8))
        text += ending.prefix(ending.count - 64 - 2 - digest.count) + digest + hash + "\"}\n"
        return BatchPart(
            number: 1, isLast: true, from: part.from, upto: part.upto, schema: part.schema, body: Array(text.utf8))
    }

    @Test(arguments: [
        ("\"values\":[1,", "\"values\":[2,"), ("\"values\":[1,\"a\"]", "\"values\":[1]"),
        ("\"values\":[1,\"a\"]", "\"values\":[1,\"a\",2]"), ("\"values\":[1,\"a\"]", "\"values\":[null,\"a\"]"),
        ("\"table\":\"t\"", "\"table\":\"GS_HISTORY\""), ("\"table\":\"t\"", "\"table\":\"sqlite_schema\""),
        ("\"table\":\"t\"", "\"table\":\"t\\\" (id) VALUES (1); DROP TABLE t; --\""),
        ("\"columns\":[\"id\",\"a\"]}", "\"columns\":[\"id\",\"b\"]}"), ("\"key\":[\"id\"]", "\"key\":[]"),
        ("\"a\"]}", "\"a\\ud800\"]}"), ("\"a\"]}", "{\"base64\":\"a\"}]}"), ("\"a\"]}", "{\"real\":\"nan\"}]}"),
        ("\"a\"]}", "1e999]}"), ("\"a\"]}", "99999999999999999999]}"), ("\"a\"]}", "[[[[[[\"a\"]]]]]]]}"),
        ("{\"type\":\"row\"", "{\"type\": \"row\""), ("{\"type\":\"row\"", "{\"type\":\"drop\""),
        ("\"version\":3", "\"version\":99999999999999999999"), ("\"trimmed\":[0", "\"trimmed\":[5"),
        ("\"rows\":[[1,", "\"rows\":[[2,"), ("\"rows\":[[1,", "\"rows\":[[-1,"), (",0,1,null,", ",9,1,null,"),
        ("\"encoding\":\"UTF-8\"", "\"encoding\":\"UTF-16le\""), ("\"format\":1", "\"format\":2"),
    ])
    func changesNothingByAForgery(_ old: String, _ new: String) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        let before = try ReplicatedPair.content(pair.copy)
        try pair.write("INSERT INTO t VALUES (1, 'a')")
        let good = try pair.parts(after: replica.position)[0]
        let bad = try forged(good, old, new)
        #expect { try replica.apply(bad) } throws: { ($0 as? ReplicationError)?.errorCode == "malformed_batch" }
        #expect(try ReplicatedPair.content(pair.copy) == before)
        #expect(try replica.apply(good) == .applied(good.upto))
        #expect(try pair.isEqual())
    }

    @Test func changesNothingByABrokenBatch() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        let before = try ReplicatedPair.content(pair.copy)
        try pair.write("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        let parts = try pair.parts(after: replica.position, size: 100)
        try #require(parts.count > 4)
        for index in parts.indices.dropFirst() { #expect(try replica.apply(parts[index]) == .skipped) }
        for index in parts.indices {
            for (place, part) in parts.enumerated() where place != index { _ = try? replica.apply(part) }
            #expect(try ReplicatedPair.content(pair.copy) == before)
        }
        for index in parts.indices {
            var body = parts[index].body
            body[body.count / 2] ^= 4
            let bad = BatchPart(
                number: parts[index].number, isLast: parts[index].isLast, from: parts[index].from,
                upto: parts[index].upto, schema: parts[index].schema, body: body)
            for (place, part) in parts.enumerated() { _ = try? replica.apply(place == index ? bad : part) }
            #expect(try ReplicatedPair.content(pair.copy) == before)
        }
        for part in parts { _ = try replica.apply(part) }
        #expect(try pair.isEqual())
    }

    @Test func refusesAnotherLifeOfTheHistory() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'x')")
        let replica = try pair.replica()
        try pair.write("UPDATE t SET a = 'y'")
        let position = replica.position
        try pair.update(replica)
        let stale = try pair.parts(after: position)[0]
        let text = String(decoding: stale.body, as: UTF8.self)
        #expect(text.contains("\"y\""))
        // A home that was restored assigns the same numbers, with other nonces.
        try pair.write("UPDATE GS_CHANGE SET nonce = 5 WHERE number = 1; UPDATE t SET a = 'z'")
        #expect(try replica.apply(pair.parts(after: position)[0]) == .otherHistory)
        #expect(try pair.isEqual() == false)
    }
}
