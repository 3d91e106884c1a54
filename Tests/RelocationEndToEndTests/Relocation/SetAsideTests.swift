import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of stores that can't be migrated: groupstore refuses them or sets them aside for another store.
@Suite(.ownThreads) struct SetAsideTests {
    @Test func setsNothingAsideByDefault() throws {
        let stores = try ModelStores()
        try stores.makeAlien(stores.legacy)
        let before = try DirectorySnapshot(stores.places.legacy)
        let refused = try stores.relocate()
        #expect(refused.status == 65)
        #expect(refused.outcome == "refused")
        #expect(refused.summary.object("error")?.string("code") == "core_data_134130")
        let planned = try stores.relocate("--dry-run")
        #expect(planned.status == 65)
        let prospect = try stores.relocate("--on-incompatible", "set-aside", "--dry-run")
        #expect(prospect.outcome == "set_aside")
        #expect(try DirectorySnapshot(stores.places.legacy) == before)
        #expect(try DirectorySnapshot(stores.places.group).entries.isEmpty)
        #expect(try stores.archived().isEmpty)
    }

    @Test(arguments: Places.FileSystem.allCases)
    func setsTheLegacyStoreAside(_ fileSystem: Places.FileSystem) throws {
        let stores = try ModelStores(fileSystem)
        let legacy = try stores.makeAlien(stores.legacy)
        try run("chmod", ["0640", Word(legacy.path)])
        let done = try stores.relocate("--on-incompatible", "set-aside")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "set_aside")
        #expect(done.summary.string("method") == "replace")
        #expect(done.summary.string("to_model") == "Notes 2")
        // The old store has no named model version.
        #expect(done.summary["from_model"] == nil)
        let archive = try #require(try stores.archived().first).directory
        #expect(done.summary.string("archive") == archive.string)
        #expect(done.summary.string("reason")?.contains("134130") == true)
        try stores.expectAlienIsArchived()
        #expect(try holdsLinkAlone(stores.places.legacy, to: stores.group))
        // The new store is as `create` makes it, with the old store's mode and none of its external data.
        let inspected = try groupstore("inspect", Word(stores.group), "--model", Word(stores.model))
        #expect(inspected.output.contains("this store is version Notes 2, the current one"))
        #expect(FileStatus(following: stores.group)?.permissions == 0o640)
        #expect(try StoreFiles(stores.group).supportSnapshot() == nil)
        #expect(try sqlite(stores.group, "PRAGMA journal_mode") == "wal\n")

        let again = try stores.relocate("--on-incompatible", "set-aside")
        #expect(again.outcome == "already_relocated")
        let undo = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), "--undo", "--json")
        #expect(undo.status == 65)
        #expect(undo.summary.object("error")?.string("code") == "set_aside")
        // The old store can come back from the archive, with a model that knows it.
        #expect(try stores.archived().count == 1)
    }

    /// The default store is read-only, of the older version, and has its last row in its log.
    @Test func replacesTheGroupStoreByTheDefaultStore() throws {
        let stores = try ModelStores()
        try stores.makeAlien(stores.group)
        let shared = stores.places.scratch("share")
        try run("mkdir", [Word(shared)])
        let fallback = try stores.makeOld(shared.appending("Default.sqlite"), title: "welcome")
        let shell = try sqliteShell(fallback.path)
        try shell.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (2, 1, 1, 'back')")
        try shell.killAtOnce()
        try run("mkdir", [Word(fallback.support)])
        try write("picture", to: fallback.support.appending("P"))
        try run("chmod", ["-R", "a-w", Word(shared)])
        let before = try DirectorySnapshot(shared)

        let done = try stores.relocate("--on-incompatible", "set-aside", "--default-store", Word(fallback.path))
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "set_aside")
        #expect(try stores.captions(stores.group) == "welcome back")
        let published = try StoreFiles(stores.group)
        #expect(try run("cat", [Word(published.support.appending("P"))]).output == "picture")
        #expect(try !Directory(published.support).names().contains("_EXTERNAL_DATA"))
        #expect(FileStatus(following: published.support)?.permissions == 0o755)
        try stores.expectAlienIsArchived()
        #expect(try DirectorySnapshot(shared) == before)
        try run("chmod", ["-R", "u+w", Word(shared)])
    }

    @Test func anUnusableDefaultStoreChangesNothing() throws {
        let stores = try ModelStores()
        try stores.makeAlien(stores.group)
        let other = try stores.makeAlien(stores.places.scratch("Default.sqlite"))
        let before = try DirectorySnapshot(stores.places.group)
        for path in [other.path, stores.group, stores.model, "/nonexistent/Default.sqlite"] {
            let refused = try stores.relocate("--on-incompatible", "set-aside", "--default-store", Word(path))
            #expect(refused.status == 65, "\(path)")
            #expect(refused.summary.object("error")?.string("code") == "bad_default_store", "\(path)")
            #expect(try DirectorySnapshot(stores.places.group) == before)
            #expect(try stores.archived().isEmpty)
        }
    }

    /// Two notes have the same title, which the newer version forbids. The migration finds that when it creates the
    /// index.
    @Test func setsAStoreAsideAfterALateViolation() throws {
        let stores = try ModelStores()
        let scratch = try TemporaryDirectory()
        let unique =
            "<uniquenessConstraints><uniquenessConstraint><constraint value=\"title\"/>"
            + "</uniquenessConstraint></uniquenessConstraints></entity><entity name=\"Tag\">"
        let model = try ModelBundle.make(
            in: scratch,
            [
                ("Notes", ModelStores.old),
                ("Notes 2", ModelStores.old.replacing("</entity>\n<entity name=\"Tag\">", with: unique)),
            ])
        let old = try stores.makeOld(stores.legacy, title: "same", notes: 3)
        let before = try sqlite(old.path, "SELECT * FROM ZNOTE")
        let words: [Word] = ["--model", Word(model), "--json"]
        let snapshot = try DirectorySnapshot(stores.places.legacy)
        let refused = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), options: words)
        #expect(refused.status == 65, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "core_data_134111")
        #expect(try DirectorySnapshot(stores.places.legacy) == snapshot)
        #expect(try stores.archived().isEmpty)

        let done = try groupstore(
            "relocate", Word(stores.legacy), Word(stores.places.group),
            options: words + ["--on-incompatible", "set-aside"])
        #expect(done.outcome == "set_aside", "\(done.output)")
        #expect(done.summary.string("from_model") == "Notes")
        #expect(done.summary.string("reason")?.contains("134111") == true)
        let kept = try #require(try stores.archived().first)
        #expect(try sqlite(kept.path, "SELECT * FROM ZNOTE") == before)
        #expect(try sqlite(stores.group, "SELECT count(*) FROM ZNOTE") == "0\n")
        #expect(try holdsLinkAlone(stores.places.legacy, to: stores.group))
    }

    @Test func refusesInvalidOptions() throws {
        let stores = try ModelStores()
        try stores.makeAlien(stores.legacy)
        let words: [[Word]] = [
            ["--on-incompatible", "set-aside"], ["--model", "M", "--default-store", "D"],
            ["--model", "M", "--on-incompatible", "delete"], ["--journal-mode", "truncate"], ["--mapping", "P"],
        ]
        for options in words {
            let refused = try groupstore("relocate", Word(stores.legacy), Word(stores.places.group), options: options)
            #expect(refused.status == 64, "\(options): \(refused.errors)")
        }
    }

    /// SIGKILL at various moments leaves the old place intact, or the archive and the new store. The next run completes
    /// it.
    @Test(arguments: [true, false])
    func undoesOrCompletesAKilledReplacement(_ isInPlace: Bool) throws {
        let options: [Word] = ["--on-incompatible", "set-aside"]
        var span = Duration.milliseconds(400)
        var interrupted = 0
        for kill in 0..<12 {
            let stores = try ModelStores(kill.isMultiple(of: 2) ? .same : .another)
            let old = try stores.makeAlien(isInPlace ? stores.group : stores.legacy)
            let words: [Word] =
                ["relocate", Word(stores.legacy), Word(stores.places.group), "--model", Word(stores.model)] + options
            let command = try RunningProcess(
                Programs.groupstore, words, environment: ["GROUPSTORE_SOCKET": "/nonexistent"])
            let started = ContinuousClock.now
            if try command.hasEnded(within: span * Double(kill) / 12) {
                span = started.duration(to: .now)
            } else {
                try command.killAtOnce()
                interrupted += 1
            }
            let recovered = try groupstore("recover", Word(stores.places.group))
            #expect(recovered.status == 0, "kill \(kill): \(recovered.errors)")
            if try stores.archived().isEmpty {
                #expect(try sqlite(old.path, "SELECT ZWORD FROM ZALIEN") == "precious\n", "kill \(kill)")
                #expect(try old.supportSnapshot() != nil, "kill \(kill)")
            } else {
                try stores.expectAlienIsArchived("kill \(kill)")
            }
            let again = try stores.relocate("--on-incompatible", "set-aside")
            #expect(again.status == 0, "kill \(kill): \(again.errors)")
            try stores.expectAlienIsArchived("kill \(kill), run again")
            #expect(try sqlite(stores.group, "SELECT count(ZCAPTION) FROM ZNOTE") == "0\n", "kill \(kill)")
            #expect(try StoreFiles(stores.group).supportSnapshot() == nil, "kill \(kill)")
        }
        #expect(interrupted > 0)
    }

    @Test func theAgentSetsAsideIfConfigured() throws {
        let stores = try ModelStores()
        let fallback = try stores.makeOld(stores.places.scratch("Default.sqlite"), title: "welcome")
        let agent = try stores.agent(
            "legacy: [\(stores.legacy)]", "model: \(stores.model)", "on-incompatible: set-aside",
            "default-store: \(fallback.path)", "journal-mode: delete")
        let subscriber = try agent.subscribe("Notes.sqlite")
        let elsewhere = try stores.makeAlien(stores.places.scratch("Notes.sqlite"))
        for part in try elsewhere.parts().reversed() {
            try run("mv", [Word(elsewhere.directory.appending(part)), Word(stores.places.legacy)])
        }
        let relocated = try subscriber.next("relocated", "abandoned")
        #expect(relocated.type == "relocated", "\(relocated.text)")
        let migrated = try subscriber.next("migrated")
        #expect(migrated.string("to_model") == "Notes 2")
        #expect(migrated["from_model"] == nil)
        #expect(try stores.captions(stores.group) == "welcome")
        #expect(try sqlite(stores.group, "PRAGMA journal_mode") == "delete\n")
        #expect(try agent.stop().status == 0)
        try stores.expectAlienIsArchived()
    }
}
