import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `model check` predicts what `migrate` does with a store.
@Suite(.timeLimit(.minutes(60))) struct CheckAgreementTests {
    struct Case: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let old: String
        let new: String
        let rows: String
        /// The expected error code, or nil if the store is migrated.
        let code: Int64?
        let words: String
    }

    private static func entity(_ name: String, _ content: String = "") -> String {
        "<entity name='\(name)'>\(content)</entity>"
    }

    private static let value = "<attribute name='x' optional='YES' attributeType='Integer 16'/>"
    private static func unique(_ name: String) -> String {
        "<uniquenessConstraints><uniquenessConstraint><constraint value='\(name)'/></uniquenessConstraint>"
            + "</uniquenessConstraints>"
    }
    private static let filled = "<attribute name='y' attributeType='Integer 16' defaultValueString='7'/>"
    private static let mandatory = "<attribute name='m' attributeType='Integer 16'/>"
    private static func derived(_ name: String) -> String {
        "<attribute name='\(name)' optional='YES' attributeType='Integer 16' derived='YES' derivationExpression='x'/>"
    }
    private static func ends(_ name: String, _ inverse: String, isOrdered: Bool = true) -> String {
        "<relationship name='\(name)' optional='YES' toMany='YES' ordered='\(isOrdered ? "YES" : "NO")' destinationEntity='A' "
            + "inverseName='\(inverse)' inverseEntity='A'/>"
    }
    private static func toOne(_ optional: String) -> String {
        "<relationship name='b' optional='\(optional)' maxCount='1' destinationEntity='B'/>"
    }
    private static let history = """
        CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTIMESTAMP TIMESTAMP);
        CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER,
            ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB);
        INSERT INTO ACHANGE VALUES (1, 16001, NULL, 0, 1, 1, 1, NULL);
        """

    static let cases = [
        Case(
            testDescription: "a constraint that the rows keep", old: entity("A", value),
            new: entity("A", value + unique("x")),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5), (2, 1, 1, 6), (3, 1, 1, NULL), (4, 1, 1, NULL)", code: nil,
            words: ""),
        Case(
            testDescription: "a constraint that they violate", old: entity("A", value),
            new: entity("A", value + unique("x")),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5), (2, 1, 1, 5), (3, 1, 1, 5)", code: 134111,
            words: "1 value occurs more than once"),
        Case(
            testDescription: "a constraint that one default violates", old: entity("A", value),
            new: entity("A", value + filled + unique("y")),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5), (2, 1, 1, 6)", code: 134111, words: "more than once"),
        Case(
            testDescription: "one object has the default", old: entity("A", value),
            new: entity("A", value + filled + unique("y")), rows: "INSERT INTO ZA VALUES (1, 1, 1, 5)", code: nil,
            words: ""),
        Case(
            testDescription: "history of an entity that is removed", old: entity("A", value) + entity("B"),
            new: entity("B"), rows: history, code: 134110, words: "has 1 change of it"),
        Case(
            testDescription: "a foreign table of a new entity's name", old: entity("A", value),
            new: entity("A", value) + entity("B"), rows: "CREATE TABLE ZB (x)", code: 134110,
            words: "a table ZB that isn't Core Data's"),
        Case(
            testDescription: "a table that is gone", old: entity("A", value) + entity("B"), new: entity("A", value),
            rows: "DROP TABLE ZB", code: 134020, words: "lacks tables or columns of its model: ZB"),
        Case(
            testDescription: "a mandatory attribute of an inserted parent", old: entity("B", value),
            new: entity("A", mandatory) + "<entity name='B' parentEntity='A'>\(value)</entity>",
            rows: "INSERT INTO ZB VALUES (1, 1, 1, 5)", code: 134110, words: "A.m, in 1 object"),
        Case(
            testDescription: "a mandatory attribute that moves up to a parent with objects",
            old: entity("A") + "<entity name='B' parentEntity='A'>\(mandatory)</entity>",
            new: entity("A", mandatory) + "<entity name='B' parentEntity='A'/>",
            rows: "INSERT INTO ZA VALUES (1, 1, 1, NULL), (2, 2, 1, 7)", code: 134110, words: "A.m, in 1 object"),
        Case(
            testDescription: "a mandatory attribute that moves up to a parent without objects",
            old: entity("A") + "<entity name='B' parentEntity='A'>\(mandatory)</entity>",
            new: entity("A", mandatory) + "<entity name='B' parentEntity='A'/>",
            rows: "INSERT INTO ZA VALUES (2, 2, 1, 7)", code: nil, words: ""),
        Case(
            testDescription: "a unique attribute with a default that moves up",
            old: entity("A") + "<entity name='B' parentEntity='A'>\(filled)\(unique("y"))</entity>",
            new: entity("A", filled) + "<entity name='B' parentEntity='A'>\(unique("y"))</entity>",
            rows: "INSERT INTO ZA VALUES (1, 1, 1, NULL), (2, 1, 1, NULL), (3, 2, 1, 5)", code: 134111,
            words: "more than once"),
        Case(
            testDescription: "a table that an interrupted migration has left", old: entity("A", filled),
            new: entity("A", value), rows: "CREATE TABLE _T_ZA (x); INSERT INTO ZA VALUES (1, 1, 1, 5)", code: nil,
            words: ""),
        Case(
            testDescription: "derived attributes whose triggers have one name", old: entity("A", value),
            new: "<entity name='A'>\(value)\(derived("a_b"))</entity>"
                + "<entity name='A_a' parentEntity='A'>\(derived("b"))</entity>",
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5)", code: 134110, words: "is also that of"),
        Case(
            testDescription: "ordered ends that differ in case only", old: entity("A", value),
            new: entity("A", value + ends("item", "ITEM") + ends("ITEM", "item")),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5)", code: 134110, words: "differ only in case"),
        Case(
            testDescription: "ends that differ in case only", old: entity("A", value),
            new: entity("A", value + ends("item", "ITEM", isOrdered: false) + ends("ITEM", "item", isOrdered: false)),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, 5)", code: 134110, words: "differ only in case"),
        Case(
            testDescription: "a mandatory relationship to an object that goes",
            old: entity("A", toOne("YES")) + entity("B", "") + entity("C", ""),
            new: entity("A", toOne("NO")) + entity("B", ""),
            rows: "INSERT INTO ZA VALUES (1, 1, 1, NULL)", code: 134110, words: "A.b, in 1 object"),
        Case(
            testDescription: "history of another entity", old: entity("A", value) + entity("B"),
            new: entity("A", value), rows: history, code: nil, words: ""),
    ]

    @Test(arguments: cases) func checkAndMigrateAgree(_ testCase: Case) throws {
        let directory = try TemporaryDirectory()
        let model = try ModelBundle.make(in: directory, [("Notes", testCase.old), ("Notes 2", testCase.new)])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(store, testCase.rows)
        let status: CInt = testCase.code == nil ? 0 : 65
        let check = try groupstore("model", "check", Word(store), Word(model), "--json")
        #expect(check.status == status, "\(check.output)")
        let errors = check.objects.filter { $0.string("severity") == "error" }
        if let code = testCase.code {
            #expect(check.objects[0].integer("code") == code && errors.map { $0.integer("code") } == [code])
            #expect(errors[0].string("message")?.contains(testCase.words) == true, "\(check.output)")
        } else {
            #expect(errors.isEmpty)
        }
        let dry = try groupstore("migrate", Word(store), "--model", Word(model), "--dry-run", "--json")
        #expect(dry.status == status, "\(dry.errors)")
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        #expect(done.status == status, "\(done.errors)")
        if let code = testCase.code {
            #expect(done.summary.object("error")?.string("code") == "core_data_\(code)", "\(done.output)")
        }
    }

    /// The dry run reports foreign indexes, triggers and views, and external files exactly as the run does.
    @Test(arguments: ["relocate", "migrate"]) func aDryRunReportsTheSameNotes(_ command: String) throws {
        let directory = try TemporaryDirectory()
        let image =
            "<attribute name='image' optional='YES' attributeType='Binary' allowsExternalBinaryDataStorage='YES'/>"
        let model = try ModelBundle.make(
            in: directory,
            [
                ("Notes", Self.entity("A", Self.value + image)), ("Notes 2", Self.entity("A", Self.filled)),
            ])
        let group = directory.path.appending("group")
        try run("mkdir", [Word(group)])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        let file = "1F2E3D4C-0000-4000-8000-123456789ABC"
        let support = try StoreFiles(store).support.appending("_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(support)])
        try write("picture", to: support.appending(file))
        try sqlite(
            store,
            """
            INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZX, ZIMAGE)
                VALUES (1, 1, 1, 5, x'02\(file.utf8.map { String($0, radix: 16) }.joined())00');
            CREATE INDEX mine ON ZA (ZX); CREATE INDEX kept ON ZA (Z_OPT); CREATE INDEX Z_A_old ON ZA (ZX);
            CREATE VIEW seen AS SELECT ZX FROM ZA;
            CREATE TRIGGER noted AFTER UPDATE ON ZA BEGIN SELECT NEW.ZX; END;
            CREATE TABLE log (x); CREATE VIRTUAL TABLE words USING fts5(word)
            """)
        let words = [Word(command), Word(store)] + (command == "relocate" ? [Word(group)] : [])
        let options: [Word] = ["--model", Word(model), "--json"]
        let dry = try run(Programs.groupstore, words + ["--dry-run"] + options)
        let done = try run(Programs.groupstore, words + options)
        #expect(dry.status == 0 && done.status == 0, "\(dry.errors)\(done.errors)")
        func notes(_ process: FinishedProcess) -> [String] {
            // The archive's directory doesn't exist yet.
            process.objects.filter { $0.type == "note" }.compactMap { $0.string("text") }
                .filter { !$0.contains("kept in") }.sorted()
        }
        #expect(notes(dry) == notes(done))
        for name in ["mine", "Z_A_old", "seen", "noted"] {
            #expect(notes(dry).contains { $0.contains(name) }, "\(name): \(notes(dry))")
        }
        #expect(!notes(dry).contains { $0.contains("kept") || $0.contains("words") })
        #expect(notes(dry).contains { $0.contains(file) } == (command == "migrate"))
    }

    /// Only the store's own program has this function. The dry run can't create its index, and doesn't fail for that.
    @Test func aDryRunIgnoresAnIndexItCannotCreate() throws {
        let directory = try TemporaryDirectory()
        let model = try ModelBundle.make(
            in: directory, [("Notes", Self.entity("A")), ("Notes 2", Self.entity("A", Self.value))])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(
            store,
            """
            CREATE TABLE log (x); CREATE INDEX byLength ON log (length(x)); PRAGMA writable_schema = ON;
            UPDATE sqlite_schema SET sql = 'CREATE INDEX byLength ON log (only_theirs(x))' WHERE name = 'byLength'
            """)
        for options: [Word] in [["--dry-run"], []] {
            let done = try run(
                Programs.groupstore, ["migrate", Word(store), "--model", Word(model), "--json"] + options)
            #expect(done.status == 0, "\(done.errors)")
        }
    }

    /// The command may lose the history if an option allows it.
    @Test func acceptsAnAllowedLossOfHistory() throws {
        let directory = try TemporaryDirectory()
        let model = try ModelBundle.make(
            in: directory, [("Notes", Self.entity("A") + Self.entity("B")), ("Notes 2", Self.entity("B"))])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(store, Self.history)
        let planned = try groupstore(
            "migrate", Word(store), "--model", Word(model), "--allow-partial-history", "--dry-run")
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--allow-partial-history")
        #expect(done.status == 0, "\(done.errors)")
        for run in [planned, done] {
            #expect(run.output.contains("persistent history loses 1 change of removed entities"))
        }
    }

    /// `--all` excludes versions after the current one. Both commands refuse stores of such a version.
    @Test func refusesStoresOfNewerVersions() throws {
        let directory = try TemporaryDirectory()
        let model = try ModelBundle.make(
            in: directory, [("Notes 2", Self.entity("A", Self.value)), ("Notes", Self.entity("A"))])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes 2").status == 0)
        let all = try groupstore("model", "check", "--all", Word(model), "--json")
        #expect(all.status == 0 && all.summary.integer("checks") == 0, "\(all.output)")
        #expect(all.objects.filter { $0.type == "note" }.compactMap { $0.string("version") } == ["Notes 2"])
        let text = try groupstore("model", "check", "--all", Word(model))
        #expect(text.output.contains("Notes 2 is newer") && !text.output.contains("by inferred"), "\(text.output)")
        for old in [store, model.appending("Notes 2.xcdatamodel")] {
            let check = try groupstore("model", "check", Word(old), Word(model), "--json")
            #expect(check.status == 65 && check.objects[0].integer("code") == 134100, "\(check.output)")
        }
        let done = try groupstore("migrate", Word(store), "--model", Word(model), "--json")
        #expect(done.status == 65)
        #expect(done.summary.object("error")?.string("code") == "core_data_134100")
    }

    /// None of the several versions has the store's hashes.
    @Test func bothRefuseAnUnknownVersion() throws {
        let directory = try TemporaryDirectory()
        let other = try ModelBundle.make(in: directory, named: "Other", [("Other", Self.entity("A"))])
        let model = try ModelBundle.make(
            in: directory, [("Notes", Self.entity("B")), ("Notes 2", Self.entity("A", Self.value))])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(other)).status == 0)
        let check = try groupstore("model", "check", Word(store), Word(model), "--json")
        #expect(check.status == 65 && check.objects[0].integer("code") == 134130, "\(check.output)")
        #expect(try groupstore("migrate", Word(store), "--model", Word(model)).status == 65)
    }

    // MARK: Mapping models and versions

    private static let text = "<attribute name='name' optional='YES' attributeType='String'/>"

    /// Each of the two files maps one entity, and lies beside the bundle. Both apply even if the target is a single
    /// version of the bundle.
    @Test func usesMappingModelsBesideTheBundleForASingleVersion() throws {
        let directory = try TemporaryDirectory()
        let old = Self.entity("A", Self.text) + Self.entity("B", Self.text)
        let model = try ModelBundle.make(
            in: directory, [("Notes", old), ("Notes 2", old.replacing("'name'", with: "'title'"))])
        for entity in ["A", "B"] {
            try write(
                "mapping: 1\nsource: Notes\ndestination: Notes 2\nentities:\n"
                    + "  - {from: \(entity), to: \(entity), attributes: {title: $source.name}}\n",
                to: directory.path.appending("\(entity).mapping.yaml"))
        }
        for target in [model, model.appending("Notes 2.xcdatamodel")] {
            let store = directory.path.appending("\(target.lastComponent?.stem ?? "").sqlite")
            #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
            try sqlite(
                store,
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'a'); "
                    + "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 2, 1, 'b')")
            let check = try groupstore("model", "check", Word(store), Word(target), "--json")
            let dry = try groupstore("migrate", Word(store), "--model", Word(target), "--dry-run", "--json")
            let names = #"["A.mapping + B.mapping"]"#
            #expect(check.objects[0].written("mapping_models") == names, "\(check.output)")
            #expect(dry.summary.written("mapping_models") == names, "\(dry.output)")
            #expect(try groupstore("migrate", Word(store), "--model", Word(target)).status == 0)
            #expect(try sqlite(store, "SELECT ZTITLE FROM ZA UNION ALL SELECT ZTITLE FROM ZB") == "a\nb\n")
        }
    }

    /// Two versions have the same hashes. Both commands use the store's cache to identify the version.
    @Test func bothIdentifyTheSameVersion() throws {
        let directory = try TemporaryDirectory()
        let first = Self.entity("A", Self.text)
        let tied = first.replacing("<entity", with: "<entity elementID='Other'")
        let model = try ModelBundle.make(
            in: directory, [("Notes", first), ("Notes 2", tied), ("Notes 3", Self.entity("A", Self.text + Self.value))])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(store, "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'kept')")
        let check = try groupstore("model", "check", Word(store), Word(model), "--json")
        #expect(check.status == 0 && check.objects[0]["removes"] == nil, "\(check.output)")
        let inspected = try groupstore("inspect", Word(store), "--model", Word(model))
        #expect(inspected.output.contains("this store is version Notes\n"), "\(inspected.output)")
        try sqlite(store, "DELETE FROM Z_MODELCACHE")
        for words: [Word] in [
            ["model", "check", Word(store), Word(model), "--json"],
            ["migrate", Word(store), "--model", Word(model), "--dry-run", "--json"],
            ["migrate", Word(store), "--model", Word(model), "--json"],
        ] {
            let done = try run(Programs.groupstore, words)
            #expect(done.status == 65, "\(done.output)")
            #expect(done.output.contains("may be of Notes 2 or Notes"), "\(done.output)")
        }
        #expect(try sqlite(store, "SELECT ZNAME FROM ZA") == "kept\n")
    }

    /// A version saved by Xcode 3 doesn't disable the other versions.
    @Test func aVersionInXcode3sFormatDisablesOnlyItself() throws {
        let directory = try TemporaryDirectory()
        let model = try ModelBundle.make(
            in: directory, [("Notes 2", Self.entity("A")), ("Notes 3", Self.entity("A", Self.value))])
        let outdated = model.appending("Notes.xcdatamodel")
        try run("mkdir", [Word(outdated)])
        for name in ["elements", "layout"] { try write("binary", to: outdated.appending(name)) }
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes 2").status == 0)
        let check = try groupstore("model", "check", Word(store), Word(model), "--json")
        #expect(check.status == 0, "\(check.output)")
        #expect(check.objects.contains { $0.type == "note" && $0.string("version") == "Notes" }, "\(check.output)")
        #expect(try groupstore("migrate", Word(store), "--model", Word(model)).status == 0)
        let asked = try groupstore("migrate", Word(store), "--model", Word(model), "--version", "Notes")
        #expect(asked.status == 65 && asked.errors.contains("in the format of Xcode 3"), "\(asked.errors)")
        // A store that matches no readable version may belong to that version.
        let other = try ModelBundle.make(in: directory, named: "Other", [("Other", Self.entity("B"))])
        let unknown = directory.path.appending("Unknown.sqlite")
        #expect(try groupstore("create", Word(unknown), "--model", Word(other)).status == 0)
        let refused = try groupstore("migrate", Word(unknown), "--model", Word(model))
        #expect(refused.status == 65 && refused.errors.contains("unreadable: Notes ("), "\(refused.errors)")
    }

    /// GitHub identifies a file by its path in the repository, whatever the job's working directory.
    @Test func annotationsNameFilesByTheirPathInTheRepository() throws {
        let directory = try TemporaryDirectory()
        let app = directory.path.appending("App")
        try run("mkdir", [Word(directory.path.appending(".git")), Word(app)])
        let model = try ModelBundle.make(
            in: app, [("Notes", Self.entity("A", Self.value)), ("Notes 2", Self.entity("A"))])
        let done = try groupstore(
            "model", "check", Word(model.appending("Notes.xcdatamodel")), Word(model), "--format", "github")
        #expect(done.output.contains("file=App/Notes.xcdatamodeld/"), "\(done.output)")
    }
}
