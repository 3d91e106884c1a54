import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreReplication
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// A batch that is longer than a connection lasts.
@Suite struct HeldBatchTests {
    private struct Lost: Error {}

    private let directory: TemporaryDirectory
    private let home: StoreLocation
    private let start: HistoryToken

    init() throws {
        directory = try TemporaryDirectory()
        let path = directory.path.appending("home.sqlite")
        home = StoreLocation(directory: try Directory(directory.path), name: try #require(StoreName("home.sqlite")))
        let writer = try StoreWriter(path, creating: true)
        try writer.execute(script: "PRAGMA journal_mode = WAL; CREATE TABLE Note (id INTEGER PRIMARY KEY, body)")
        _ = try HistoryInstallation(home).enable()
        start = try ReplicationSource(home).current()
        try writer.execute("INSERT INTO Note (body) VALUES (hex(randomblob(50000)))")
    }

    private func write(_ sql: String) throws { try StoreWriter(home.path).execute(script: sql) }

    /// Sends until the connection is lost after some parts. Returns the parts that arrived.
    private func send(_ held: HeldBatch, parts count: Int, size: Int = 10_000) throws -> [BatchPart] {
        var arrived: [BatchPart] = []
        do {
            try held.forEachPart(maxSize: size) { part in
                guard arrived.count < count else { throw Lost() }
                arrived.append(part)
            }
        } catch is Lost {}
        return arrived
    }

    private func heldBatch() throws -> HeldBatch {
        let held = HeldBatch()
        held.take(try #require(try ReplicationSource(home).read(after: start)))
        return held
    }

    @Test func goesOnAfterTheLastPartThatTheStreamHas() throws {
        let held = try heldBatch()
        var stream: [BatchPart] = []
        while stream.last?.isLast != true {
            // The home goes on meanwhile; the batch still leads to the commit at which it was read.
            try write("UPDATE Note SET body = hex(randomblob(50000))")
            let more = try send(held, parts: 3)
            try #require(!more.isEmpty && stream.count < 20)
            stream += more
            guard stream.last?.isLast != true else { break }
            held.meet(endOf: start, unfinished: stream.last, in: try ReplicationSource(home))
            #expect(held.hasAdvanced)
        }
        #expect(stream.map(\.number) == Array(1...stream.count))
        #expect(stream.count > 9)
        #expect(stream.allSatisfy { $0.upto == stream[0].upto })
    }

    @Test func beginsAgainIfTheStreamHasOtherParts() throws {
        let held = try heldBatch()
        let first = try send(held, parts: 3)
        let other = BatchPart(
            number: 3, isLast: false, from: start, upto: first[2].upto, schema: first[2].schema, body: [0x0A])
        held.meet(endOf: start, unfinished: other, in: try ReplicationSource(home))
        #expect(try send(held, parts: 3) == first)
        // A broker that takes messages of another size.
        held.meet(endOf: start, unfinished: first[2], in: try ReplicationSource(home))
        #expect(try send(held, parts: 100, size: 60_000).map(\.number) == [1, 2])
        // A broker that was set back, and has nothing of it.
        held.meet(endOf: start, unfinished: nil, in: try ReplicationSource(home))
        #expect(try send(held, parts: 3) == first)
    }

    @Test func isGivenUpWhereTheStreamOrTheStoreIsAnother() throws {
        let held = try heldBatch()
        let upto = try #require(held.batch?.upto)
        held.meet(endOf: upto, unfinished: nil, in: try ReplicationSource(home))
        #expect(held.batch == nil)
        let again = try heldBatch()
        // As a restored backup: the change that the batch leads to has another nonce.
        try write("UPDATE GS_CHANGE SET nonce = nonce + 1 WHERE number = \(upto.number)")
        again.meet(endOf: start, unfinished: nil, in: try ReplicationSource(home))
        #expect(again.batch == nil)
    }
}
