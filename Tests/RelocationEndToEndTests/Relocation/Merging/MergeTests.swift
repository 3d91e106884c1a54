import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `relocate --on-conflict merge`, as Documentation/Merging.md describes it.
@Suite(.ownThreads) struct MergeTests {
    private static let notes = """
        SELECT group_concat(line, ';') FROM (SELECT n.ZUUID || ' ' || n.ZTITLE || ' ' || ifnull(f.ZUUID, '-') || ' '
          || ifnull(c.ZCOLOR, '-') || ' ' || n.ZCOUNT || ' ' || n.Z_OPT AS line FROM ZITEM AS n
          LEFT JOIN ZITEM AS f ON f.Z_PK = n.ZFOLDER LEFT JOIN ZCOVER AS c ON c.Z_PK = n.ZCOVER AND c.ZNOTE = n.Z_PK
          WHERE n.Z_ENT = 4 ORDER BY n.ZUUID)
        """

    private static let coreDataHistory = """
        CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER,
          ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB);
        CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAUTHORTS INTEGER,
          ZBUNDLEIDTS INTEGER, ZCONTEXTNAMETS INTEGER, ZPROCESSIDTS INTEGER, ZTIMESTAMP FLOAT);
        CREATE TABLE ATRANSACTIONSTRING (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR);
        INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 5), (16002, 'TRANSACTION', 0, 2),
          (16003, 'TRANSACTIONSTRING', 0, 1);
        INSERT INTO ATRANSACTIONSTRING VALUES (1, 16003, 1, 'app');
        INSERT INTO ATRANSACTION VALUES (2, 16002, NULL, 1, 1, NULL, 1, 700000000.0);
        INSERT INTO ACHANGE VALUES (5, 16001, NULL, 0, 4, 3, 2, NULL)
        """

    @Test(arguments: Places.FileSystem.allCases) func mergesCoreDataStores(_ fileSystem: Places.FileSystem) throws {
        let stores = try MergeStores(fileSystem)
        try stores.make()
        let before = try (StoreFiles(stores.group).dump(), StoreFiles(stores.legacy).dump())
        let done = try stores.merge("--prefer", "newer:changed", "--prefer", "group")
        #expect(done.outcome == "merged", "\(done.output)\(done.errors)")
        #expect(
            try stores.rows(Self.notes)
                == "N1 n1 F1 gold 3 8;N2 n2 later F2 - 0 8;N3 n3 F2 silver 1 1;N4 n4 - - 0 1;N5 only here - - 0 7")
        #expect(try stores.rows("SELECT group_concat(ZUUID || Z_PK) FROM ZITEM WHERE Z_ENT = 3") == "F11,F22")
        #expect(
            try stores.rows(
                "SELECT group_concat(ZNUMBER || ':' || ZNOTE, ' ') FROM (SELECT * FROM ZPAGE ORDER BY ZNOTE, Z_FOK_NOTE)"
            )
                == "1:3 2:3 3:3 1:6")
        #expect(
            try stores.rows(
                "SELECT group_concat(x, ' ') FROM (SELECT t.ZNAME || Z_4NOTES AS x FROM Z_4TAGS JOIN ZTAG AS t "
                    + "ON t.Z_PK = Z_6TAGS ORDER BY t.ZNAME, Z_FOK_4NOTES)") == "green7 red3 red4 red6")
        #expect(try stores.rows("SELECT group_concat(Z_MAX) FROM Z_PRIMARYKEY") == "3,7,0,0,4,3")
        #expect(try stores.rows("SELECT ZNOTE IS NULL FROM ZCOVER WHERE ZCOLOR = 'black'") == "1")
        #expect(try stores.rows("PRAGMA integrity_check") == "ok")
        let sums = try #require(done.summary.object("merge"))
        #expect(sums.integer("dangling") == 2)
        #expect(sums.integer("links_cleared") == 1)
        #expect(sums.integer("external_files") == 2)
        // Both originals are in the archive, and nothing else is left.
        let archived = try stores.archived()
        #expect(try Set(archived.map { try $0.dump() }) == [before.0, before.1])
        #expect(try archived.allSatisfy { try $0.supportSnapshot() != nil })
        #expect(try holdsLinkAlone(stores.places.legacy, to: stores.group))
        let archives = try #require(sums.object("archives"))
        #expect(
            [archives.string("group"), archives.string("legacy")].allSatisfy { path in
                archived.contains { $0.directory.string == path }
            })
    }

    /// A file of the same name with other bytes is copied under a new name; nothing is overwritten.
    @Test func copiesExternalFilesWithoutOverwriting() throws {
        let stores = try MergeStores()
        try stores.make()
        #expect(try stores.merge("--prefer", "group").outcome == "merged")
        let folder = try StoreFiles(stores.group).support.appending("_EXTERNAL_DATA")
        func content(of note: String) throws -> String {
            let name = try stores.rows("SELECT CAST(substr(ZPHOTO, 2, 36) AS TEXT) FROM ZITEM WHERE ZUUID = '\(note)'")
            return try run("cat", [Word(folder.appending(name))]).output
        }
        #expect(try content(of: "N1") == "group's")
        #expect(try content(of: "N3") == "legacy")
        #expect(try content(of: "N4") == "red")
        #expect(try Directory(folder).names().count == 3)
    }

    // MARK: The plan

    @Test func theDryRunPrintsThePlanAndChangesNothing() throws {
        let stores = try MergeStores()
        try stores.make()
        let before = try (DirectorySnapshot(stores.places.group), DirectorySnapshot(stores.places.legacy))
        let planned = try stores.merge("--prefer", "legacy", "--dry-run")
        #expect(planned.outcome == "merged", "\(planned.errors)")
        #expect(planned.summary.bool("dry_run") == true)
        #expect(try DirectorySnapshot(stores.places.group) == before.0)
        #expect(try DirectorySnapshot(stores.places.legacy) == before.1)
        let note = try #require(planned.objects.first { $0.string("entity") == "Note" })
        let counts = ["only_group", "only_legacy", "equal", "different", "takes_group", "takes_legacy", "undecided"]
        #expect(counts.map(note.integer) == [1, 2, 0, 2, 0, 2, 0])
        let samples = try #require(note.object("samples"))
        #expect(samples.text.contains(#""only_group":[{"key":{"uuid":"N5"}}]"#))
        #expect(planned.output.contains(#""title":{"group":"n2","legacy":"n2 later"}"#), "\(planned.output)")
        let links = try #require(planned.objects.first { $0.string("type") == "merge_links" })
        #expect(["only_group", "only_legacy", "equal"].map(links.integer) == [1, 2, 1])
        // The run prints the same plan.
        let done = try stores.merge("--prefer", "legacy")
        func plan(_ process: FinishedProcess) -> [JSONObject] {
            process.objects.filter { $0.string("type")?.hasPrefix("merge") == true }
        }
        #expect(plan(planned) == plan(done))
    }

    @Test func thePlanInWordsNamesWhatDiffers() throws {
        let stores = try MergeStores()
        try stores.make()
        let planned = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group), "--on-conflict", "merge", "--dry-run",
            options: MergeStores.keys + ["--prefer", "group"])
        #expect(planned.status == 0, "\(planned.errors)")
        #expect(
            planned.errors.contains(
                "Note (uuid): 1 only in the group's store, 2 only in the legacy one, 0 equal, 2 different (2 kept from the "
                    + "group's, 0 from the legacy one)"))
        #expect(
            planned.errors.contains("title “n2” in the group's, “n2 later” in the legacy one; kept from the group's"))
    }

    // MARK: Refusals

    enum Refusal: String, CaseIterable {
        case noKey = "no_merge_key", undecided = "merge_undecided", unknownKey = "unknown_merge_key"
        case notUnique = "merge_key_not_unique", models = "models_differ", ambiguous = "merge_ambiguous"
        case attribute = "unknown_attribute"

        var options: [Word] {
            switch self {
            case .noKey: ["--merge-key", "Tag=name"]
            case .undecided: MergeStores.keys
            case .unknownKey: MergeStores.keys + ["--merge-key", "Note=count"]
            case .notUnique: MergeStores.keys + ["--prefer", "group"]
            case .models, .ambiguous: MergeStores.keys + ["--prefer", "group"]
            case .attribute: MergeStores.keys + ["--prefer", "newer:nothing"]
            }
        }
    }

    @Test(arguments: Refusal.allCases) func refusesWithoutAChange(_ refusal: Refusal) throws {
        let stores = try MergeStores()
        try stores.make(legacyVersion: refusal == .models ? "Notes 2" : "Notes")
        if refusal == .notUnique { try sqlite(stores.legacy, "UPDATE ZTAG SET ZNAME = 'red'") }
        if refusal == .ambiguous {
            try sqlite(stores.legacy, "UPDATE ZITEM SET ZUUID = 'N5' WHERE Z_ENT = 3 AND Z_PK = 3")
        }
        let before = try (StoreFiles(stores.group).dump(), DirectorySnapshot(stores.places.legacy))
        for options: [Word] in [["--dry-run"], []] {
            let done = try groupstore(
                "relocate", Word(stores.legacy), Word(stores.places.group), "--on-conflict", "merge", "--json",
                options: refusal.options + options)
            #expect(done.status == (refusal == .undecided ? 73 : 65), "\(done.output)")
            #expect(done.summary.object("error")?.string("code") == refusal.rawValue, "\(done.output)")
        }
        #expect(try StoreFiles(stores.group).dump() == before.0)
        #expect(try DirectorySnapshot(stores.places.legacy) == before.1)
        #expect(try stores.archived().isEmpty)
    }

    @Test(
        arguments: [
            ["--merge-key", "Note=uuid"], ["--prefer", "group"], ["--on-conflict", "merge", "--merge-key", "Note"],
            ["--on-conflict", "merge", "--prefer", "mine"], ["--on-conflict", "merge", "--opaque"],
            ["--on-conflict", "merge", "--undo"],
            ["--on-conflict", "merge", "--merge-key", "A=a", "--merge-key", "A=b"],
        ] as [[Word]])
    func refusesOptionsThatDoNotFit(_ options: [Word]) throws {
        let places = try Places()
        let done = try groupstore("relocate", "/nonexistent/N.sqlite", Word(places.group), options: options)
        #expect(done.status == 64, "\(done.errors)")
    }

    // MARK: On the way

    @Test func migratesBothStoresFirst() throws {
        for versions: (String, String) in [("Notes 2", "Notes"), ("Notes", "Notes 2"), ("Notes", "Notes")] {
            let stores = try MergeStores()
            try stores.make(groupVersion: versions.0, legacyVersion: versions.1)
            let done = try stores.merge("--prefer", "legacy", "--model", Word(stores.model))
            #expect(done.outcome == "merged", "\(done.output)")
            let captions = try stores.rows(
                "SELECT group_concat(ZCAPTION) FROM (SELECT * FROM ZITEM WHERE Z_ENT = 4 ORDER BY ZUUID)")
            #expect(captions == "n1 before,n2 later,n3,n4,only here")
        }
    }

    @Test func isAnOrdinaryRelocationWithoutAConflict() throws {
        let places = try Places()
        let legacy = places.legacy.appending("Notes.sqlite")
        try makeStore(legacy, rows: 3)
        let words: [Word] = ["--on-conflict", "merge", "--json"]
        #expect(try groupstore("relocate", Word(legacy), Word(places.group), options: words).outcome == "relocated")
    }

    @Test func waitsForAProgramThatHasAStoreOpen() throws {
        for isLegacy in [true, false] {
            let stores = try MergeStores()
            try stores.make()
            let shell = try sqliteShell(isLegacy ? stores.legacy : stores.group)
            let busy = try stores.merge("--prefer", "group", "--deadline", "300ms")
            #expect(busy.status == 75, "\(busy.output)")
            #expect(busy.summary.object("error")?.string("code") == "in_use")
            shell.closeInput()
            try shell.wait()
            #expect(try stores.merge("--prefer", "group").outcome == "merged")
        }
    }

    @Test func leavesALinkIfAsked() throws {
        let stores = try MergeStores()
        try stores.make()
        #expect(try stores.merge("--prefer", "group", "--retire", "symlink").outcome == "merged")
        #expect(try run("readlink", [Word(stores.legacy)]).lines == [stores.group.string])
    }

    @Test func isNotUndone() throws {
        let stores = try MergeStores()
        try stores.make()
        #expect(try stores.merge("--prefer", "group").outcome == "merged")
        let undone = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), "--undo", "--json")
        #expect(undone.status == 65)
        #expect(undone.summary.object("error")?.string("code") == "merged")
    }

    // MARK: Histories

    @Test func anOwnHistoryShowsTheMergeToOldTokens() throws {
        let stores = try MergeStores()
        try stores.make()
        #expect(try groupstore("history", "enable", Word(stores.group)).status == 0)
        let token = try #require(
            try groupstore("history", "show", Word(stores.group), "--json").summary.string("token"))
        #expect(try stores.merge("--prefer", "newer:changed", "--prefer", "group").outcome == "merged")
        let changes = try groupstore("changes", Word(stores.group), "--since", Word(token), "--json")
        #expect(changes.status == 0, "\(changes.errors)")
        #expect(changes.summary.bool("outdated") != true)
        let rows = changes.objects.filter { $0.string("type") == "row" && $0.string("table") == "ZITEM" }
        let inserted = rows.filter { $0.string("op") == "insert" }.compactMap { $0.integer("key") }
        #expect(inserted == [6, 7])
        #expect(rows.contains { $0.string("op") == "update" && $0.integer("key") == 4 })
        #expect(rows.allSatisfy { $0.string("author") == "groupstore" })
        #expect(try stores.rows("SELECT name IS NULL FROM GS_AUTHOR") == "1")
        // Another program's write is recorded as before.
        try sqlite(stores.group, "INSERT INTO ZTAG VALUES (9, 6, 1, 'later')")
        let next = try #require(changes.summary.string("token"))
        let later = try groupstore("changes", Word(stores.group), "--since", Word(next), "--json")
        #expect(later.objects.contains { $0.string("table") == "ZTAG" && $0.integer("key") == 9 })
    }

    @Test func coreDatasHistoryGetsATransaction() throws {
        let stores = try MergeStores()
        try stores.make()
        try sqlite(stores.group, Self.coreDataHistory)
        let token = try #require(
            try groupstore("history", "show", Word(stores.group), "--json").summary.string("token"))
        #expect(try stores.merge("--prefer", "newer:changed", "--prefer", "group").outcome == "merged")
        let changes = try groupstore("changes", Word(stores.group), "--since", Word(token), "--json")
        let rows = changes.objects.filter { $0.string("type") == "row" }
        #expect(rows.count == 11, "\(changes.output)")
        #expect(rows.allSatisfy { $0.string("author") == "groupstore" })
        let update = try #require(rows.first { $0.string("op") == "update" && $0.integer("key") == 4 })
        #expect(update.text.contains(#""columns":["changed","title"]"#), "\(update.text)")
        #expect(try stores.rows("SELECT group_concat(Z_MAX) FROM Z_PRIMARYKEY WHERE Z_ENT > 16000") == "16,3,2")
    }

    /// An object of the group gets an object in a to-many relationship or a link of a many-to-many one: its version and
    /// Core Data's history tell.
    @Test func objectsWhoseLinksChangeAreUpdates() throws {
        let stores = try MergeStores()
        try stores.make()
        try sqlite(stores.group, Self.coreDataHistory)
        let versions = "SELECT group_concat(Z_PK || ':' || Z_OPT, ' ') FROM (SELECT * FROM "
        #expect(try stores.rows(versions + "ZTAG ORDER BY 1)") == "1:1 2:1")
        #expect(try stores.merge("--prefer", "group").outcome == "merged")
        // N1 gets page 3 and stays as it is otherwise; F2 gets N3; the tag red gets N3, and blue nothing.
        #expect(try stores.rows(versions + "ZITEM WHERE Z_PK < 6 ORDER BY 1)") == "1:1 2:2 3:8 4:7 5:7")
        #expect(try stores.rows(versions + "ZTAG WHERE Z_PK < 3 ORDER BY 1)") == "1:2 2:1")
        let updates = try stores.rows(
            "SELECT group_concat(ZENTITY || '/' || ZENTITYPK, ' ') FROM (SELECT * FROM ACHANGE WHERE ZCHANGETYPE = 1 "
                + "ORDER BY ZENTITY, ZENTITYPK)")
        #expect(updates == "3/2 4/3 6/1")
    }

    /// N1 takes the black cover, so that the gold one loses its note.
    @Test func anObjectThatLosesItsOneToOneLinkIsAnUpdate() throws {
        let stores = try MergeStores()
        try stores.make()
        try sqlite(stores.group, Self.coreDataHistory)
        #expect(try stores.merge("--prefer", "legacy").outcome == "merged")
        #expect(try stores.rows("SELECT ZNOTE IS NULL, Z_OPT FROM ZCOVER WHERE ZCOLOR = 'gold'") == "1|2")
        #expect(
            try stores.rows("SELECT hex(ZCOLUMNS) <> '00' FROM ACHANGE WHERE ZCHANGETYPE = 1 AND ZENTITY = 1") == "1")
    }

    @Test(arguments: [true, false]) func refusesRowsOfNoEntity(atGroup: Bool) throws {
        let stores = try MergeStores()
        try stores.make()
        try sqlite(atGroup ? stores.group : stores.legacy, "INSERT INTO ZTAG VALUES (9, 99, 1, 'odd')")
        let refused = try stores.merge("--prefer", "group")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "merge_unsupported", "\(refused.output)")
        #expect(refused.summary.text.contains("row 9 has Z_ENT 99"))
    }

    /// The legacy store's file is missing, and the group has one of that name: the object must not get that one's data.
    @Test func aMissingExternalFileStaysMissing() throws {
        let stores = try MergeStores()
        try stores.make()
        let folder = try StoreFiles(stores.legacy).support.appending("_EXTERNAL_DATA")
        try run("rm", [Word(folder.appending("11111111-1111-4111-8111-111111111111"))])
        #expect(try stores.merge("--prefer", "group").outcome == "merged")
        let photos = "SELECT substr(ZPHOTO, 2, 36) FROM ZITEM WHERE ZUUID = "
        #expect(try stores.rows(photos + "'N1'") == "11111111-1111-4111-8111-111111111111")
        let added = try stores.rows(photos + "'N3'")
        #expect(added.count == 36)
        #expect(added != "11111111-1111-4111-8111-111111111111")
        let result = try StoreFiles(stores.group).support.appending("_EXTERNAL_DATA").appending(added)
        #expect(FileStatus(following: result) == nil)
    }

    /// The group's own file is missing: no object of the legacy store may bring another one under that name.
    @Test func aMissingFileOfTheGroupIsNotReplaced() throws {
        let stores = try MergeStores()
        try stores.make()
        let file = try StoreFiles(stores.group).support.appending("_EXTERNAL_DATA")
            .appending("11111111-1111-4111-8111-111111111111")
        try run("rm", [Word(file)])
        #expect(try stores.merge("--prefer", "group").outcome == "merged")
        #expect(FileStatus(following: file) == nil)
        let added = try stores.rows("SELECT substr(ZPHOTO, 2, 36) FROM ZITEM WHERE ZUUID = 'N3'")
        let copied = try StoreFiles(stores.group).support.appending("_EXTERNAL_DATA").appending(added)
        #expect(FileStatus(following: copied)?.size == 6)
    }

    /// The frameworks that wrote the two stores may name and order their join tables by different rules.
    @Test func pairsJoinTablesThatDifferentRulesNamed() throws {
        let scratch = try TemporaryDirectory()
        func entity(_ name: String, _ relationship: String, _ destination: String, _ inverse: String) -> String {
            "<entity name='\(name)'><attribute name='name' optional='YES' attributeType='String'/>"
                + "<relationship name='\(relationship)' optional='YES' toMany='YES' destinationEntity='\(destination)' "
                + "inverseName='\(inverse)'/><uniquenessConstraints><uniquenessConstraint><constraint value='name'/>"
                + "</uniquenessConstraint></uniquenessConstraints></entity>"
        }
        let model = try ModelBundle.make(
            in: scratch,
            [
                (
                    "Work",
                    "<entity name='Hike' parentEntity='Work'/>" + entity("Kid", "toys", "Toy", "kids")
                        + entity("Label", "works", "Work", "labels") + entity("Toy", "kids", "Kid", "toys")
                        + entity("Work", "labels", "Label", "works")
                )
            ])
        let places = try Places()
        let stores = [places.group, places.legacy].map { $0.appending("Work.sqlite") }
        for (store, name) in zip(stores, ["g", "l"]) {
            #expect(try groupstore("create", Word(store), "--model", Word(model)).status == 0)
            let rows = [("KID", 1), ("LABEL", 2), ("TOY", 3), ("WORK", 4)].map { table, number in
                "INSERT INTO Z\(table) (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, \(number), 1, '\(name)');"
            }
            try sqlite(
                store,
                rows.joined() + "INSERT INTO Z_1TOYS (Z_1KIDS, Z_3TOYS) VALUES (1, 1);"
                    + "INSERT INTO Z_2WORKS (Z_2LABELS, Z_4WORKS) VALUES (1, 1);"
                    + "UPDATE Z_PRIMARYKEY SET Z_MAX = 1 WHERE Z_SUPER = 0")
        }
        // Inherited relationships are met when a subentity is.
        try sqlite(
            stores[1],
            "CREATE TABLE Z_4LABELS ( Z_4WORKS INTEGER, Z_2LABELS INTEGER, PRIMARY KEY (Z_4WORKS, Z_2LABELS) );"
                + "INSERT INTO Z_4LABELS SELECT Z_4WORKS, Z_2LABELS FROM Z_2WORKS; DROP TABLE Z_2WORKS")
        let done = try groupstore(
            "relocate", Word(stores[1]), Word(places.group), "--on-conflict", "merge", "--prefer", "group", "--json")
        #expect(done.outcome == "merged" || done.status == 0, "\(done.output)\(done.errors)")
        #expect(
            try sqlite(
                stores[0],
                "SELECT l.ZNAME || w.ZNAME FROM Z_2WORKS JOIN ZLABEL AS l ON l.Z_PK = Z_2LABELS "
                    + "JOIN ZWORK AS w ON w.Z_PK = Z_4WORKS UNION ALL SELECT k.ZNAME || t.ZNAME FROM Z_1TOYS "
                    + "JOIN ZKID AS k ON k.Z_PK = Z_1KIDS JOIN ZTOY AS t ON t.Z_PK = Z_3TOYS ORDER BY 1")
                == "gg\ngg\nll\nll\n")
    }
}
