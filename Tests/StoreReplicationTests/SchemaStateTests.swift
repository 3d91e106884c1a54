import FoundationEssentials
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import TestSupport
import Testing

@testable import StoreReplication

/// Changes of a schema after which its text is what it was. No history shows what they did to the rows.
struct SchemaStateTests {
    private static let tables = """
        CREATE TABLE "live" (k INTEGER PRIMARY KEY, v, w); CREATE TABLE "standby" (k INTEGER PRIMARY KEY, v, w);
        INSERT INTO live VALUES (1, 'old', 'secret'); INSERT INTO standby VALUES (1, 'new', 'other');
        """

    private static let changes = [
        "BEGIN; ALTER TABLE live DROP COLUMN w; ALTER TABLE live ADD COLUMN w; COMMIT",
        "ALTER TABLE live DROP COLUMN w; ALTER TABLE live ADD COLUMN w",
        """
        BEGIN; ALTER TABLE live RENAME TO passing; ALTER TABLE standby RENAME TO live; ALTER TABLE passing RENAME TO standby;
        COMMIT
        """,
        "CREATE INDEX passing ON live (v); DROP INDEX passing", "VACUUM",
    ]

    @Test(arguments: changes) func needsASnapshot(_ change: String) throws {
        let pair = try ReplicatedPair(Self.tables)
        let replica = try pair.replica()
        let digest = try pair.snapshot().schemaDigest
        try pair.write(change)
        #expect(try pair.snapshot().schemaDigest == digest)
        try pair.write("INSERT INTO live VALUES (2, 'both', 'both')")
        #expect(try pair.update(replica) == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
        // Once is enough, whoever publishes from now on.
        try pair.write("INSERT INTO standby VALUES (3, 'more', 'more')")
        #expect(try pair.update(replica) == .applied(replica.position))
        #expect(try pair.isEqual())
    }

    /// SQLite's twelve steps, which create the table's triggers again as they were.
    @Test func aTableThatWasRemadeWithItsTriggersNeedsASnapshot() throws {
        let pair = try ReplicatedPair(Self.tables)
        let replica = try pair.replica()
        let triggers = try #require(
            try StoreWriter(pair.home.path).text(
                """
                SELECT group_concat(sql, ';') FROM (
                SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'live' ORDER BY rowid)
                """))
        try pair.write(
            """
            BEGIN; CREATE TABLE "passing" (k INTEGER PRIMARY KEY, v, w); INSERT INTO passing SELECT k, v, 'remade' FROM live;
            DROP TABLE live; ALTER TABLE passing RENAME TO live; \(triggers); COMMIT
            """)
        try pair.write("INSERT INTO live VALUES (2, 'both', 'both')")
        #expect(try pair.update(replica) == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
    }

    @Test(arguments: ["CREATE VIEW seen AS SELECT 1", changes[0]])
    func aChangeOfTheSchemaAloneIsPublishedOnce(_ change: String) throws {
        let pair = try ReplicatedPair(Self.tables)
        let replica = try pair.replica()
        let source = try ReplicationSource(pair.home)
        func update() throws -> Replica.Outcome? {
            var outcome: Replica.Outcome?
            _ = try source.batch(after: replica.position) { outcome = try replica.apply($0) }
            return outcome
        }
        _ = try update()
        #expect(try update() == nil)
        try pair.write(change)
        #expect(try update() == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        _ = try update()
        #expect(try update() == nil)
        #expect(try pair.isEqual())
    }

    /// A backup from before the change brings the former version of the schema back.
    @Test func aHomeThatWasSetBackNeedsASnapshot() throws {
        let pair = try ReplicatedPair(Self.tables)
        try pair.write("PRAGMA journal_mode = DELETE")
        let backup = try Data(contentsOf: URL(filePath: pair.home.path.string))
        try pair.write(Self.changes[0])
        let replica = try pair.replica()
        try backup.write(to: URL(filePath: pair.home.path.string))
        #expect(try !pair.isEqual())
        #expect(try pair.update(replica) == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
    }

    /// The triggers of another `history enable` change the schema, but not again and again.
    @Test func enablingTheHistoryAgainNeedsNoSnapshot() throws {
        let pair = try ReplicatedPair(Self.tables)
        let replica = try pair.replica()
        for number in 2...3 {
            _ = try HistoryInstallation(pair.home).enable()
            try pair.write("INSERT INTO live VALUES (\(number), 'a', 'b')")
            #expect(try pair.update(replica) == .applied(replica.position))
        }
        #expect(try pair.isEqual())
    }

    /// Who has followed the home goes on with its token and schema at the replica.
    @Test func aReplicaHasItsHomesState() throws {
        let pair = try ReplicatedPair(Self.tables)
        try pair.write(Self.changes[1])
        var replica: Replica? = try pair.replica()
        try pair.write("INSERT INTO live VALUES (2, 'both', 'both')")
        if let replica { try pair.update(replica) }
        try replica?.replace(with: pair.snapshot())
        replica = nil
        func state(_ store: StoreLocation) throws -> String {
            try StoreReader.read(store) { try ChangeBatch($0).schema }
        }
        let known = try state(pair.home)
        #expect(try state(pair.copy) == known)
        try ReplicatedPair.write("VACUUM", pair.copy)
        #expect(try state(pair.copy) != known)
    }

    /// A home with an older program says the digest alone.
    @Test func followsAHomeThatSaysNoVersion() throws {
        let pair = try ReplicatedPair(Self.tables)
        let new = try pair.snapshot()
        let old = Snapshot(
            path: new.path, size: new.size, sha256: new.sha256, upto: new.upto, schema: new.schemaDigest)
        let replica = try Replica.create(pair.copy, from: old, stream: "test")
        try pair.write("INSERT INTO live VALUES (2, 'both', 'both')")
        let parts = try pair.parts(after: replica.position)
        // The home has a newer one now.
        #expect(try replica.apply(parts[0]) == .schemaChanged)
        try replica.replace(with: pair.snapshot())
        #expect(try pair.isEqual())
    }
}
