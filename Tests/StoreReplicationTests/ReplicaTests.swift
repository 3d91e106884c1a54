import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreReplication

struct ReplicaTests {
    @Test func stopsWhenAnotherProgramHasWritten() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); CREATE TABLE plain (a)")
        let replica = try pair.replica()
        try ReplicatedPair.write("INSERT INTO plain VALUES ('mine')", pair.copy)
        try pair.write("INSERT INTO t VALUES (1, 'a')")
        let diverged = ReplicationError.diverged(tables: ["plain"], pair.copy.path)
        #expect(throws: diverged) { try replica.check() }
        #expect(throws: diverged) { try replica.apply(pair.parts(after: replica.position)[0]) }
        #expect(throws: diverged) { try replica.replace(with: pair.snapshot()) }
        #expect(throws: diverged) { try Replica(opening: pair.copy, stream: "test") }
        #expect(try ReplicatedPair.content(pair.copy)["plain"]?.count == 1)
        try replica.replace(with: pair.snapshot(), discardingOwnWrites: true)
        #expect(try pair.isEqual())
    }

    @Test func stopsWhenTheSchemaWasChanged() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        try ReplicatedPair.write("CREATE TABLE mine (a)", pair.copy)
        #expect(throws: ReplicationError.diverged(tables: ["sqlite_schema"], pair.copy.path)) { try replica.check() }
    }

    @Test(arguments: [("id INTEGER PRIMARY KEY, a", true), ("id, a", false)])
    func standsAVacuumThatKeepsTheRowNumbers(_ columns: String, _ isKept: Bool) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (\(columns)); INSERT INTO t VALUES (1, 2), (3, 4), (5, 6)")
        let replica = try pair.replica()
        try ReplicatedPair.write("VACUUM", pair.copy)
        try pair.write("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (8, 9)")
        if isKept {
            #expect(try pair.update(replica) == .applied(replica.position))
            #expect(try pair.isEqual())
        } else {
            #expect(throws: ReplicationError.diverged(tables: ["t"], pair.copy.path)) { try pair.update(replica) }
        }
    }

    @Test func keepsItsOwnSubscribers() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'a')")
        try HistoryMaintenance(pair.home).acknowledge(ReplicationSource(pair.home).current(), by: "home's")
        let replica = try pair.replica()
        let token = replica.position
        try HistoryMaintenance(pair.copy).acknowledge(token, by: "own")
        try pair.write("INSERT INTO t VALUES (2, 'b')")
        try replica.replace(with: pair.snapshot())
        let names = try replica.database.text("SELECT group_concat(name) FROM GS_SUBSCRIBER")
        #expect(names == "own")
        #expect(try pair.isEqual())
    }

    @Test func readersSeeASnapshotArriveAtOnce() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'a')")
        let replica = try pair.replica()
        let reader = try StoreWriter(pair.copy.path)
        try reader.execute("BEGIN")
        #expect(try reader.integer("SELECT count(*) FROM t") == 1)
        try pair.write("INSERT INTO t VALUES (2, 'b'); CREATE TABLE more (a)")
        _ = try HistoryInstallation(pair.home).enable()
        try replica.replace(with: pair.snapshot())
        #expect(try reader.integer("SELECT count(*) FROM t") == 1)
        try reader.execute("COMMIT")
        #expect(try reader.integer("SELECT count(*) FROM t, (SELECT count(*) FROM more)") == 2)
    }

    /// Another history than its home's would end it as a replica.
    @Test func historyOfAReplicaIsNotChanged() throws {
        let pair = try ReplicatedPair("CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        let replica = try pair.replica()
        let history = HistoryInstallation(pair.copy)
        #expect(try history.enable().kind == .unchanged)
        let error = HistoryError.replica(pair.copy.path)
        #expect(throws: error) { try history.enable(images: true) }
        #expect(throws: error) { try history.disable() }
        #expect(throws: error) { try history.suspend() }
        try ReplicatedPair.write("CREATE TABLE other (id INTEGER PRIMARY KEY)", pair.copy)
        #expect(throws: error) { try history.enable() }
        try ReplicatedPair.write("DROP TABLE other", pair.copy)
        try pair.write("INSERT INTO note VALUES (1, 'milk')")
        let token = try ReplicationSource(pair.home).current()
        #expect(try pair.update(replica) == .applied(token))
    }

    /// Two followers of one file, such as a unit and one that was started by hand.
    @Test func goesOnFromWhatAnotherFollowerHasApplied() throws {
        let pair = try ReplicatedPair("CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        let one = try pair.replica()
        let other = try Replica(opening: pair.copy, stream: "test")
        try pair.write("INSERT INTO note VALUES (1, 'milk')")
        let parts = try pair.parts(after: one.position, size: 200)
        for part in parts.dropLast() { #expect(try one.apply(part) == .partial) }
        let last = try #require(parts.last)
        #expect(try pair.update(other) == .applied(last.upto))
        #expect(try one.apply(last) == .skipped)
        try one.check()
        #expect(one.position == last.upto)
        try pair.write("INSERT INTO note VALUES (2, 'bread')")
        #expect(try pair.update(one) == .applied(ReplicationSource(pair.home).current()))
        try other.check()
        #expect(try pair.isEqual() && other.position == one.position)
    }

    @Test func promotedReplicaIsAHomeOfItsOwn() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'a')")
        var replica: Replica? = try pair.replica()
        let token = try #require(replica?.position)
        replica = nil
        #expect(throws: ReplicationError.isReplica(pair.copy.path)) { try ReplicationSource(pair.copy) }
        let promoted = try Replica.promote(pair.copy)
        #expect(promoted.history != token.history)
        let source = try ReplicationSource(pair.copy)
        #expect(throws: StoreHistory.Discontinuity.epoch) { try source.check(token) }
        #expect(try source.current() == promoted)
        try ReplicatedPair.write("INSERT INTO t VALUES (2, 'b')", pair.copy)
        #expect(try source.current().number == promoted.number + 1)
        #expect(throws: ReplicationError.notAReplica(pair.copy.path)) { try Replica.promote(pair.copy) }
    }

    @Test func placesNothingOverAnotherFile() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let snapshot = try pair.snapshot()
        for name in ["replica.sqlite", "replica.sqlite-wal"] {
            let path = pair.directory.path.appending(name)
            _ = try pair.copy.directory.open(#require(path.lastComponent), flags: 0o101, mode: 0o600)
            #expect(throws: ReplicationError.exists(path)) {
                try Replica.create(pair.copy, from: snapshot, stream: "test")
            }
            try pair.copy.directory.removeFile(#require(path.lastComponent))
        }
        #expect(throws: ReplicationError.exists(pair.directory.path.appending("snapshot1"))) {
            try Snapshot.make(of: pair.home, at: pair.directory.path.appending("snapshot1"))
        }
    }

    @Test func refusesASnapshotThatIsNotWhatWasAnnounced() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let good = try pair.snapshot()
        let other = HistoryToken(history: good.upto.history, number: good.upto.number + 1, nonce: 1)
        for bad in [
            Snapshot(path: good.path, size: good.size + 1, sha256: good.sha256, upto: good.upto, schema: good.schema),
            Snapshot(path: good.path, size: good.size, sha256: good.schema, upto: good.upto, schema: good.schema),
            Snapshot(path: good.path, size: good.size, sha256: good.sha256, upto: other, schema: good.schema),
            Snapshot(path: good.path, size: good.size, sha256: good.sha256, upto: good.upto, schema: good.sha256),
        ] {
            #expect { try bad.check() } throws: { ($0 as? ReplicationError)?.errorCode == "malformed_snapshot" }
            #expect(throws: (any Error).self) { try Replica.create(pair.copy, from: bad, stream: "test") }
        }
        let chunks = try (0..<good.chunkCount(size: 1000)).flatMap { try good.chunk($0, size: 1000) }
        #expect(Int64(chunks.count) == good.size)
        // It is one chunk of the usual size.
        #expect(good.sha256 == SHA256Stream.digest(SnapshotDigest.line(SHA256Stream.digest(chunks))))
        let digest = try SnapshotDigest(of: good.path, chunkSize: 1000)
        let lines = (0..<good.chunkCount(size: 1000)).map {
            SHA256Stream.digest(chunks.dropFirst($0 * 1000).prefix(1000))
        }
        #expect(lines.indices.allSatisfy { digest[$0] == lines[$0] } && digest[lines.count] == nil && digest[-1] == nil)
        #expect(digest.sha256 == SHA256Stream.digest(lines.flatMap(SnapshotDigest.line)))
        #expect(try pair.copy.directory.names().allSatisfy { !$0.string.hasPrefix(".") })
    }

    /// The home goes on from a backup: its numbers are those of changes that the replica has from the lost line.
    @Test(arguments: [false, true]) func noticesAHomeThatWasSetBack(_ hasPurged: Bool) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        let replica = try pair.replica()
        try pair.write("INSERT INTO t (a) VALUES (1), (2)")
        try pair.update(replica)
        let backup = try pair.snapshot()
        let base = replica.position
        try pair.write("INSERT INTO t (a) VALUES (3), (4), (5), (6)")
        if hasPurged {
            var purge = HistoryMaintenance.Purge()
            purge.count = 1
            _ = try HistoryMaintenance(pair.home).purge(purge)
            try replica.replace(with: pair.snapshot())
        } else {
            try pair.update(replica)
        }
        for name in pair.home.name.sideFiles { try pair.home.directory.removeFile(name) }
        try run("cp", [Word(backup.path), Word(pair.home.path)])
        try pair.write("INSERT INTO t (a) VALUES (7)")
        let parts = try pair.parts(after: base)
        #expect(try replica.apply(parts[0]) == (hasPurged ? .purged : .otherHistory))
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
    }

    @Test(arguments: [
        ("PRAGMA journal_mode = DELETE; PRAGMA page_size = 8192; VACUUM; PRAGMA journal_mode = WAL", "page size")
    ])
    func refusesASnapshotOfAnotherFormat(_ sql: String, _ what: String) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY, a); INSERT INTO t (a) VALUES (1)")
        let replica = try pair.replica()
        let before = try ReplicatedPair.content(pair.copy)
        try run("sqlite3", ["-batch", "-bail", "-init", "/dev/null", Word(pair.home.path), Word(sql)])
        _ = try HistoryInstallation(pair.home).enable()
        #expect(throws: ReplicationError.otherFormat(what, pair.copy.path)) {
            try replica.replace(with: pair.snapshot())
        }
        #expect(try ReplicatedPair.content(pair.copy) == before)
    }

    @Test(arguments: [
        ("CREATE TABLE t (a COLLATE mine UNIQUE)", "only the store's own program"),
        ("CREATE VIRTUAL TABLE f USING fts5(a, content='')", "without content"),
        ("CREATE VIRTUAL TABLE f USING dbstat", "module dbstat"),
        ("CREATE VIRTUAL TABLE f USING fts4(a, languageid=l)", "languageid"),
        ("CREATE TABLE t (rowid, oid, _rowid_)", "its columns take all names"),
        (
            "CREATE TABLE t (b, a COLLATE mine, PRIMARY KEY (b, a)) WITHOUT ROWID",
            "the column a of its key has the app's own collation mine"
        ),
    ])
    func refusesByNameWhatItCannotReplicate(_ sql: String, _ reason: String) throws {
        let pair = try ReplicatedPair(sql)
        #expect {
            try ReplicationSource(pair.home)
        } throws: { error in
            guard case .unreplicable(let object, let found, _)? = error as? ReplicationError else { return false }
            return (object.contains("table t") || object.contains("table f")) && found.contains(reason)
        }
    }

    /// The name of the replica's own table, of which SQLite has one in any case.
    @Test(arguments: ["gs_replica", "GS_REPLICA"]) func refusesAHomeWithATableOfTheReplicasName(name: String) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        let source = try ReplicationSource(pair.home)
        _ = try source.read(after: source.current())
        try pair.write("CREATE TABLE \(name) (a INTEGER PRIMARY KEY)")
        #expect(throws: HistoryError.foreign(name, pair.home.path)) { _ = try source.read(after: source.current()) }
    }

    /// Nobody would read what is applied to the file under another name.
    @Test(arguments: [false, true]) func noticesThatItsFileIsGone(isReplaced: Bool) throws {
        let pair = try ReplicatedPair("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        let replica = try pair.replica()
        try replica.check()
        try pair.copy.directory.rename(
            pair.copy.name.database, to: "elsewhere.sqlite", in: pair.copy.directory, .refuse)
        if isReplaced { try pair.write("VACUUM INTO '\(pair.copy.path)'") }
        try pair.write("INSERT INTO t VALUES (1)")
        #expect(throws: ReplicationError.gone(pair.copy.path)) { try replica.check() }
        #expect(throws: ReplicationError.gone(pair.copy.path)) { try pair.update(replica) }
    }

    /// Each name has a lock and a log of its own.
    @Test func refusesAReplicaWithTwoNames() throws {
        let pair = try ReplicatedPair("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        _ = try pair.replica()
        let second = try ReplicatedPair.location(pair.directory.path.appending("second.sqlite"))
        #expect(link(pair.copy.path.string, second.path.string) == 0)
        for location in [pair.copy, second] {
            let error = ReplicationError.hardLinked(links: 2, location.path)
            #expect(throws: error) { try Replica(opening: location, stream: "test") }
            #expect(throws: error) { try Replica.promote(location) }
        }
        #expect(unlink(second.path.string) == 0)
        _ = try Replica(opening: pair.copy, stream: "test")
    }
}
