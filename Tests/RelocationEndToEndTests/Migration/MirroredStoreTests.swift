import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Stores that NSPersistentCloudKitContainer mirrors, through the commands: a row of its tables is never another
/// entity's.
@Suite(.ownThreads) struct MirroredStoreTests {
    private let scratch: TemporaryDirectory
    private let bundle: FilePath
    private let store: FilePath

    private static func entity(_ name: String) -> String {
        "<entity name='\(name)'><attribute name='k' optional='YES' attributeType='String'/></entity>"
    }

    /// Four versions: `Note` is removed, another entity gets its number, and one more comes.
    init() throws {
        scratch = try TemporaryDirectory()
        store = scratch.path.appending("old/Notes.sqlite")
        let versions = [["Note", "Tag"], ["Tag"], ["Album", "Tag"], ["Album", "Image", "Tag"]]
        bundle = try ModelBundle.make(
            in: scratch,
            versions.enumerated().map { (name: "Notes \($0 + 1)", content: $1.map(Self.entity).joined()) })
        try run("mkdir", ["-m", "700", Word(scratch.path.appending("old")), Word(scratch.path.appending("group"))])
        try create(store, "Notes 1")
        try sqlite(
            store,
            """
            INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZK) VALUES (1, 1, 1, 'n');
            INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZK) VALUES (1, 2, 1, 't');
            UPDATE Z_PRIMARYKEY SET Z_MAX = 1; \(Self.tables)
            INSERT INTO ANSCKRECORDMETADATA VALUES (1, 1, 1, 'CK-NOTE'), (2, 2, 1, 'CK-TAG');
            """)
    }

    private static let tables = """
        CREATE TABLE ANSCKRECORDMETADATA (Z_PK INTEGER PRIMARY KEY, ZENTITYID INTEGER, ZENTITYPK INTEGER, ZCKRECORDNAME);
        CREATE UNIQUE INDEX Z_NSCKRecordMetadata_UNIQUE_entityId_entityPK ON ANSCKRECORDMETADATA (ZENTITYID, ZENTITYPK);
        """
    private static let records = "SELECT ZENTITYID, ZENTITYPK, ZCKRECORDNAME FROM ANSCKRECORDMETADATA"

    private func create(_ path: FilePath, _ version: String) throws {
        let model = bundle.appending("\(version).xcdatamodel")
        #expect(try groupstore("create", Word(path), "--model", Word(model)).status == 0)
    }

    private func model(_ number: Int) -> Word { Word(bundle.appending("Notes \(number).xcdatamodel")) }

    @Test func aMigrationInPlaceCountsWhatCloudKitForgets() throws {
        let rehearsed = try groupstore("migrate", Word(store), "--model", model(2), "--dry-run")
        let lost = "CloudKit's table ANSCKRECORDMETADATA loses 1 row about removed entities"
        #expect(rehearsed.status == 0 && (rehearsed.output + rehearsed.errors).contains(lost))
        #expect(try groupstore("model", "check", Word(store), model(2)).status == 0)
        let done = try groupstore("migrate", Word(store), "--model", model(2))
        #expect(done.status == 0 && (done.output + done.errors).contains(lost), "\(done.errors)")
        #expect(try sqlite(store, Self.records) == "1|1|CK-TAG\n")
    }

    /// In steps the number of `Note` is first `Tag`'s, then `Album`'s.
    @Test func everyStepKeepsTheRecordsApart() throws {
        for (step, expected) in [(2, "1|1|CK-TAG\n"), (3, "2|1|CK-TAG\n"), (4, "3|1|CK-TAG\n")] {
            let done = try groupstore("migrate", Word(store), "--model", model(step))
            #expect(done.status == 0, "\(done.errors)")
            #expect(try sqlite(store, Self.records) == expected)
        }
    }

    @Test func relocationsMigrateTheRecords() throws {
        let done = try groupstore(
            "relocate", Word(store), Word(scratch.path.appending("group")), "--model", Word(bundle), "--json")
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try sqlite(scratch.path.appending("group/Notes.sqlite"), Self.records) == "3|1|CK-TAG\n")
    }

    /// A merge gives objects of the legacy store new keys. The records of the group's store stay its own objects', and
    /// the legacy store may have none.
    @Test func mergesKeepTheGroupsRecords() throws {
        let group = scratch.path.appending("group/Notes.sqlite")
        try create(group, "Notes 4")
        try sqlite(
            group,
            """
            INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZK) VALUES (1, 3, 1, 'group'); UPDATE Z_PRIMARYKEY SET Z_MAX = 1;
            \(Self.tables) INSERT INTO ANSCKRECORDMETADATA VALUES (1, 3, 1, 'CK-GROUP'), (2, 2, 9, 'CK-IMAGE');
            """)
        let words: [Word] = [
            "relocate", Word(store), Word(scratch.path.appending("group")), "--model", Word(bundle), "--on-conflict",
            "merge", "--merge-key", "Tag=k", "--json",
        ]
        let refused = try groupstore(options: words)
        #expect(refused.status != 0 && refused.summary.object("error")?.string("code") == "merge_unsupported")
        try sqlite(store, "DELETE FROM ANSCKRECORDMETADATA")
        let done = try groupstore(options: words)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try sqlite(group, Self.records + " ORDER BY Z_PK") == "3|1|CK-GROUP\n2|9|CK-IMAGE\n")
        let tags = "SELECT ZK FROM ZTAG WHERE Z_PK = 1 UNION ALL SELECT count(*) FROM ZTAG"
        #expect(try sqlite(group, tags) == "group\n2\n")
    }
}
