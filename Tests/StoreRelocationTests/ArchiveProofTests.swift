import FoundationEssentials
import GRDB
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// Tests of the proof that an archive's content is in the store that it was copied from. Each accident leaves that
/// store's file, its name and its receipt as they were.
@Suite struct ArchiveProofTests {
    private let rig: TransferRig
    private let id = TransferIdentifier()
    private var container: GroupContainer { rig.container }
    private var published: StoreLocation { StoreLocation(directory: container.directory, name: rig.legacy.name) }
    private var archived: StoreLocation {
        get throws { StoreLocation(directory: try container.archive(id), name: rig.legacy.name) }
    }

    private static let schema = """
        CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT);
        CREATE INDEX by_text ON note (text);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
        INSERT INTO note SELECT i, 'note ' || i FROM n;
        CREATE TABLE tag (name TEXT PRIMARY KEY, weight REAL, twice AS (weight * 2)) WITHOUT ROWID;
        INSERT INTO tag (name, weight) VALUES ('one', 1), ('two', 2), ('three', 3);
        """

    init() throws { rig = try TransferRig() }

    private func execute(_ sql: String, at store: StoreLocation) throws {
        let queue = try DatabaseQueue(path: store.path.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        try queue.close()
    }

    private func bytes(of store: StoreLocation) throws -> [UInt8] {
        let file = try store.directory.open(store.name.database, flags: O_RDONLY)
        return try file.read(count: Int(file.status().size), at: 0)
    }

    /// Overwrites the file in place: it keeps its inode.
    private func overwrite(_ store: StoreLocation, with bytes: [UInt8]) throws {
        let file = try store.directory.open(store.name.database, flags: O_WRONLY)
        try file.truncate(to: 0)
        try file.write(bytes, at: 0)
    }

    /// Relocates a store and keeps a copy in the archive, as `--retire archive` does.
    private func archiveCopy(_ sql: String = schema, hash: Bool = true, files: [String: [UInt8]] = [:]) throws {
        try execute(sql, at: published)
        let archived = try archived
        let copy = try archived.directory.open(archived.name.database, flags: O_WRONLY | O_CREAT, mode: 0o644)
        try copy.write(bytes(of: published), at: 0)
        for store in [published, archived] where !files.isEmpty {
            try store.directory.makeDirectory(store.name.support, mode: 0o755)
            let folder = try store.directory.directory(store.name.support)
            for (name, content) in files {
                try DurableFile.write(content, as: try #require(FilePath.Component(name)), in: folder, mode: 0o644)
            }
        }
        var note = ArchiveNote(
            id: id, name: archived.name.database, from: rig.legacy.path, at: Date(), reason: "a test")
        note.hasSupport = !files.isEmpty
        note.archived = try archived.directory.status(archived.name.database).map {
            .init($0, hash: hash ? try? StoreContents.publishedHash(StoreSnapshot(archived)) : nil)
        }
        try container.write(note)
        var receipt = RelocationReceipt(
            id: id, name: archived.name.database, from: rig.legacy.path, at: Date(), method: .copy, bytes: 0, hash: nil,
            changeCounter: 1, storeUUID: nil, retirement: .archive, assumedClosed: false)
        receipt.published = try container.directory.status(archived.name.database).map { .init($0) }
        try container.write(receipt)
    }

    private func purge() throws -> PurgedArchive {
        var request = RelocationRequest(source: container.archivePath, group: container.directory.path)
        request.gracePeriod = OpenerGracePeriod(quiet: .zero, maximum: .zero)
        return try #require(
            try Relocation(request).purge(ArchivePurge(ids: nil, age: nil, force: false), dryRun: false).first)
    }

    private func expectKept(_ reason: String, as word: String = "only_copy") throws {
        let archived = try archived
        let before = try bytes(of: archived)
        let purged = try purge()
        #expect(purged.value.word == word && purged.value.reason.contains(reason), "\(purged.value)")
        #expect(!purged.isPurged)
        #expect(try bytes(of: archived) == before)
        #expect(try container.archives().map(\.id) == [id])
    }

    @Test func aStoreThatWentOnIsProof() throws {
        try archiveCopy()
        try execute("DELETE FROM note WHERE id > 150; UPDATE tag SET weight = 9 WHERE name = 'one'", at: published)
        try execute("ALTER TABLE note ADD COLUMN more; INSERT INTO note (text) VALUES ('later')", at: published)
        let purged = try purge()
        #expect(purged.isPurged, "\(purged.value)")
        #expect(purged.assessment.fewer.map(\.name) == ["note", "tag"])
        #expect(purged.assessment.fewer.map(\.missing) == [49, 0])
        #expect(purged.assessment.fewer.map(\.changed) == [1, 1])
        #expect(try container.archives().isEmpty)
        #expect(try container.directory.names().sorted { $0.string < $1.string } == [".groupstore", "Notes.sqlite"])
    }

    @Test func aTransactionInTheLogIsProof() throws {
        try archiveCopy()
        let queue = try DatabaseQueue(path: published.path.string)
        try queue.writeWithoutTransaction { database in
            try database.execute(sql: "PRAGMA journal_mode = WAL; DELETE FROM note WHERE id = 7")
            #expect(try StoreSnapshot(published).walHasContent)
            #expect(try purge().assessment.fewer.map(\.missing) == [1])
        }
        try queue.close()
    }

    @Test func anEmptiedFileIsNone() throws {
        try archiveCopy()
        try overwrite(published, with: [])
        try expectKept("is empty")
    }

    @Test func garbageIsNone() throws {
        try archiveCopy()
        try overwrite(published, with: (0..<8192).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ 1) })
        try expectKept("has other content")
    }

    @Test func anotherStoreOfTheSameSchemaIsNone() throws {
        try archiveCopy()
        try execute(
            Self.schema + "UPDATE note SET text = 'of somebody else'; UPDATE tag SET weight = 7", at: rig.legacy)
        try overwrite(published, with: bytes(of: rig.legacy))
        try rig.legacy.directory.removeFile(rig.legacy.name.database)
        try expectKept("has other rows")
    }

    /// Most rows of the store are equal all the same.
    @Test(arguments: ["NULL", "''"]) func anEmptiedColumnIsNone(value: String) throws {
        try archiveCopy(Self.schema + "UPDATE tag SET weight = 'heavy'")
        try execute("UPDATE tag SET weight = \(value) WHERE name <> 'one'", at: published)
        try expectKept("has lost most values of weight in tag")
    }

    /// A backup from before the relocation has fewer rows, as a store that went on may have.
    @Test func anOlderCopyIsNone() throws {
        try execute(Self.schema, at: rig.legacy)
        let older = try bytes(of: rig.legacy)
        try rig.legacy.directory.removeFile(rig.legacy.name.database)
        try archiveCopy(Self.schema + "INSERT INTO note (text) VALUES ('the latest')")
        try overwrite(published, with: older)
        try expectKept("is an older state")
    }

    @Test(arguments: [
        ("DELETE FROM note WHERE id > 99", "lacks 101 of 200 rows in note"),
        ("DELETE FROM tag", "has no rows in tag"), ("DROP TABLE tag", "has no table tag"),
        ("DROP INDEX by_text; ALTER TABLE note DROP COLUMN text", "has no column text in note"),
        ("DROP TABLE tag; CREATE TABLE tag (name TEXT); INSERT INTO tag VALUES ('one')", "has no column weight in tag"),
    ])
    func aStoreWithoutATablesRowsIsNone(_ sql: String, _ reason: String) throws {
        try archiveCopy()
        try execute(sql, at: published)
        try expectKept(reason)
    }

    @Test func aDamagedIndexIsNoProof() throws {
        try archiveCopy()
        try execute("DELETE FROM note WHERE id = 5", at: published)
        var content = try bytes(of: published)
        // The index has the second of the two.
        let places = content.indices.dropLast(8).filter { content[$0..<$0 + 8].elementsEqual("note 100".utf8) }
        let last = try #require(places.last)
        content[last] = UInt8(ascii: "N")
        try overwrite(published, with: content)
        try expectKept("is damaged")
    }

    @Test(arguments: [true, false]) func anArchiveThatWasWrittenToIsKept(hash: Bool) throws {
        try archiveCopy(hash: hash)
        let archived = try archived
        let before = try #require(FileStatus(following: archived.path))
        try execute("INSERT INTO note (text) VALUES ('only here')", at: archived)
        // Its times are set back.
        var times = (0..<2).map { _ in
            timespec(tv_sec: Int(before.modified / 1_000_000_000), tv_nsec: Int(before.modified % 1_000_000_000))
        }
        #expect(archived.path.withPlatformString { utimensat(AT_FDCWD, $0, &times, 0) } == 0)
        try expectKept("lacks some of its content")
    }

    @Test func anOlderNoteNeedsEveryRow() throws {
        try archiveCopy()
        var note = try #require(try container.archivedSet(id)?.note)
        note.archived = nil
        try container.write(note)
        try execute("DELETE FROM note WHERE id = 3", at: published)
        try expectKept("lacks some of its content")
        try execute("INSERT INTO note VALUES (3, 'note 3'), (500, 'later')", at: published)
        #expect(try purge().isPurged)
    }

    @Test func anArchiveWithALogIsKept() throws {
        try archiveCopy()
        let archived = try archived
        try DurableFile.write([1, 2, 3], as: archived.name.wal, in: archived.directory, mode: 0o644)
        try expectKept("Notes.sqlite-wal")
    }

    @Test func anArchiveThatAProgramHasOpenIsKept() throws {
        try archiveCopy()
        let archived = try archived
        let file = try archived.directory.open(archived.name.database, flags: O_RDONLY)
        try expectKept("has Notes.sqlite open", as: "in_use")
        _ = consume file
        #expect(try purge().isPurged)
    }

    @Test func theArchiveItselfIsNoProof() throws {
        try archiveCopy()
        try container.directory.removeFile(published.name.database)
        try archived.directory.link(published.name.database, as: published.name.database, in: container.directory)
        try expectKept("is in the archive itself")
    }

    @Test func externalFilesAreCompared() throws {
        try archiveCopy(files: ["E": [1, 2, 3], "F": [4]])
        try execute("INSERT INTO note (text) VALUES ('later')", at: published)
        let folder = try container.directory.directory(published.name.support)
        try folder.open("E", flags: O_WRONLY).truncate(to: 1)
        try expectKept("has a different E")
        try folder.removeFile("E")
        try expectKept("lacks 1 of 2 external files")
        // The archive's own file under another name goes with the archive.
        try archived.directory.directory(published.name.support).link("E", as: "E", in: folder)
        try expectKept("has a different E")
    }

    /// Core Data removes an object's external file with the object.
    private static let history = """
        CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID TEXT, Z_PLIST BLOB);
        CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME TEXT, Z_SUPER INTEGER, Z_MAX INTEGER);
        INSERT INTO Z_METADATA VALUES (1, 'AAAAAAAA', x'');
        INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 3), (16002, 'TRANSACTION', 0, 1);
        CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER,
            ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB, ZTOMBSTONE0 BLOB);
        INSERT INTO ACHANGE (Z_ENT, ZENTITY) VALUES (16001, 1), (16001, 1), (16001, 2);
        CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTIMESTAMP FLOAT,
            ZAUTHOR VARCHAR, ZQUERYGEN BLOB);
        INSERT INTO ATRANSACTION (Z_ENT) VALUES (16002);
        """

    /// Core Data deletes its history when it is old.
    @Test func coreDatasHistoryIsNamedAndNotNeeded() throws {
        try archiveCopy(Self.schema + Self.history)
        try execute("DELETE FROM ACHANGE; DELETE FROM ATRANSACTION; DELETE FROM note WHERE id = 1", at: published)
        let purged = try purge()
        #expect(purged.isPurged, "\(purged.value)")
        #expect(purged.assessment.fewer.map(\.name).sorted() == ["ACHANGE", "ATRANSACTION", "note"])
        #expect(purged.assessment.fewer.filter(\.isHistory).map(\.missing).sorted() == [1, 3])
    }

    /// What only looks like it is an app's.
    @Test(arguments: [
        "ALTER TABLE ACHANGE ADD COLUMN mine", "UPDATE ACHANGE SET Z_ENT = 1 WHERE Z_PK = 2",
        "UPDATE Z_PRIMARYKEY SET Z_NAME = 'Change'", "DROP TABLE Z_METADATA",
        "DROP TABLE ACHANGE; CREATE TABLE ACHANGE (text); INSERT INTO ACHANGE VALUES (1), (2), (3)",
    ])
    func aTableThatHasTheNameOfAHistoryCounts(_ sql: String) throws {
        try archiveCopy(Self.schema + Self.history + sql)
        try execute("DELETE FROM ACHANGE", at: published)
        try expectKept("has no rows in ACHANGE")
    }

    @Test func anExternalFileMayGoWithItsObject() throws {
        let name = "6F9619FF-8B86-D011-B42D-00CF4FC964FF"
        let uuid = String(repeating: "A", count: 8)
        try archiveCopy(
            Self.schema + """
                CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID TEXT, Z_PLIST BLOB);
                CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME TEXT, Z_SUPER INTEGER, Z_MAX INTEGER);
                INSERT INTO Z_METADATA VALUES (1, '\(uuid)', x'');
                CREATE TABLE picture (id INTEGER PRIMARY KEY, data BLOB);
                INSERT INTO picture VALUES (1, CAST(x'02' || '\(name)' || x'00' AS BLOB)), (2, x'01FF');
                """,
            files: [name: [1], "other": [2]])
        try execute("INSERT INTO note (text) VALUES ('later')", at: published)
        try container.directory.directory(published.name.support).removeFile(#require(FilePath.Component(name)))
        try expectKept("to which it still refers")
        try execute("DELETE FROM picture WHERE id = 1", at: published)
        #expect(try purge().assessment.fewerFiles == 1)
    }

    @Test func bytesProveWhatSQLiteCannotRead() throws {
        let content = (0..<8192).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ 5) }
        for store in [published, try archived] {
            try DurableFile.write(content, as: store.name.database, in: store.directory, mode: 0o644)
        }
        try container.write(
            ArchiveNote(id: id, name: published.name.database, from: rig.legacy.path, at: Date(), reason: "a test"))
        try overwrite(published, with: content.dropLast() + [0])
        try expectKept("has other content")
        try overwrite(published, with: content)
        #expect(try purge().value.reason.contains("holds the same bytes"))
    }

    /// A purge was killed after it had withdrawn the archive: what it had proved may be true no longer.
    @Test func provesAgainWhatAKilledPurgeHasWithdrawn() throws {
        try archiveCopy()
        try container.withdrawArchive(id)
        #expect(try container.archives().isEmpty)
        try overwrite(published, with: [])
        #expect(try purge().value.reason.contains("is empty"))
        #expect(try StoreSnapshot(archived).header != nil)
    }

    /// It was killed after it had removed external files, which the store had too.
    @Test func removesTheRestOfAKilledPurge() throws {
        try archiveCopy(files: ["E": [1, 2, 3], "F": [4]])
        try archived.directory.directory(published.name.support).removeFile("E")
        try container.withdrawArchive(id)
        #expect(try purge().isPurged)
        try archiveDirectoryIsEmpty()
    }

    @Test func removesAWithdrawnArchiveWithoutFiles() throws {
        try archiveCopy(files: ["E": [1]])
        let archived = try archived
        try archived.directory.directory(published.name.support).removeFile("E")
        try archived.directory.removeFile(published.name.database)
        try container.withdrawArchive(id)
        #expect(try purge().isPurged)
        try archiveDirectoryIsEmpty()
    }

    private func archiveDirectoryIsEmpty() throws {
        #expect(try container.bookkeeping().directory("archive").names().isEmpty)
    }
}
