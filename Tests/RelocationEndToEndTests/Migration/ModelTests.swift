import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore model`, on models that a test writes.
@Suite(.ownThreads) struct ModelTests {
    static let note = """
        <entity name="Note" representedClassName="Note" syncable="YES">
            <attribute name="title" optional="YES" attributeType="String"/>
        </entity>
        """

    @Test func printsTheHashesOfEachVersion() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory,
            [("Notes", Self.note), ("Notes 10", "<entity name='A'/>"), ("Notes 9", "<entity name='B'/>")])
        let done = try groupstore("model", "hash", Word(bundle), "--json")
        #expect(done.status == 0, "\(done.errors)")
        let versions = done.objects.filter { $0.type == "version" }
        #expect(versions.map { $0.string("name") } == ["Notes", "Notes 9", "Notes 10"])
        #expect(versions.map { $0.bool("current") } == [false, true, false])
        #expect(done.summary.type == "summary")
        // This is the SHA-256 of: Note, 0, the hash of (the hash of (title, 1), 700).
        #expect(
            versions[0].object("entities")?.string("Note")
                == "4d01245de872354b7203de7090c39da511adf93fd96cc822f0702eff77ba167e")
        #expect(versions[0].string("checksum") == "Nh0EdoDUFZaRhLw8Zk7+7Mu0NiiaPgoeQPPL6I0tBNE=")
        let text = try groupstore("model", "hash", Word(bundle))
        #expect(text.output.contains("Notes 9 (current)\n"))
        let single = try groupstore("model", "hash", Word(bundle.appending("Notes.xcdatamodel")), "--json")
        #expect(single.objects.first?.object("entities") == versions[0].object("entities"))
    }

    @Test func printsTheHashesOfMergedModels() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note)])
        let other = try ModelBundle.make(in: directory, named: "Other", [("Other", "<entity name='Tag'/>")])
        let done = try groupstore("model", "hash", Word(bundle), "--merge", Word(other), "--json")
        #expect(done.objects.first?.object("entities")?.members.map(\.key).sorted() == ["Note", "Tag"])
        let same = try ModelBundle.make(in: directory, named: "Same", [("Same", "<entity name='Note'/>")])
        let refused = try groupstore("model", "hash", Word(bundle), "--merge", Word(same), "--json")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "unmergeable_models")
    }

    @Test(arguments: [
        ("<entity name='A'>\n<attribute name='x' attributeType='Wrong'/></entity>", "contents:4: A.x:"),
        ("<entity name='A'>\n<attribute", "contents:5:"),
        ("<entity name='A'/></model><model>", "contents:"),
    ])
    func refusesAnInvalidModel(_ content: String, _ place: String) throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", content)])
        let done = try groupstore("model", "hash", Word(bundle))
        #expect(done.status == 65)
        #expect(done.errors.contains(place), "\(done.errors)")
        #expect(done.errors.contains("("), "no remedy: \(done.errors)")
    }

    @Test func refusesAMissingModelAndAPlainStore() throws {
        let done = try groupstore("model", "hash", "/nonexistent/Notes.xcdatamodeld")
        #expect(done.status == 74)
        let store = try TemporaryDirectory()
        let plain = try makeStore(store.path.appending("Plain.sqlite"), rows: 1)
        let refused = try groupstore("model", "hash", Word(plain.path))
        #expect(refused.status == 65)
        #expect(refused.errors.contains("isn't a Core Data store"))
    }

    // MARK: show and diff

    @Test func refusesAStoreNameThatSQLiteUsesForItsLog() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note)])
        let store = directory.path.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(bundle)).status == 0)
        let bad = Word(directory.path.appending("Other-wal"))
        for command in [["create", bad] as [Word], ["migrate", Word(store), "--to", bad]] {
            let refused = try groupstore(options: command + ["--model", Word(bundle), "--json"])
            #expect(refused.status == 65, "\(refused.errors)")
            #expect(refused.summary.object("error")?.string("code") == "bad_name")
        }
    }

    @Test func showsAVersion() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note), ("Notes 2", "<entity name='A'/>")])
        let done = try groupstore("model", "show", Word(bundle), "--version", "Notes", "--json")
        #expect(done.objects.map(\.type) == ["version", "entity", "attribute", "summary"])
        #expect(done.objects[2].string("entity") == "Note")
        #expect(done.objects[2].object("aspects")?.string("type") == "String")
        #expect(try groupstore("model", "show", Word(bundle)).output.hasPrefix("Notes 2 (current)\n"))
        #expect(try groupstore("model", "show", Word(bundle), "--version", "Notes 7").status == 65)
    }

    @Test func showsADifference() throws {
        let directory = try TemporaryDirectory()
        let renamed = Self.note.replacing("\"title\"", with: "\"heading\"")
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note), ("Notes 2", renamed)])
        let old = bundle.appending("Notes.xcdatamodel")
        let plain = try groupstore("model", "diff", Word(old), Word(bundle), "--json")
        #expect(plain.status == 0)
        #expect(plain.objects.compactMap { $0.string("change") } == ["removed", "added"])
        let done = try groupstore("model", "diff", Word(old), Word(bundle), "--rename", "Note.title=heading", "--json")
        #expect(done.objects.compactMap { $0.string("change") } == ["renamed"])
        #expect(done.summary.bool("changes_hash") == true)
        for renaming in ["Note.title", "Note.absent=heading", "Note.title=absent"] {
            #expect(try groupstore("model", "diff", Word(old), Word(bundle), "--rename", Word(renaming)).status == 64)
        }
        #expect(try groupstore("model", "diff", Word(old), Word(old), "--json").summary.string("outcome") == "same")
    }

    // MARK: check

    private static let wider = note.replacing(
        "</entity>", with: "<attribute name='n' optional='YES' attributeType='Date'/></entity>")
    private static let retyped = note.replacing("attributeType=\"String\"", with: "attributeType=\"Date\"")

    @Test func checksOneVersionAgainstAnother() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory, [("Notes", Self.note), ("Notes 2", Self.retyped), ("Notes 3", Self.wider)])
        func version(_ name: String) -> Word { Word(bundle.appending(name + ".xcdatamodel")) }
        func check(_ old: Word, _ new: Word) throws -> FinishedProcess {
            try groupstore("model", "check", old, new, "--json")
        }
        let same = try check(version("Notes"), version("Notes"))
        #expect(same.status == 0 && same.outcome == "compatible")
        let inferred = try check(version("Notes"), Word(bundle))
        #expect(inferred.status == 0 && inferred.outcome == "inferred")
        #expect(inferred.objects[0].integer("unmigrated_code") == 134100)
        let refused = try check(version("Notes"), version("Notes 2"))
        #expect(refused.status == 65 && refused.outcome == "refused")
        #expect(refused.objects[0].integer("code") == 134140)
        #expect(refused.objects[0].objects("differing_entities").map { $0.string("entity") } == ["Note"])
        let finding = refused.objects[1]
        #expect(finding.integer("code") == 134190)
        #expect([finding.string("entity"), finding.string("property")] == ["Note", "title"])
        #expect(finding.integer("line") == 4)
        #expect(finding.string("file")?.hasSuffix("Notes 2.xcdatamodel/contents") == true)
        let text = try groupstore("model", "check", version("Notes"), version("Notes 2"))
        #expect(text.status == 65)
        for word in ["134100", "134140", "134190", "Note.title", "older hash"] { #expect(text.output.contains(word)) }
        #expect(text.errors.contains("groupstore: Notes → Notes 2"))
    }

    @Test func checksEveryVersion() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory, [("Notes", Self.note), ("Notes 2", Self.retyped), ("Notes 3", Self.wider)])
        let done = try groupstore("model", "check", "--all", Word(bundle), "--json")
        #expect(done.status == 65)
        let checks = done.objects.filter { $0.type == "check" }
        #expect(checks.map { $0.string("from") } == ["Notes", "Notes 2"])
        #expect(checks.map { $0.string("verdict") } == ["inferred", "refused"])
        #expect(done.summary.integer("refused") == 1)
        let matrix = try groupstore("model", "check", "--all", Word(bundle)).output
        #expect(matrix.hasPrefix("version  to Notes 3"))
        for misuse in [["check", "--all", "a", "b"], ["check", "a"], ["check"]] {
            #expect(try run(Programs.groupstore, ["model"] + misuse.map { Word($0) }).status == 64)
        }
    }

    @Test func annotatesForGitHub() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory, named: "100%, all", [("Notes", Self.note), ("Notes 2", Self.retyped)])
        let done = try groupstore("model", "check", "--all", Word(bundle), "--format", "github")
        #expect(done.status == 65)
        let line = try #require(done.lines.first { $0.hasPrefix("::error ") })
        #expect(
            line.contains(
                "100%25%2C all.xcdatamodeld/Notes 2.xcdatamodel/contents,line=4,title=Notes → Notes 2 (134190)::"))
        #expect(line.contains("::Note.title: Source and destination attribute types are incompatible"))
    }

    /// A store without a model belongs to the version with its hashes.
    @Test func checksAStore() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note), ("Notes 2", Self.wider)])
        let store = directory.path.appending("Notes.sqlite")
        let hashes = try groupstore("model", "hash", Word(bundle.appending("Notes.xcdatamodel")), "--json").objects[0]
        try makeCoreDataStore(store, hash: hashes.object("entities")?.string("Note") ?? "")
        let done = try groupstore("model", "check", Word(store), Word(bundle), "--json")
        #expect(done.status == 0, "\(done.errors)\(done.output)")
        #expect(done.outcome == "inferred")
        #expect(done.objects[0].object("metadata")?.string("NSStoreUUID") == "UUID")
        try run("rm", [Word(store)])
        try makeCoreDataStore(store, hash: String(repeating: "00", count: 32))
        let unknown = try groupstore("model", "check", Word(store), Word(bundle), "--json")
        #expect(unknown.status == 65)
        #expect(unknown.objects[0].integer("code") == 134130)
    }

    @Test func inspectNamesTheVersion() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note), ("Notes 2", Self.wider)])
        let hashes = try groupstore("model", "hash", Word(bundle.appending("Notes.xcdatamodel")), "--json").objects[0]
        let store = directory.path.appending("Notes.sqlite")
        try makeCoreDataStore(store, hash: hashes.object("entities")?.string("Note") ?? "")
        let done = try groupstore("inspect", Word(store), "--model", Word(bundle), "--json")
        #expect(done.summary.type == "summary")
        let version = try #require(done.objects.first { $0.type == "model_version" })
        #expect(version.string("version") == "Notes" && version.bool("current") == false)
        let text = try groupstore("inspect", Word(store), "--model", Word(bundle)).output
        #expect(text.hasSuffix("this store is version Notes\n"))
        let other = try ModelBundle.make(in: directory, named: "Other", [("Other", "<entity name='A'/>")])
        #expect(try groupstore("inspect", Word(store), "--model", Word(other)).output.contains("no version of"))
        #expect(try groupstore("inspect", Word(store), "--model", Word(store)).status == 64)
    }

    /// The store's rows decide if a mandatory attribute makes the migration fail.
    @Test(arguments: [
        ("INSERT INTO ZNOTE VALUES (1, 1, 1, 'a'), (2, 1, 1, 'b')", true, nil),
        ("INSERT INTO ZNOTE VALUES (1, 1, 1, 'a'), (2, 1, 1, NULL), (3, 1, 1, NULL)", false, "in 2 objects"),
    ])
    func checksAStoresRows(_ rows: String, _ isAccepted: Bool, _ word: String?) throws {
        let directory = try TemporaryDirectory()
        let mandatory = Self.note.replacing("optional=\"YES\" ", with: "")
        let bundle = try ModelBundle.make(in: directory, [("Notes", Self.note), ("Notes 2", mandatory)])
        let hashes = try groupstore("model", "hash", Word(bundle.appending("Notes.xcdatamodel")), "--json").objects[0]
        let store = directory.path.appending("Notes.sqlite")
        try makeCoreDataStore(store, hash: hashes.object("entities")?.string("Note") ?? "")
        try run("sqlite3", [Word(store), Word(rows)])
        let before = try DirectorySnapshot(directory.path)
        let done = try groupstore("model", "check", Word(store), Word(bundle), "--json")
        #expect(try DirectorySnapshot(directory.path) == before)
        #expect(done.status == (isAccepted ? 0 : 65), "\(done.output)\(done.errors)")
        let findings = done.objects.filter { $0.type == "finding" }
        #expect(findings.count == (isAccepted ? 0 : 1))
        if let word {
            #expect(done.objects[0].integer("code") == 134110)
            #expect(findings[0].string("severity") == "error")
            #expect(findings[0].string("message")?.contains(word) == true)
        }
        // The models alone don't decide it.
        let models = try groupstore("model", "check", "--all", Word(bundle), "--json")
        #expect(models.status == 0 && models.summary.integer("warnings") == 1)
    }

    private func makeCoreDataStore(_ path: FilePath, hash: String) throws {
        try run(
            "python3",
            [
                "-c",
                """
                import plistlib, sqlite3, sys
                store = sqlite3.connect(sys.argv[1])
                store.executescript('CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID, Z_PLIST BLOB);'
                    'CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME, Z_SUPER INTEGER, Z_MAX INTEGER);'
                    'CREATE TABLE ZNOTE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTITLE VARCHAR)')
                plist = plistlib.dumps({'NSStoreModelVersionHashes': {'Note': bytes.fromhex(sys.argv[2])}})
                store.execute('INSERT INTO Z_METADATA VALUES (1, ?, ?)', ('UUID', plist))
                store.commit()
                """, Word(path), Word(hash),
            ])
    }

    @Test func warnsOfADefaultOfAnotherTypeAndCreatesTheStore() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory,
            [
                (
                    "Run",
                    "<entity name='Lap'><attribute name='id' optional='YES' attributeType='UUID' defaultValueString='none'/></entity>"
                )
            ])
        let store = directory.path.appending("Lap.sqlite")
        for words: [Word] in [
            ["model", "hash", Word(bundle)], ["model", "show", Word(bundle)],
            ["create", Word(store), "--model", Word(bundle)],
        ] {
            let done = try run(Programs.groupstore, words)
            #expect(
                done.status == 0 && done.errors.contains("Lap.id: the default “none” is not a value"), "\(done.errors)")
            #expect(!done.output.contains("none"))
        }
        let check = try groupstore("model", "check", Word(store), Word(bundle), "--json")
        #expect(check.objects.contains { $0.string("property") == "id" && $0.string("severity") == "warning" })
    }

    @Test func printsAMappingModelAsItCanBeRead() throws {
        let directory = try TemporaryDirectory()
        let bundle = try ModelBundle.make(
            in: directory,
            [("Notes", Self.note), ("Notes 2", Self.note.replacing("title\" ", with: "name\" elementID=\"title\" "))])
        let models: [Word] = ["Notes", "Notes 2"].map { Word(bundle.appending("\($0).xcdatamodel")) }
        let made = try groupstore("model", "mapping", "create", options: models)
        #expect(
            made.status == 0 && made.output.contains("\n      name: $source.title\n"), "\(made.output)\(made.errors)")
        let file = directory.path.appending("Notes.mapping.yaml")
        try write(made.output, to: file)
        let forms: [([Word], String)] = [
            ([], "again.yaml"),
            (["--format", "xcode", "--old", models[0], "--new", models[1]], "again.xcmappingmodel"),
        ]
        for (options, name) in forms {
            let shown = try groupstore("model", "mapping", "show", Word(file), options: options)
            #expect(shown.status == 0 && !shown.output.contains("\\u{"), "\(shown.output)\(shown.errors)")
            let again = directory.path.appending(name)
            try write(shown.output, to: again)
            let checked = try groupstore("model", "mapping", "check", Word(again), options: models)
            #expect(checked.status == 0, "\(checked.output)\(checked.errors)")
        }
    }
}
