import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

/// `groupstore create` and `migrate`, on models that a test writes.
@Suite(.ownThreads) struct MigrationTests {
    private static let old = """
        <entity name="Note"><attribute name="title" optional="YES" attributeType="String"/>
        <attribute name="rest" optional="YES" attributeType="String"/></entity>
        """
    private static let new = """
        <entity name="Folder"/><entity name="Note">
        <attribute name="name" optional="YES" attributeType="String" elementID="title"/>
        <attribute name="stars" attributeType="Integer 16" defaultValueString="3"/></entity>
        """

    private let directory: TemporaryDirectory
    fileprivate let model: FilePath
    fileprivate let store: FilePath

    init() throws {
        directory = try TemporaryDirectory()
        model = try ModelBundle.make(in: directory, [("Notes", Self.old), ("Notes 2", Self.new)])
        try run("mkdir", [Word(directory.path.appending("stores"))])
        store = directory.path.appending("stores/Notes.sqlite")
    }

    fileprivate func fill(_ rows: Int) throws {
        let made = try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes", "--json")
        #expect(made.status == 0, "\(made.errors)")
        #expect(made.summary.string("outcome") == "created")
        let writer = try StoreWriter(store)
        try writer.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(rows)) INSERT INTO ZNOTE "
                + "(Z_PK, Z_ENT, Z_OPT, ZTITLE, ZREST) SELECT i, 1, 2, 'note ' || i, hex(zeroblob(40)) FROM n")
        try writer.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = \(rows)")
    }

    fileprivate func sum(_ path: FilePath, _ query: String) throws -> String? {
        let location = StoreLocation(
            directory: try Directory(path.removingLastComponent()),
            name: try #require(path.lastComponent.flatMap(StoreName.init)))
        return try StoreReader.read(location) { try $0.text(query) }
    }

    fileprivate let summaryQuery =
        "SELECT count(*) || ' ' || min(ZNAME) || ' ' || sum(ZSTARS) || ' ' || max(Z_ENT) FROM ZNOTE"

    @Test func printsItsStatementsIfTheEnvironmentAsksForThem() throws {
        try fill(3)
        let traced = try groupstore(
            "migrate", Word(store), "--model", Word(model), "--json", environment: ["GROUPSTORE_SQL_DEBUG": "1"])
        #expect(traced.status == 0 && traced.outcome == "migrated")
        #expect(traced.errors.contains("GroupStore: sql: 0."))
        #expect(traced.errors.contains(": COMMIT"))
        let bad = try groupstore("inspect", Word(store), environment: ["GROUPSTORE_SQL_DEBUG": "yes"])
        #expect(bad.status == 0)
        #expect(bad.errors.contains("GROUPSTORE_SQL_DEBUG is yes; it takes a level from 0 to 3"))
    }

    @Test func namesAHolderOnce() throws {
        try fill(1)
        // A process of its own: what this one opens, the children of other tests have for a moment too.
        let holder = try sqliteShell(store)
        let migration = try RunningProcess(
            Programs.groupstore, ["migrate", Word(store), "--model", Word(model), "--deadline", "60"])
        let line = try migration.line(.errors) { $0.hasPrefix("waiting for") }
        #expect(line == "waiting for sqlite3 (pid \(holder.pid))")
        // This leaves time for several retries, a few milliseconds apart.
        #expect(try !migration.hasEnded(within: .milliseconds(500)))
        holder.closeInput()
        try holder.wait()
        let done = try migration.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.errors.split(separator: "\n").filter { $0.hasPrefix("waiting for") }.count == 1, "\(done.errors)")
    }

    @Test func migratesAStoreInPlace() throws {
        try fill(500)
        let planned = try groupstore("migrate", Word(store), "--model", Word(model), "--dry-run", "--json")
        #expect(planned.summary.string("outcome") == "would_migrate")
        #expect(try Directory(store.removingLastComponent()).names() == ["Notes.sqlite"])

        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.summary.string("outcome") == "migrated")
        #expect(done.summary.string("from_model") == "Notes")
        #expect(done.summary.string("to_model") == "Notes 2")
        #expect(done.objects.contains { $0.type == "progress" })
        #expect(try sum(store, summaryQuery) == "500 note 1 1500 2")
        let inspected = try groupstore("inspect", Word(store), "--model", Word(model))
        #expect(inspected.output.contains("this store is version Notes 2"))

        let again = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        #expect(again.status == 0)
        #expect(again.summary.string("outcome") == "nothing_to_do")
    }

    @Test func keepsTheOriginalIfTheDestinationHasAnotherName() throws {
        try fill(10)
        let before = try groupstore("model", "hash", Word(store)).output
        let other = directory.path.appending("New.sqlite")
        let trace = directory.path.appending("trace")
        let words = ["migrate", Word(store), "--model", Word(model), "--to", Word(other), "--trace-sql", Word(trace)]
        #expect(try run(Programs.groupstore, words).status == 0)
        #expect(try sum(other, summaryQuery) == "10 note 1 30 2")
        #expect(try groupstore("model", "hash", Word(store)).output == before)
        #expect(try run("grep", ["-c", "INSERT INTO .*ZNOTE", Word(trace)]).output == "1\n")
        let taken = try run(Programs.groupstore, words)
        #expect(taken.status == 73)
    }

    @Test func copiesACurrentStoreToAnotherName() throws {
        #expect(try groupstore("create", Word(store), "--model", Word(model)).status == 0)
        try sqlite(store, "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZNAME, ZSTARS) VALUES (1, 2, 1, 'note 1', 3)")
        let other = directory.path.appending("New.sqlite")
        func migrate(_ more: Word...) throws -> FinishedProcess {
            try groupstore("migrate", Word(store), "--model", Word(model), "--to", Word(other), "--json", options: more)
        }
        #expect(try migrate("--dry-run").summary.string("outcome") == "would_copy")
        #expect(FileStatus(following: other) == nil)
        let copied = try migrate()
        #expect(copied.status == 0 && copied.summary.string("outcome") == "copied", "\(copied.errors)")
        #expect(try sum(other, summaryQuery) == "1 note 1 3 2")
        #expect(try migrate().status == 73)
    }

    /// The command can't take along files that are missing beside the store. It names them.
    @Test func namesMissingExternalFiles() throws {
        let photo =
            "<attribute name='photo' optional='YES' attributeType='Binary' allowsExternalBinaryDataStorage='YES'/>"
        let model = try ModelBundle.make(
            in: directory, named: "Photos",
            [
                ("Photos", "<entity name='P'>\(photo)</entity>"),
                (
                    "Photos 2",
                    "<entity name='P'>\(photo)<attribute name='n' optional='YES' attributeType='String'/></entity>"
                ),
            ])
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Photos").status == 0)
        let present = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        let absent = "1F8FAD5B-D9CB-469F-A165-70867728950E"
        let row = { (key: Int, name: String) in "(\(key), 1, 1, CAST(char(2) || '\(name)' || char(0) AS BLOB))" }
        try sqlite(store, "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZPHOTO) VALUES \(row(1, present)), \(row(2, absent))")
        let support = store.removingLastComponent().appending(".Notes_SUPPORT/_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(support)])
        try write("data", to: support.appending(present))
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        let notes = done.objects.filter { $0.type == "note" }.compactMap { $0.string("text") }
        #expect(done.status == 0 && notes.count == 1, "\(done.output)")
        #expect(notes.first?.contains("P.photo") == true && notes.first?.contains(absent) == true, "\(notes)")
    }

    /// A store that keeps its name keeps its support folder. Data that moves into the store is read from there.
    @Test func movesExternalDataIntoTheStoreInPlace() throws {
        func photo(_ more: String) -> String {
            "<entity name='P'><attribute name='photo' optional='YES' attributeType='Binary' \(more)/></entity>"
        }
        let model = try ModelBundle.make(
            in: directory, named: "Photos",
            [("Photos", photo("allowsExternalBinaryDataStorage='YES'")), ("Photos 2", photo(""))])
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Photos").status == 0)
        let name = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        try sqlite(
            store,
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZPHOTO) VALUES (1, 1, 1, CAST(char(2) || '\(name)' || char(0) AS BLOB))"
        )
        let support = store.removingLastComponent().appending(".Notes_SUPPORT/_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(support)])
        try write("data", to: support.appending(name))
        let mapping = directory.path.appending("photos.yaml")
        try write("mapping: 1\nentities:\n  - {from: P, to: P}\n", to: mapping)
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--mapping", Word(mapping))
        #expect(done.status == 0, "\(done.errors)")
        #expect(try sum(store, "SELECT CAST(ZPHOTO AS TEXT) FROM ZP") == "data")
    }

    /// With a cache, the next migration needs no older version of the model.
    @Test func addsAMissingModelCache() throws {
        try fill(3)
        try sqlite(store, "DROP TABLE Z_MODELCACHE")
        #expect(try groupstore("migrate", Word(store), "--model", Word(model)).status == 0)
        #expect(try sum(store, "SELECT count(*) FROM Z_MODELCACHE") == "1")
        let shown = try groupstore("model", "show", Word(store))
        #expect(shown.status == 0 && shown.output.contains("stars"), "\(shown.errors)")
    }

    /// Two many-to-many relationships whose names differ only in case would share one table. `create`, `migrate` and
    /// `model check` report that before they write anything.
    @Test func refusesAnImpossibleModel() throws {
        func entity(_ name: String, _ other: String, _ names: [(String, String)]) -> String {
            let relationships = names.map {
                "<relationship name='\($0)' optional='YES' toMany='YES' deletionRule='Nullify' "
                    + "destinationEntity='\(other)' inverseName='\($1)' inverseEntity='\(other)'/>"
            }
            return "<entity name='\(name)'>\(relationships.joined())</entity>"
        }
        let first = entity("A", "B", [("bs", "as")]) + entity("B", "A", [("as", "bs")])
        let second =
            entity("A", "B", [("bs", "as"), ("Bs", "others")]) + entity("B", "A", [("as", "bs"), ("others", "Bs")])
        let bundle = try ModelBundle.make(in: directory, named: "Case", [("Case", first), ("Case 2", second)])
        let path = directory.path.appending("Case.sqlite")
        let refused = try groupstore("create", Word(path), "--model", Word(bundle), "--json")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "name_collision")
        #expect(refused.summary.object("error")?.string("message")?.contains("differ only in case") == true)
        #expect(FileStatus(following: path) == nil)
        #expect(try groupstore("create", Word(path), "--model", Word(bundle), "--version", "Case").status == 0)
        let before = try DirectorySnapshot(directory.path)
        let migrated = try groupstore("migrate", Word(path), "--model", Word(bundle), "--json")
        #expect(migrated.status == 65)
        #expect(migrated.summary.object("error")?.string("code") == "core_data_134110")
        #expect(try groupstore("model", "check", Word(path), Word(bundle)).status == 65)
        #expect(try DirectorySnapshot(directory.path) == before)
    }

    /// A migration never goes backwards.
    @Test func refusesANewerStore() throws {
        #expect(try groupstore("create", Word(store), "--model", Word(model)).status == 0)
        let refused = try groupstore("migrate", Word(store), "--model", Word(model), "--version", "Notes", "--json")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "core_data_134100")
        let relocated = try groupstore(
            "relocate", Word(store), Word(directory.path), "--model", Word(model), "--version", "Notes", "--json")
        #expect(relocated.status == 65)
        #expect(try Directory(store.removingLastComponent()).names() == ["Notes.sqlite"])
    }

    @Test func migratesAStoreDuringItsRelocation() throws {
        try fill(100)
        let group = directory.path.appending("group")
        try run("mkdir", [Word(group)])
        let done = try groupstore("relocate", Word(store), Word(group), "--model", Word(model), "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.summary.string("method") == "migrate")
        #expect(try sum(group.appending("Notes.sqlite"), summaryQuery) == "100 note 1 300 2")
        #expect(try holdsLinkAlone(store.removingLastComponent(), to: group.appending("Notes.sqlite")))
    }

    /// After kill -9 at moments spread over the migration, the store is unchanged or migrated. The next run completes
    /// the migration.
    @Test func undoesOrCompletesAKilledMigration() throws {
        try fill(20_000)
        let pristine = directory.path.appending("pristine.sqlite")
        try run("cp", [Word(store), Word(pristine)])
        let words = ["migrate", Word(store), "--model", Word(model), "--json"]
        let started = ContinuousClock.now
        #expect(try run(Programs.groupstore, words).status == 0)
        let span = started.duration(to: .now)
        var interrupted = 0
        for kill in 0..<12 {
            try run("cp", [Word(pristine), Word(store)])
            let command = try RunningProcess(Programs.groupstore, words)
            if try !command.hasEnded(within: span * Double(kill) / 12) {
                try command.killAtOnce()
                interrupted += 1
            }
            let again = try run(Programs.groupstore, words)
            #expect(again.status == 0, "kill \(kill): \(again.errors)")
            #expect(try sum(store, summaryQuery) == "20000 note 1 60000 2", "kill \(kill)")
            #expect(try sum(store, "PRAGMA integrity_check") == "ok")
            #expect(
                Set(try Directory(store.removingLastComponent()).names().map(\.string)) == [
                    ".groupstore", "Notes.sqlite",
                ])
        }
        #expect(interrupted > 0)
    }
}

extension MigrationTests {
    /// The sample creates the store, and migrates it once there is a newer version.
    @Test func theSampleCreatesAndMigratesItsStore() throws {
        let words = [Word(store), Word(model)]
        let made = try run(Programs.notesUpgrade, words)
        #expect(made.output == "created an empty store of version Notes 2\n", "\(made.errors)")
        try run("rm", [Word(store)])
        try fill(5)
        let migrated = try run(Programs.notesUpgrade, words)
        #expect(migrated.output.contains("\nmigrated to Notes 2\n"), "\(migrated.errors)")
        #expect(try sum(store, summaryQuery) == "5 note 1 15 2")
    }
}
