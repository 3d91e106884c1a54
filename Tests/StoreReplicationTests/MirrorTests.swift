import Foundation
import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreReplication

/// A home without a history, its mirror, and a replica.
private final class MirroredPair {
    let directory: TemporaryDirectory
    let home: StoreLocation
    let copy: StoreLocation
    private var mirror: StoreMirror?
    private var source: ReplicationSource?
    private var replica: Replica?
    private var made = 0

    var place: FilePath { directory.path.appending("mirror") }

    init(_ sql: String) throws {
        directory = try TemporaryDirectory()
        home = try ReplicatedPair.location(directory.path.appending("home.sqlite"))
        copy = try ReplicatedPair.location(directory.path.appending("replica.sqlite"))
        try StoreWriter(home.path, creating: true).execute(script: sql)
        try open()
        replica = try Replica.create(copy, from: snapshot(), stream: "test")
    }

    /// Opens the mirror, after it was closed as by the end of a program.
    func open() throws {
        close()
        let opened = try StoreMirror(of: home, in: place)
        (mirror, source) = (opened, try ReplicationSource(opened))
    }

    func close() { (source, mirror) = (nil, nil) }

    func history() throws -> String { try #require(source).current().history }

    func hasAssigned(tokensOf history: String) throws -> Bool {
        try #require(source).hasAssigned(tokensOf: history)
    }

    private func snapshot() throws -> Snapshot {
        made += 1
        let source = try #require(source)
        try source.prove()
        source.close()
        return try Snapshot.make(of: source.location, at: directory.path.appending("snapshot\(made)"))
    }

    func write(_ sql: String) throws { try ReplicatedPair.write(sql, home) }

    /// Writes to the mirror what its home doesn't have, as a fault of the disk would.
    func damage(_ sql: String) throws {
        let database = try StoreWriter(#require(source).location.path)
        try database.disableTriggers()
        try database.execute(script: sql)
    }

    /// Changes a bit in the mirror's file.
    func damage(textAfter text: String) throws {
        source?.close()
        let path = URL(filePath: place.appending("0").appending("mirror.sqlite").string)
        var content = try Data(contentsOf: path)
        let place = try #require(content.firstRange(of: Data(text.utf8))).upperBound
        content[place] ^= 4
        try content.write(to: path)
    }

    /// Returns the error of a follower's confirmation.
    func failureToAcknowledge() -> (any Error)? {
        do {
            let source = try #require(source)
            _ = try source.acknowledge(source.current(), by: "relay:test:follower")
            return nil
        } catch { return error }
    }

    /// Returns true if the mirror takes the error for damage, and will be made anew.
    func recordDamage(_ error: any Error) -> Bool {
        guard let mirror, mirror.mayBeDamaged(after: error) else { return false }
        mirror.recordDamage()
        return true
    }

    /// Brings the replica up to date by one batch. Returns false if it needs a snapshot for that.
    func update() throws -> Bool {
        let replica = try #require(replica)
        mirror?.recordOtherWrites()
        var last = Replica.Outcome.skipped
        do {
            _ = try source?.batch(after: replica.position) { last = try replica.apply($0) }
        } catch is StoreHistory.Discontinuity { return false }
        return last == .applied(replica.position)
    }

    func replace() throws { try replica?.replace(with: snapshot()) }

    /// Compares the home with the mirror and the replica: all that SQL shows, but for the history.
    func areEqual() throws -> Bool {
        let source = try #require(source)
        source.close()
        let wanted = try Self.content(home)
        return try wanted == Self.content(source.location) && wanted == Self.content(copy)
    }

    private static func content(_ store: StoreLocation) throws -> [String: [[StoredValue]]] {
        try ReplicatedPair.content(store, history: false).filter {
            !$0.key.hasPrefix("GS_") && !$0.key.hasPrefix("sqlite_stat")
        }
    }
}

struct MirrorTests {
    private static let tables = """
        PRAGMA journal_mode = WAL;
        CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT UNIQUE, body BLOB);
        CREATE TABLE plain (a, b REAL); CREATE TABLE log (what);
        CREATE TABLE keyed (k TEXT COLLATE NOCASE, n REAL, v, PRIMARY KEY (k, n)) WITHOUT ROWID;
        CREATE TRIGGER added AFTER INSERT ON note BEGIN INSERT INTO log VALUES (new.title); END;
        INSERT INTO note (title) VALUES ('before'); INSERT INTO plain VALUES (1, 2); INSERT INTO keyed VALUES ('a', 1, 1);
        """

    @Test func carriesTheRowsOfAHomeThatKeepsNoHistory() throws {
        let pair = try MirroredPair(Self.tables)
        #expect(try pair.areEqual())
        try pair.write(
            """
            INSERT INTO note (title, body) VALUES ('a"\\b' || char(10, 127, 233, 128512), x'00ff'), ('', x''), (NULL, 9e999);
            UPDATE note SET title = 'after' WHERE id = 1; DELETE FROM note WHERE id = 3;
            INSERT INTO plain VALUES (9223372036854775807, -9007199254740993), (0.1, -0.0), (1e300, 5e-324);
            INSERT INTO keyed VALUES ('x', 1.0 / 3, 1), ('X', 0.1, 2); UPDATE keyed SET k = 'A' WHERE k = 'a';
            PRAGMA user_version = -7; PRAGMA application_id = 99;
            """)
        #expect(try pair.update())
        #expect(try pair.areEqual())
        // Each unique value goes to another row.
        try pair.write("UPDATE note SET title = NULL; UPDATE note SET title = 'n' || (5 - id)")
        #expect(try pair.update())
        try pair.write("UPDATE note SET id = id + 10; UPDATE sqlite_sequence SET seq = 77")
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    @Test(arguments: ["fts3(a, b)", "fts4(a, b, tokenize=porter)", "fts5(a, b)", "rtree(id, x0, x1)"])
    func carriesAVirtualTable(_ module: String) throws {
        let pair = try MirroredPair("CREATE TABLE note (id); CREATE VIRTUAL TABLE found USING \(module)")
        let values = module.hasPrefix("rtree") ? "(1, 2, 3)" : "('milk', 'and bread')"
        for statement in ["INSERT INTO found VALUES \(values)", "INSERT INTO note VALUES (1); DELETE FROM found"] {
            try pair.write(statement)
            #expect(try pair.update())
            #expect(
                try StoreWriter(pair.home.path).integer("SELECT count(*) FROM found")
                    == StoreWriter(pair.copy.path).integer("SELECT count(*) FROM found"))
        }
    }

    @Test func keepsItsHistoryAsLongAsRowsLeadOn() throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        for statement in [
            "VACUUM", "ANALYZE", "REINDEX", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA journal_mode = DELETE",
            "DELETE FROM plain", "PRAGMA user_version = 3",
        ] {
            try pair.write("INSERT INTO plain VALUES ('\(statement)', 1); \(statement)")
            #expect(try pair.update(), "\(statement)")
            try pair.write("INSERT INTO keyed VALUES ('\(statement)', 1, 1)")
            try pair.open()
            #expect(try pair.update(), "\(statement), and a program that begins again")
            #expect(try pair.areEqual(), "\(statement)")
        }
        #expect(try pair.history() == history)
    }

    @Test(arguments: [
        "ALTER TABLE plain ADD COLUMN c DEFAULT 1", "ALTER TABLE plain RENAME TO other", "CREATE TABLE more (a)",
        "DROP TABLE plain", "CREATE UNIQUE INDEX once ON log (what)", "DROP TRIGGER added",
        "ALTER TABLE note DROP COLUMN body",
    ])
    func beginsAnotherHistoryWithAnotherSchema(_ statement: String) throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        let insertion = "INSERT INTO note (title) VALUES"
        try pair.write("\(insertion) ('first'); \(statement); \(insertion) ('last')")
        #expect(try !pair.update())
        #expect(try pair.history() != history && pair.hasAssigned(tokensOf: history))
        try pair.replace()
        #expect(try pair.areEqual())
        try pair.write("INSERT INTO note (title) VALUES ('after')")
        #expect(try pair.update())
        #expect(try pair.areEqual())
        try pair.open()
        #expect(try pair.hasAssigned(tokensOf: history))
    }

    /// SQLite has these collations for UTF-8 only, and asks for others.
    @Test(arguments: ["NOCASE", "RTRIM"]) func carriesKeysOfAUTF16Store(_ collation: String) throws {
        let pair = try MirroredPair(
            """
            PRAGMA encoding = 'UTF-16le'; CREATE TABLE keyed (k TEXT COLLATE \(collation) PRIMARY KEY, v) WITHOUT ROWID;
            CREATE TABLE other (v TEXT COLLATE \(collation) UNIQUE);
            """)
        try pair.write(
            "INSERT INTO keyed (k) VALUES ('a'), ('A1'), ('\u{e4}'), ('b '); INSERT INTO other SELECT k FROM keyed")
        _ = try pair.update()
        #expect(try pair.areEqual())
        try pair.write("UPDATE keyed SET k = k || 'x'; DELETE FROM other WHERE v = 'A1'")
        _ = try pair.update()
        #expect(try pair.areEqual())
        for store in [pair.home, pair.copy] {
            #expect(try StoreWriter(store.path).text("PRAGMA integrity_check") == "ok")
        }
    }

    @Test func followsAStoreThatIsRestoredFromABackup() throws {
        let pair = try MirroredPair(Self.tables)
        let backup = pair.directory.path.appending("backup.sqlite")
        try pair.write(
            "VACUUM INTO '\(backup)'; INSERT INTO note (title) VALUES ('lost'); PRAGMA journal_mode = DELETE")
        #expect(try pair.update())
        #expect(try run("cp", [Word(backup), Word(pair.home.path)]).status == 0)
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    @Test(arguments: [
        "UPDATE note SET title = 'wrong' WHERE id = 1", "DELETE FROM note WHERE id = 1", "UPDATE plain SET b = 2.5",
        "UPDATE keyed SET v = '1'", "INSERT INTO log VALUES (1)", "PRAGMA user_version = 9",
        "CREATE INDEX extra ON plain (a)",
    ])
    func makesNoSnapshotOfADamagedMirror(_ damage: String) throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        try pair.damage(damage)
        #expect(throws: StoreHistory.Discontinuity.epoch) { try pair.replace() }
        #expect(try pair.history() != history && pair.hasAssigned(tokensOf: history))
        try pair.replace()
        #expect(try pair.areEqual())
    }

    @Test(arguments: [
        "UPDATE note SET title = 'wrong' WHERE id = 1", "DELETE FROM note WHERE id = 1",
        "INSERT INTO note (id) VALUES (2)",
    ])
    func noticesARowOfTheMirrorThatTheHomeDidNotHave(_ damage: String) throws {
        let pair = try MirroredPair(Self.tables)
        try pair.damage(damage)
        try pair.write("UPDATE note SET body = 1 WHERE id = 1; INSERT INTO note (id) VALUES (2)")
        #expect(try !pair.update())
        try pair.replace()
        #expect(try pair.areEqual())
    }

    @Test(arguments: [0, 16, 40, 80, 200, 1000]) func goesOnBesideADamagedLogOfSteps(_ offset: Int64) throws {
        let pair = try MirroredPair(Self.tables)
        try pair.write("UPDATE note SET title = hex(zeroblob(2000))")
        #expect(try pair.update())
        let directory = try Directory(pair.place.appending("0"))
        let name = try #require(directory.names().filter { $0.string.hasPrefix("log-") }.max { $0.string < $1.string })
        let log = try directory.open(name, flags: O_RDWR)
        let byte = try #require(log.read(count: 1, at: offset).first)
        try log.write([byte ^ 4], at: offset, path: pair.place)
        try pair.write("INSERT INTO note (title) VALUES ('later')")
        try pair.open()
        if try !pair.update() { try pair.replace() }
        #expect(try pair.areEqual())
        try pair.write("INSERT INTO note (title) VALUES ('last')")
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    /// After a crash of the machine the shadow doesn't count, and of the mirror what was committed.
    @Test func keepsItsHistoryAfterACrashOfTheMachine() throws {
        let pair = try MirroredPair(
            """
            \(Self.tables)
            CREATE TABLE cased (k, v, PRIMARY KEY (k COLLATE NOCASE)) WITHOUT ROWID; INSERT INTO cased VALUES ('a', 1);
            """)
        let history = try pair.history()
        for name in ["state", "pages"] as [FilePath.Component] {
            try pair.write(
                """
                UPDATE note SET title = 'crash' || id; INSERT INTO plain VALUES ('\(name)', 1); DELETE FROM log;
                INSERT INTO keyed VALUES ('\(name)', 0.1, x''); UPDATE keyed SET v = 1.0 WHERE v = 1;
                UPDATE cased SET k = iif(k = 'a', 'A', 'a'); UPDATE keyed SET k = (SELECT k FROM cased) WHERE k = 'a';
                UPDATE plain SET rowid = rowid + 100 WHERE rowid = 2; PRAGMA user_version = 7; VACUUM;
                """)
            try Directory(pair.place.appending("0")).open(name, flags: O_WRONLY).truncate(to: 0, path: pair.place)
            try pair.open()
            #expect(try pair.update())
            #expect(try pair.areEqual())
        }
        #expect(try pair.history() == history)
        try pair.write("ALTER TABLE plain ADD COLUMN more")
        try Directory(pair.place.appending("0")).removeFile("state")
        try pair.open()
        #expect(try pair.history() != history && !pair.update())
        try pair.replace()
        #expect(try pair.areEqual())
    }

    /// The copy of the home's pages alone: its later steps have the numbers of others that the mirror knows.
    @Test func carriesEachRowAfterItsShadowWasPutBackFromABackup() throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        try pair.write("INSERT INTO note (title) VALUES ('saved')")
        #expect(try pair.update())
        pair.close()
        let (place, saved) = (pair.place.appending("0"), pair.directory.path.appending("saved"))
        func copyShadow(from source: FilePath, to target: FilePath) throws {
            let names = try Directory(source).names().filter {
                ["state", "pages"].contains($0.string) || $0.string.hasPrefix("log-")
            }
            for name in names {
                let (from, to) = (source.appending(name).string, target.appending(name).string)
                try? FileManager.default.removeItem(atPath: to)
                try FileManager.default.copyItem(atPath: from, toPath: to)
            }
        }
        try FileManager.default.createDirectory(atPath: saved.string, withIntermediateDirectories: false)
        try copyShadow(from: place, to: saved)
        try pair.open()
        try pair.write("INSERT INTO note (title) VALUES ('published')")
        #expect(try pair.update())
        pair.close()
        try copyShadow(from: saved, to: place)
        try pair.write("INSERT INTO note (title) VALUES ('later'); DELETE FROM plain")
        try pair.open()
        #expect(try pair.update())
        #expect(try pair.areEqual())
        #expect(try pair.history() == history)
        try pair.write("INSERT INTO note (title) VALUES ('last')")
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    /// SQLite compares bytes: two Unicode forms of one text are two tables, columns and keys.
    @Test func tellsNormalFormsApart() throws {
        let (one, two) = ("\u{E9}", "e\u{301}")
        let columns = "(k TEXT PRIMARY KEY, \(one), \(two)) WITHOUT ROWID"
        let pair = try MirroredPair(
            "PRAGMA journal_mode = WAL; CREATE TABLE t\(one) \(columns); CREATE TABLE t\(two) \(columns)")
        func check(_ sql: String) throws {
            try pair.write(sql)
            #expect(try pair.update(), "\(sql)")
            for table in [one, two] {
                let content = """
                    SELECT group_concat(hex(k) || quote(\(one)) || quote(\(two)))
                    FROM (SELECT * FROM t\(table) ORDER BY hex(k))
                    """
                let (wanted, found) = try (
                    StoreWriter(pair.home.path).text(content), StoreWriter(pair.copy.path).text(content)
                )
                #expect(wanted == found, "\(sql)")
            }
        }
        try check("INSERT INTO t\(two) VALUES ('\(one)', 1, 2), ('\(two)', 3, 4)")
        try check("INSERT INTO t\(one) VALUES ('\(two)', 5, 6), ('\(one)', 7, 8)")
        try check("UPDATE t\(one) SET \(two) = 9 WHERE k = '\(two)'; DELETE FROM t\(two) WHERE k = '\(one)'")
        try check("UPDATE t\(two) SET k = '\(one)', \(one) = \(two)")
    }

    /// A program that is killed leaves any of these files.
    @Test(arguments: ["mirror.sqlite", "histories", "state", "pages"])
    func makesADamagedMirrorAnew(_ name: FilePath.Component) throws {
        let pair = try MirroredPair(Self.tables)
        let directory = try Directory(pair.place.appending("0"))
        try pair.write("INSERT INTO plain VALUES (3, 4)")
        try directory.open(name, flags: O_WRONLY).truncate(to: 0, path: pair.place)
        try pair.open()
        if try !pair.update() { try pair.replace() }
        #expect(try pair.areEqual())
    }

    /// Tokens have the identifier, and a home that is begun anew knows it from its list.
    @Test(arguments: [false, true]) func publishesNoDamagedIdentifier(_ whileOpen: Bool) throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        try pair.damage("UPDATE GS_HISTORY SET identifier = 'x' || substr(identifier, 2)")
        if !whileOpen { try pair.open() }
        try pair.write("INSERT INTO plain VALUES (3, 4)")
        if try !pair.update() { try pair.replace() }
        #expect(try pair.history() != history && !pair.history().hasPrefix("x") && pair.areEqual())
        #expect(try pair.hasAssigned(tokensOf: history))
    }

    /// A fault of the disk in the schema leaves a database that SQLite may open, and that lacks a column.
    @Test(arguments: ["GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER"])
    func makesAMirrorWithADamagedSchemaAnew(_ table: String) throws {
        let pair = try MirroredPair(Self.tables)
        try pair.damage(textAfter: "CREATE TABLE \(table) (")
        try pair.open()
        if try !pair.update() { try pair.replace() }
        try pair.write("INSERT INTO plain VALUES (3, 4)")
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    /// A session reads the copy without a change of the home, which would notice the damage.
    @Test(arguments: ["CREATE TABLE GS_SUBSCRIBER (", "CREATE TRIGGER GS_1_I "])
    func makesAMirrorAnewThatIsDamagedWhileItIsOpen(_ text: String) throws {
        let pair = try MirroredPair(Self.tables)
        try pair.damage(textAfter: text)
        let error = pair.failureToAcknowledge()
        #expect(error.map(pair.recordDamage) == true, "\(String(describing: error))")
        #expect(try !pair.update())
        try pair.replace()
        try pair.write("INSERT INTO plain VALUES (3, 4)")
        #expect(try pair.update())
        #expect(try pair.areEqual())
    }

    @Test func leavesTheHomeAlone() throws {
        let pair = try MirroredPair(Self.tables)
        try pair.write("INSERT INTO plain VALUES (3, 4)")
        let directory = try Directory(pair.home.path.removingLastComponent())
        let before = try DurableFile.read("home.sqlite", in: directory, limit: 1 << 30)
        #expect(try pair.update())
        #expect(try DurableFile.read("home.sqlite", in: directory, limit: 1 << 30) == before)
        #expect(try directory.names().filter { $0.string.hasPrefix("home") } == ["home.sqlite"])
    }

    @Test func oneProgramUsesAMirror() throws {
        let pair = try MirroredPair(Self.tables)
        #expect(throws: StoreError.self) { try StoreMirror(of: pair.home, in: pair.place) }
    }

    /// The home is absent for a moment while a backup comes to its place, or empty while one is copied.
    @Test func anAbsentOrEmptyStoreDoesNotLackAHistory() throws {
        let pair = try MirroredPair(Self.tables)
        let directory = try Directory(pair.directory.path)
        try directory.removeFile("home.sqlite")
        let missing = #expect(throws: StoreError.self) { try StoreMirror.isNeeded(for: pair.home) }
        #expect(missing?.errorCode == StoreError.missing(pair.home.path).errorCode)
        _ = try directory.open("home.sqlite", flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        let busy = #expect(throws: StoreError.self) { try StoreMirror.isNeeded(for: pair.home) }
        #expect(busy?.errorCode == StoreError.busy(pair.home.path).errorCode)
    }

    /// Followers of a mirror go on with the history of the same file. Another file may be another store.
    @Test(arguments: [false, true])
    func goesOverToTheHistoryOfItsOwnFileAlone(isOpen: Bool) throws {
        let pair = try MirroredPair(Self.tables)
        let history = try pair.history()
        let other = try ReplicatedPair.location(pair.directory.path.appending("other.sqlite"))
        try StoreWriter(other.path, creating: true).execute(script: "CREATE TABLE other (a)")
        _ = try HistoryInstallation(other).enable()
        if !isOpen {
            pair.close()
            _ = try HistoryInstallation(pair.home).enable()
            #expect(try StoreMirror.histories(in: pair.place, of: pair.home) == [history])
        }
        let directory = try Directory(pair.directory.path)
        try directory.rename("other.sqlite", to: "home.sqlite", in: directory, .replace)
        if isOpen {
            // It has seen the other file before anybody asks.
            #expect(try !pair.update())
            pair.close()
        }
        #expect(try StoreMirror.histories(in: pair.place, of: pair.home) == [])
        try StoreMirror.retire(in: pair.place)
        #expect(try directory.directory("mirror").directory("0").status("mirror.sqlite") == nil)
    }

    /// A replica would lack the object, or a mirror would take it for its own.
    @Test(arguments: [
        "CREATE TABLE gs_change (a)", "CREATE TABLE GS_HISTORY (a)", "CREATE TABLE GS_REPLICA (a)",
        "CREATE VIEW GS_AUTHOR AS SELECT 1",
        "CREATE TRIGGER GS_1_I AFTER INSERT ON a BEGIN DELETE FROM a; END",
        "CREATE TRIGGER gs_9_x AFTER INSERT ON a BEGIN DELETE FROM a; END",
    ])
    func refusesAnObjectWithANameOfHistory(_ creation: String) throws {
        let pair = try MirroredPair("CREATE TABLE a (b)")
        try pair.write(creation)
        #expect(try StoreMirror.isNeeded(for: pair.home))
        #expect(throws: HistoryError.self) { try pair.update() }
        let error = #expect(throws: HistoryError.self) { try pair.open() }
        #expect(error?.errorCode == "foreign_table" && error?.errorPath == pair.home.path)
    }

    @Test func refusesExternalDataAndAnotherHistory() throws {
        let pair = try MirroredPair(Self.tables)
        try pair.write("CREATE TABLE ACHANGE (a); CREATE TABLE ATRANSACTION (a)")
        #expect(throws: StoreHistory.Discontinuity.self) { try pair.open() }
        #expect(try !StoreMirror.isNeeded(for: pair.home))
        try Directory(pair.directory.path).makeDirectory(".home_SUPPORT", mode: 0o700)
        #expect(throws: ReplicationError.self) { try pair.open() }
    }

    /// Nobody but an opener that may write rolls back what a killed program has left.
    @Test func namesTheJournalOfAKilledProgram() throws {
        let directory = try TemporaryDirectory()
        let home = try ReplicatedPair.location(directory.path.appending("home.sqlite"))
        try StoreWriter(home.path, creating: true).execute("CREATE TABLE t (a)")
        let journal = try home.directory.open(home.name.journal, flags: O_WRONLY | O_CREAT, mode: 0o600)
        try journal.write([0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7], at: 0)
        #expect(throws: ReplicationError.abandonedJournal(home.path)) { try StoreMirror.isNeeded(for: home) }
        let program = try RangeLocks(home.directory.open(home.name.database, flags: O_RDWR))
        let reserved = Int64(0x4000_0001)..<0x4000_0002
        #expect(try program.lock(.exclusive, reserved))
        #expect(throws: StoreError.busy(home.path)) { try StoreMirror.isNeeded(for: home) }
        program.unlock(reserved)
        #expect(try StoreWriter(home.path).integer("SELECT count(*) FROM t") == 0)
        #expect(try StoreMirror.isNeeded(for: home))
    }
}
