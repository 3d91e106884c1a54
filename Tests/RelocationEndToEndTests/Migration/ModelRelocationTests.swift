import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Relocations with a model: by the command, beside an agent and by the agent.
@Suite(.ownThreads) struct ModelRelocationTests {
    @Test(arguments: Places.FileSystem.allCases, ["wal", "delete"])
    func setsTheRequestedJournalMode(_ fileSystem: Places.FileSystem, _ mode: String) throws {
        for (model, hadWAL) in [(false, false), (false, true), (true, true), (true, false)] {
            let stores = try ModelStores(fileSystem)
            try stores.makeOld(stores.legacy)
            try sqlite(stores.legacy, "PRAGMA journal_mode = \(hadWAL ? "wal" : "delete")")
            let options: [Word] = model ? ["--model", Word(stores.model)] : []
            let words: [Word] = ["--journal-mode", Word(mode), "--json"] + options
            let done = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), options: words)
            #expect(done.outcome == "relocated", "\(done.errors)")
            #expect(try sqlite(stores.group, "PRAGMA journal_mode") == mode + "\n")
            guard !model else { continue }
            // A relocation that is undone leaves the original state.
            let undone = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), "--undo", "--json")
            #expect(undone.outcome == "undone", "\(undone.errors)")
            #expect(try sqlite(stores.legacy, "PRAGMA journal_mode") == (hadWAL ? "wal\n" : "delete\n"))
        }
    }

    @Test func setsTheRequestedJournalModeAfterAMigration() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let other = stores.places.scratch("Other.sqlite")
        let words: [Word] = ["migrate", Word(stores.group), "--model", Word(stores.model), "--journal-mode", "delete"]
        #expect(try run(Programs.groupstore, words + ["--to", Word(other)]).status == 0)
        #expect(try run(Programs.groupstore, words).status == 0)
        for path in [other, stores.group] {
            #expect(try sqlite(path, "PRAGMA journal_mode") == "delete\n")
            #expect(try stores.captions(path) == "old")
        }
    }

    /// The configuration has no legacy store and no directory for one.
    @Test func migratesTheGroupsOwnStore() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let words: [Word] = ["--model", Word(stores.model), "--json"]
        let planned = try groupstore(
            "relocate", "/nonexistent/Notes.sqlite", Word(stores.places.group), options: words)
        #expect(planned.outcome == "migrated", "\(planned.errors)")
        #expect(planned.summary.string("from_model") == "Notes")
        #expect(try stores.captions(stores.group) == "old")
        let again = try stores.relocate()
        #expect(again.outcome == "nothing_to_do")
    }

    /// An inferred mapping would drop the values that the mapping model was to keep. The store isn't set aside: whether
    /// it can be migrated is another question.
    @Test func refusesAMappingModelForOtherVersionsOnEachWay() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.legacy)
        let mapping = stores.places.scratch("other.map")
        try write(
            "mapping: 1\nsource: Notes\ndestination: Notes 9\nentities:\n  - {from: Note, to: Note}\n", to: mapping)
        let before = try DirectorySnapshot(stores.places.legacy)
        let with: [Word] = ["--mapping", Word(mapping), "--json"]
        let model: [Word] = ["--model", Word(stores.model)] + with
        let ways: [[Word]] = [
            ["migrate", Word(stores.legacy)] + model, ["migrate", Word(stores.legacy), "--dry-run"] + model,
            ["relocate", Word(stores.legacy), Word(stores.places.group), "--on-incompatible", "set-aside"] + model,
            ["model", "check", Word(stores.legacy), Word(stores.model)] + with,
            ["model", "check", "--all", Word(stores.model)] + with,
        ]
        for words in ways {
            let done = try run(
                Programs.groupstore, words, environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
            #expect(done.status == 65 && done.output.contains("it leads from Notes to Notes 9"), "\(done.output)")
        }
        #expect(try DirectorySnapshot(stores.places.legacy) == before)
    }

    /// `--rename` supplies the renaming identifiers that the model lacks. Without them the migration would lose the
    /// rows of `ZTAG`.
    @Test(arguments: [true, false]) func appliesRenamingsDuringARelocation(_ isRenamed: Bool) throws {
        let stores = try ModelStores()
        let scratch = try TemporaryDirectory()
        let new = ModelStores.old.replacing("\"title\"", with: "\"caption\"").replacing("\"Tag\"", with: "\"Label\"")
        let model = try ModelBundle.make(in: scratch, [("Notes", ModelStores.old), ("Notes 2", new)])
        try stores.makeOld(stores.legacy, title: "kept")
        try sqlite(
            stores.legacy,
            "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZWORD) VALUES (1, 2, 1, 'word'); INSERT INTO Z_1TAGS VALUES (1, 1)")
        let renamings: [Word] = ["--rename", "Note.title=caption", "--rename", "Tag=Label"]
        let before = try DirectorySnapshot(stores.places.legacy)
        let wrong = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(model), "--json", "--rename",
            "Note.nothing=caption")
        #expect(wrong.status == 65, "\(wrong.output)")
        #expect(wrong.summary.object("error")?.string("code") == "bad_renaming")
        #expect(try DirectorySnapshot(stores.places.legacy) == before)
        let done = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(model), "--json",
            options: isRenamed ? renamings : [])
        #expect(done.outcome == "relocated", "\(done.output)")
        #expect(done.summary.string("to_model") == "Notes 2")
        #expect(try stores.captions(stores.group) == (isRenamed ? "kept" : ""))
        let words = try sqlite(stores.group, "SELECT (SELECT group_concat(ZWORD) FROM ZLABEL)").trimmed
        #expect(words == (isRenamed ? "word" : ""))
    }

    @Test func logsValuesAtLevelThree() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.legacy)
        let trace = stores.places.scratch("trace")
        let done = try stores.relocate("--trace-sql", Word(trace), "--trace-level", "3")
        #expect(done.status == 0, "\(done.errors)")
        let lines = try run("cat", [Word(trace)]).output.split(separator: "\n")
        #expect(lines.count > 3)
        #expect(lines.contains { $0.contains(" ms  ") && $0.contains("ZNOTE") })
        #expect(!lines.contains { $0.contains("VALUES (?") })

        let other = try ModelStores()
        try other.makeOld(other.legacy)
        let plain = try other.relocate("--trace-sql", "-")
        #expect(plain.errors.split(separator: "\n").contains { $0.contains(" ms  ") && $0.contains("?") })
        #expect(try stores.relocate("--trace-sql", "-", "--trace-level", "4").status == 64)
    }

    @Test func inspectReportsEntitiesObjectsAndRelationships() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.legacy, notes: 3)
        let text = try groupstore("inspect", Word(stores.legacy), "--model", Word(stores.model)).output
        #expect(text.contains("this store is version Notes\n"))
        #expect(
            text.contains(/Note\.tags +→ Tag +to-many, optional, inverse notes, delete rule Nullify/))
        // The columns are the number, the highest key and the number of objects.
        #expect(text.contains(#/ 1 +3 +3 +Note +[0-9a-f]{64}/#))
        let lines = try groupstore("inspect", Word(stores.legacy), "--json").objects
        let note = try #require(lines.first { $0.type == "entity" && $0.string("name") == "Note" })
        #expect(note.integer("objects") == 3)
        let tags = try #require(note.objects("relationships").first)
        #expect(tags.string("destination") == "Tag")
        #expect(tags.bool("to_many") == true)
        #expect(tags.string("inverse") == "notes")
        #expect(tags.string("delete_rule") == "Nullify")

        // The configuration names this model for the store.
        let home = stores.places.scratch("home")
        try run("mkdir", ["-p", Word(home.appending("groupstore"))])
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(stores.places.group)
                stores: [{ name: Notes.sqlite, legacy: [\(stores.legacy)], model: \(stores.model) }]
            """, to: home.appending("groupstore/config.yaml"))
        let found = try groupstore(
            "inspect", Word(stores.legacy), environment: ["XDG_CONFIG_HOME": home.string])
        #expect(found.output.contains("this store is version Notes\n"), "\(found.errors)")
    }

    // MARK: With an agent

    /// The agent has no model of its own. It uses the command's model and mapping models, and asks presenters.
    @Test func theAgentMigratesToTheCommandsModel() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let mapping = stores.places.scratch("loud.yaml")
        try write(Self.appendingMapping, to: mapping)
        let agent = try stores.agent()
        let subscriber = try agent.subscribe("Notes.sqlite")
        let traced = try stores.relocate("--trace-sql", "-", environment: agent.environment)
        #expect(traced.summary.object("error")?.string("code") == "agent_serves")
        let done = try stores.relocate(
            "--mapping", Word(mapping), "--journal-mode", "delete", environment: agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "migrated")
        #expect(done.objects.contains { $0.type == "progress" })
        #expect(try subscriber.next("migrated").string("from_model") == "Notes")
        #expect(try stores.captions(stores.group) == "old!")
        #expect(try sqlite(stores.group, "PRAGMA journal_mode") == "delete\n")
        #expect(try agent.stop().status == 0)
    }

    static let appendingMapping = """
        mapping: 1
        source: Notes
        destination: Notes 2
        entities:
          - from: Note
            to: Note
            attributes:
              caption: FUNCTION($source.title, "stringByAppendingString:", "!")
          - from: Tag
            to: Tag

        """

    @Test func usesTheConfiguredMappingModels() throws {
        let stores = try ModelStores()
        let mapping = stores.places.scratch("loud.yaml")
        try write(Self.appendingMapping, to: mapping)
        try stores.makeOld(stores.legacy)
        let agent = try stores.agent(
            "legacy: [\(stores.legacy)]", "model: \(stores.model)", "mappings: [\(mapping)]")
        let subscriber = try agent.subscribe("Notes.sqlite")
        if FileStatus(following: stores.group) == nil { try subscriber.next("relocated") }
        try awaitRetirement(of: StoreFiles(stores.legacy), agent)
        #expect(try stores.captions(stores.group) == "old!")
        #expect(try agent.stop().status == 0)
    }

    /// There is no legacy store. The agent migrates the group's own store once no program has it open.
    @Test func theAgentMigratesAnIdleGroupStore() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let shell = try sqliteShell(stores.group)
        let agent = try stores.agent("model: \(stores.model)")
        let subscriber = try agent.subscribe("Notes.sqlite")
        try shell.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (2, 1, 1, 'late')")
        try subscriber.next("relocating")
        shell.closeInput()
        #expect(try subscriber.next("migrated").string("to_model") == "Notes 2")
        #expect(try stores.captions(stores.group) == "old late")
        // The store matches the model now, so other programs may open and close it.
        try sqlite(stores.group, "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZCAPTION) VALUES (3, 1, 1, 'new')")
        try subscriber.next("change")
        #expect(try agent.stop().status == 0)
        #expect(try stores.captions(stores.group) == "old late new")
    }

    @Test func aPresenterRelinquishesForTheMigrationOfTheGroupStore() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let first = try stores.agent()
        let presenter = try first.connect()
        try presenter.present(models: nil)
        let shell = try sqliteShell(stores.group)
        let command = try RunningProcess(
            Programs.groupstore,
            ["relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(stores.model), "--json"],
            environment: first.environment)
        let asked = try presenter.next("relinquish")
        shell.closeInput()
        try shell.wait()
        try presenter.send(["op": "relinquished", "claim": asked["claim"] ?? .null])
        try presenter.next("reacquire")
        let done = try command.wait()
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "migrated")
        #expect(try stores.captions(stores.group) == "old")
        #expect(try first.stop().status == 0)
    }

    /// The declared versions are asked before any presenter, at a legacy place too.
    @Test(arguments: ["wal", "delete"]) func aPresenterThatIsLockedOutIsNotAsked(_ mode: String) throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.legacy)
        try sqlite(stores.legacy, "PRAGMA journal_mode = \(mode)")
        let agent = try stores.agent()
        let presenter = try agent.connect()
        try presenter.present(models: ["Notes"])
        let refused = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(stores.model), "--json",
            environment: agent.environment)
        #expect(refused.summary.object("error")?.string("code") == "presenter_locked_out", "\(refused.output)")
        // The next line is the answer to this request: no question came before it.
        try presenter.send(["id": 3, "op": "status"])
        let next = try presenter.next { $0["id"] == .integer(3) || $0.type == "relinquish" }
        #expect(next.type != "relinquish")
        #expect(try sqlite(stores.legacy, "SELECT ZTITLE FROM ZNOTE").trimmed == "old")
    }

    /// A presenter states its model by the version's name, identifier or checksum. A presenter that states none can
    /// open all versions.
    @Test func doesNotMigrateBeyondAPresentersVersions() throws {
        let stores = try ModelStores()
        try stores.makeOld(stores.group)
        let hashes = try groupstore("model", "hash", Word(stores.model), "--json").objects
        let checksum = try #require(hashes.first { $0.string("name") == "Notes 2" }?.string("checksum"))
        let agent = try stores.agent()
        let presenter = try agent.connect()
        let before = try DirectorySnapshot(stores.places.group)
        let number = try presenter.present(models: ["Notes", "Notes 1"])
        for options: [Word] in [[], ["--dry-run"], ["--on-incompatible", "set-aside"]] {
            let refused = try groupstore(
                "relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(stores.model), "--json",
                options: options, environment: agent.environment)
            #expect(refused.status == 75, "\(refused.output)")
            let error = try #require(refused.summary.object("error"))
            #expect(error.string("code") == "presenter_locked_out")
            #expect(error.string("message")?.contains("only of Notes, Notes 1") == true)
            #expect(refused.summary.objects("holders").isEmpty == false)
            #expect(try DirectorySnapshot(stores.places.group) == before)
        }
        try presenter.send(["op": "unpresent", "presenter": .string(number)])
        try presenter.next { $0.bool("ok") == true }
        try presenter.present(models: ["Notes", checksum])
        let command = try RunningProcess(
            Programs.groupstore,
            ["relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(stores.model), "--json"],
            environment: agent.environment)
        let asked = try presenter.next("relinquish")
        try presenter.send(["op": "relinquished", "claim": asked["claim"] ?? .null])
        let done = try command.wait()
        #expect(done.outcome == "migrated", "\(done.errors)")
        #expect(try agent.stop().status == 0)
    }
}

extension WireConnection {
    /// Presents Notes.sqlite. Returns the presenter's number.
    @discardableResult
    fileprivate func present(models: [String]?) throws -> String {
        var request: JSONObject = ["id": 9, "op": "present", "store": .string("\(AgentProcess.group)/Notes.sqlite")]
        if let models { request["models"] = .array(models.map { .string($0) }) }
        try send(request)
        let reply = try next { $0["id"] == .integer(9) }
        guard let number = reply.string("presenter") else { throw Unexpected(reply.text) }
        return number
    }
}
