import Glibc
import SQLiteStore
import Testing

@testable import MigrationAudit

/// The comparison of filled tables before the new store is finished. It needs a second processor.
@Suite(.enabled(if: sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1))
struct EarlyComparisonTests {
    private static let model = """
        <entity name='Note'><attribute name='text' optional='YES' attributeType='String'/>\
        <attribute name='more' optional='YES' attributeType='String'/></entity>
        """
    private static let copied = [
        CopiedEntity(
            source: "Note", destination: "Note", isComplete: true, attributes: [("text", "text"), ("more", "more")])
    ]
    private static let fill = [
        // The roots of B-trees come before all other pages.
        "PRAGMA auto_vacuum = 2", "VACUUM",
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30000) "
            + "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTEXT, ZMORE) "
            + "SELECT i, 1, 1, 'note ' || i, iif(i % 5000 = 4000, hex(zeroblob(20000)), NULL) FROM n",
        "UPDATE Z_PRIMARYKEY SET Z_MAX = 40000",
    ]

    private let stores: AuditedStores

    init() throws { stores = try AuditedStores(Self.model, Self.model, rows: Self.fill) }

    /// Returns the number of tables that are proven after a change of the copy.
    private func proofs(after change: String? = nil) throws -> Int {
        let comparison = try stores.earlyComparison(.mapped(copied: Self.copied))
        comparison.begin(stores.after)
        let context = try stores.context()
        // The change follows the comparison.
        _ = try comparison.proofs(for: context, in: stores.after, isCancelled: { false })
        if let change { try StoreWriter(stores.after).execute(change) }
        return try comparison.proofs(for: stores.context(), in: stores.after, isCancelled: { false }).count
    }

    @Test func provesWhatStaysTheSame() throws { #expect(try proofs() == 1) }

    @Test(arguments: [
        "CREATE TABLE other AS SELECT * FROM ZNOTE", "UPDATE Z_PRIMARYKEY SET Z_MAX = 50000", "PRAGMA user_version = 5",
    ])
    func provesTheTableBesideOtherChanges(_ change: String) throws { #expect(try proofs(after: change) == 1) }

    @Test(arguments: [
        "UPDATE ZNOTE SET ZTEXT = 'note 0' WHERE Z_PK = 1", "UPDATE ZNOTE SET ZTEXT = 'other' WHERE Z_PK = 15000",
        "UPDATE ZNOTE SET ZTEXT = 'other' WHERE Z_PK = 30000", "DELETE FROM ZNOTE WHERE Z_PK = 30000",
        "DELETE FROM ZNOTE", "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT) VALUES (30001, 1, 1)",
        "UPDATE ZNOTE SET Z_ENT = 2 WHERE Z_PK = 20000",
        // On an overflow page.
        "UPDATE ZNOTE SET ZMORE = substr(ZMORE, 1, 39999) || '1' WHERE Z_PK = 14000",
        "UPDATE ZNOTE SET ZMORE = substr(ZMORE, 1, 20000) || '1' || substr(ZMORE, 20002) WHERE Z_PK = 14000",
        "ALTER TABLE ZNOTE ADD COLUMN ZOTHER",
    ])
    func provesNothingOfAChangedTable(_ change: String) throws { #expect(try proofs(after: change) == 0) }

    @Test(arguments: [
        "UPDATE ZNOTE SET ZTEXT = 'other' WHERE Z_PK = 15000", "DELETE FROM ZNOTE WHERE Z_PK = 30000",
        "UPDATE ZNOTE SET ZMORE = substr(ZMORE, 1, 39999) || '1' WHERE Z_PK = 14000",
    ])
    func theAuditFindsWhatChangesAfterwards(_ change: String) throws {
        let comparison = try stores.earlyComparison(.mapped(copied: Self.copied))
        comparison.begin(stores.after)
        _ = try comparison.proofs(for: stores.context(), in: stores.after, isCancelled: { false })
        #expect(try stores.audit(.mapped(copied: Self.copied), early: comparison) == nil)
        try StoreWriter(stores.after).execute(change)
        #expect(try stores.audit(.mapped(copied: Self.copied), early: comparison)?.entity == "Note")
    }

    @Test func provesNothingOfADifferentTable() throws {
        try StoreWriter(stores.after).execute("UPDATE ZNOTE SET ZTEXT = 'other' WHERE Z_PK = 29999")
        #expect(try proofs() == 0)
        let comparison = try stores.earlyComparison(.mapped(copied: Self.copied))
        comparison.begin(stores.after)
        #expect(try stores.audit(.mapped(copied: Self.copied), early: comparison)?.entity == "Note")
    }

    @Test func provesNothingOnceItIsStopped() throws {
        let comparison = try stores.earlyComparison(.mapped(copied: Self.copied))
        comparison.stop()
        comparison.begin(stores.after)
        let proofs = try comparison.proofs(for: stores.context(), in: stores.after, isCancelled: { false })
        #expect(proofs.isEmpty)
        #expect(try stores.audit(.mapped(copied: Self.copied), early: comparison) == nil)
    }

    /// An index takes the place of a table's page, which moves.
    @Test func aDigestDoesNotDependOnThePlacesOfPages() throws {
        let writer = try StoreWriter(stores.after)
        try writer.execute("UPDATE ZNOTE SET ZMORE = NULL")
        let root = try #require(try writer.integer("SELECT rootpage FROM sqlite_schema WHERE name = 'ZNOTE'"))
        let type = "SELECT pagetype FROM dbstat WHERE name = 'ZNOTE' AND pageno = "
        let next = try #require(try writer.integer("SELECT max(rootpage) + 1 FROM sqlite_schema"))
        #expect(try writer.text(type + String(next)) == "leaf")
        let before = try TableDigest(of: root, in: stores.after)
        try writer.execute("CREATE INDEX i ON ZNOTE (ZTEXT)")
        #expect(try writer.text(type + String(next)) == nil)
        #expect(before != nil)
        #expect(try TableDigest(of: root, in: stores.after) == before)
    }

    @Test func aDamagedTableHasNoDigest() throws {
        let root = try #require(
            try StoreWriter(stores.after).integer("SELECT rootpage FROM sqlite_schema WHERE name = 'ZNOTE'"))
        for page in [0, -1, 1 << 40, Int64(UInt32.max)] { #expect(try TableDigest(of: page, in: stores.after) == nil) }
        #expect(try TableDigest(of: root, in: stores.after, isCancelled: { true }) == nil)
    }
}
