import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Several models merged wherever a model is taken, and configurations.
@Suite(.ownThreads) struct MergedModelTests {
    private let directory: TemporaryDirectory
    private let store: FilePath
    private var models: [Word] = []

    private static func entity(_ name: String, _ attribute: String, _ more: String = "") -> String {
        "<entity name='\(name)'><attribute name='\(attribute)' optional='YES' attributeType='String' \(more)/></entity>"
    }

    /// Three bundles of two versions each, and a store of the first version of each.
    init() throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("stores/All.sqlite")
        try run("mkdir", [Word(directory.path.appending("stores"))])
        var first: [Word] = []
        for (name, entity) in [("Notes", "Note"), ("Tags", "Tag"), ("Users", "User")] {
            let bundle = try ModelBundle.make(
                in: directory, named: name,
                [
                    (name, Self.entity(entity, "old")),
                    (name + " 2", Self.entity(entity, "new", "elementID='old'")),
                ])
            models += ["--model", Word(bundle)]
            first += ["--model", Word(bundle.appending(name + ".xcdatamodel"))]
        }
        #expect(try groupstore(options: ["create", Word(store)] + first).status == 0)
        try sqlite(
            store,
            """
            INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZOLD) VALUES (1, 1, 1, 'n');
            INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZOLD) VALUES (1, 2, 1, 't');
            INSERT INTO ZUSER (Z_PK, Z_ENT, Z_OPT, ZOLD) VALUES (1, 3, 1, 'u');
            UPDATE Z_PRIMARYKEY SET Z_MAX = 1
            """)
    }

    private func rows(_ path: FilePath) throws -> String {
        try sqlite(
            path, "SELECT (SELECT ZNEW FROM ZNOTE) || (SELECT ZNEW FROM ZTAG) || (SELECT ZNEW FROM ZUSER)")
    }

    @Test func migratesAStoreOfThreeBundles() throws {
        let one = try groupstore(options: ["migrate", Word(store), "--dry-run", "--json"] + models.prefix(2))
        #expect(one.status == 65, "a store of three models isn't one of the first")
        let checked = try groupstore(options: ["model", "check", Word(store), "--json"] + models)
        #expect(checked.status == 0, "\(checked.errors)")
        let done = try groupstore(options: ["migrate", Word(store), "--json"] + models)
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.summary.string("from_model") == "Notes + Tags + Users")
        #expect(done.summary.string("to_model") == "Notes 2 + Tags 2 + Users 2")
        #expect(try rows(store) == "ntu\n")
    }

    @Test func relocatesAStoreOfThreeBundlesWithAMadeMapping() throws {
        let mapping = directory.path.appending("All.mapping.yaml")
        let new = directory.path.appending("new.sqlite")
        #expect(try groupstore(options: ["create", Word(new)] + models).status == 0)
        let made = try groupstore("model", "mapping", "create", Word(store), Word(new), "--to", Word(mapping))
        #expect(made.status == 0, "\(made.errors)")
        let text = try run("cat", [Word(mapping)]).output
        #expect(text.contains("new: $source.old\n"))
        try write(
            text.replacing(
                "new: $source.old\n", with: "new: FUNCTION($source.old, \"stringByAppendingString:\", \"!\")\n"),
            to: mapping)
        let group = directory.path.appending("group")
        try run("mkdir", [Word(group)])
        let done = try groupstore(
            options: ["relocate", Word(store), Word(group), "--mapping", Word(mapping), "--json"] + models)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try rows(group.appending("All.sqlite")) == "n!t!u!\n")
    }

    @Test func refusesABackwardCombination() throws {
        let newer = directory.path.appending("stores/Newer.sqlite")
        #expect(try groupstore(options: ["create", Word(newer)] + models).status == 0)
        let older = models.enumerated().map { index, word in
            index == 1 ? Word(directory.path.appending("Notes.xcdatamodeld/Notes.xcdatamodel")) : word
        }
        let back = try groupstore(options: ["migrate", Word(newer), "--dry-run"] + older)
        #expect(back.status == 65, "\(back.output)")
    }

    @Test func namesAClash() throws {
        let other = try ModelBundle.make(in: directory, named: "Other", [("Other", Self.entity("Note", "different"))])
        for command in [["model", "hash"], ["model", "show"], ["model", "check", "--all"]] as [[Word]] {
            let refused = try groupstore(options: command + models + ["--model", Word(other)])
            #expect(refused.status == 65)
            #expect(
                refused.errors.contains("Note: two models have different entities of this name"), "\(refused.errors)")
            #expect(refused.errors.contains("Other.xcdatamodeld (Other)"))
        }
    }

    @Test func migratesAStoreOfOneConfiguration() throws {
        let drafts = "<configuration name='Local'><memberEntity name='Draft'/></configuration>"
        let bundle = try ModelBundle.make(
            in: directory, named: "Split",
            [
                ("Split", Self.entity("Draft", "old") + Self.entity("Note", "x") + drafts),
                ("Split 2", Self.entity("Draft", "new", "elementID='old'") + Self.entity("Note", "x") + drafts),
            ])
        let local = directory.path.appending("stores/Local.sqlite")
        let made = try groupstore(
            "create", Word(local), "--model", Word(bundle), "--version", "Split", "--configuration", "Local")
        #expect(made.status == 0, "\(made.errors)")
        try sqlite(
            local,
            "INSERT INTO ZDRAFT (Z_PK, Z_ENT, Z_OPT, ZOLD) VALUES (1, 1, 1, 'd'); UPDATE Z_PRIMARYKEY SET Z_MAX = 1")
        #expect(try groupstore("migrate", Word(local), "--model", Word(bundle)).status == 65)
        let done = try groupstore("migrate", Word(local), "--model", Word(bundle), "--configuration", "Local")
        #expect(done.status == 0, "\(done.errors)")
        #expect(try sqlite(local, "SELECT ZNEW FROM ZDRAFT") == "d\n")
        let wrong = try groupstore("migrate", Word(local), "--model", Word(bundle), "--configuration", "Remote")
        #expect(wrong.status == 65)
        #expect(wrong.errors.contains("name one of: Local"))
    }
}
