import AgentProtocol
import PersistentHistory
import Testing

@testable import StoreRelay

/// Announcements of homes that lie. Without a key, anybody may be the home.
struct SnapshotAnnouncementTests {
    private static let sound: JSONObject = [
        "state": "ready", "id": "91c2", "size": 1_048_576, "chunk_size": 524_288,
        "chunks_sha256": .string(String(repeating: "0", count: 64)), "upto": "h1.abc.5.ff", "schema": "9d0f",
    ]
    private static let request = SnapshotRequest(follower: "laptop", have: nil, reason: .first)

    @Test func acceptsAValidAnnouncement() throws {
        let found = try SnapshotAnnouncement(Self.sound, for: Self.request)
        #expect(found.chunkCount(found.size) == 2)
        var largest = Self.sound
        largest["size"] = .integer(SnapshotAnnouncement.maxSize)
        largest["chunk_size"] = 1024
        let large = try SnapshotAnnouncement(largest, for: Self.request)
        #expect(large.chunkCount(large.size) == 1 << 38)
    }

    @Test(
        arguments: [
            ("size", .integer(.max)), ("size", .integer(.max - 511)), ("size", .integer(.min)), ("size", 0),
            ("size", -512), ("size", 511), ("size", 1_048_577), ("size", .integer((1 << 48) + 512)), ("size", "1024"),
            ("size", .number(1e300)), ("chunk_size", 0), ("chunk_size", 1), ("chunk_size", .integer(.max)),
            ("chunk_size", .integer(.min)), ("chunk_size", 524_289), ("id", ""), ("id", "a.b"), ("id", "../x"),
            ("id", .string(String(repeating: "a", count: 65))), ("chunks_sha256", "00"), ("upto", "h1.abc.-1.ff"),
            ("upto", "h1.abc.9223372036854775808.ff"),
            ("upto", .string("h1." + String(repeating: "a", count: 1000) + ".5.ff")),
            ("schema", .string(String(repeating: "a", count: 1000))), ("schema", .null),
        ] as [(String, JSONValue)])
    func refusesAnImpossibleAnnouncement(member: String, value: JSONValue) {
        var object = Self.sound
        object[member] = value
        let error = #expect(throws: RelayError.self) { try SnapshotAnnouncement(object, for: Self.request) }
        #expect(error?.errorCode == "malformed_snapshot")
    }
}
