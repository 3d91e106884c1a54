import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreReplication

/// Snapshots whose file becomes the replica, and whose writer knows the hash.
@Suite struct MovedSnapshotTests {
    private let pair: ReplicatedPair
    private let snapshot: Snapshot

    init() throws {
        pair = try ReplicatedPair(
            "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 'milk')")
        snapshot = try pair.snapshot()
    }

    @Test func fileItselfBecomesTheReplica() throws {
        let before = try #require(FileStatus(following: snapshot.path))
        let replica = try Replica.create(pair.copy, from: snapshot, stream: "test", movingFile: true)
        #expect(FileStatus(following: snapshot.path) == nil)
        #expect(FileStatus(following: pair.copy.path)?.identity == before.identity)
        #expect(replica.position == snapshot.upto)
        try pair.write("INSERT INTO note VALUES (2, 'bread')")
        #expect(try pair.update(replica) == .applied(ReplicationSource(pair.home).current()))
    }

    @Test func isCopiedToAnotherFileSystem() throws {
        let elsewhere = try TemporaryDirectory(in: "/dev/shm")
        let copy = try ReplicatedPair.location(elsewhere.path.appending("replica.sqlite"))
        let replica = try Replica.create(copy, from: snapshot, stream: "test", movingFile: true)
        #expect(replica.position == snapshot.upto)
        #expect(FileStatus(following: snapshot.path) != nil)
    }

    @Test func otherHashThanAnnouncedIsRefused() throws {
        var other = snapshot
        other.written = String(repeating: "0", count: 64)
        #expect(throws: ReplicationError.malformedSnapshot("it has another SHA-256", snapshot.path)) {
            try Replica.create(pair.copy, from: other, stream: "test", movingFile: true)
        }
        #expect(FileStatus(following: pair.copy.path) == nil)
        // A hash that is right says nothing of the content.
        other = Snapshot(
            path: snapshot.path, size: snapshot.size, sha256: snapshot.sha256, upto: snapshot.upto, schema: "other")
        other.written = snapshot.sha256
        #expect(throws: ReplicationError.self) {
            try Replica.create(pair.copy, from: other, stream: "test", movingFile: true)
        }
    }

    @Test func shorterFileIsRefused() throws {
        var short = snapshot
        short.written = snapshot.sha256
        try Descriptor(opening: snapshot.path, flags: O_RDWR).truncate(to: snapshot.size - 4096)
        #expect(throws: ReplicationError.self) {
            try Replica.create(pair.copy, from: short, stream: "test", movingFile: true)
        }
    }
}
