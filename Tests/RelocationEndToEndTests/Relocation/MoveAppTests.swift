import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore move-app` from outside.
@Suite(.ownThreads) struct MoveAppTests {
    /// Makes a program's directory with a store whose rows are in its log.
    private func makeApp(_ places: Places) throws -> FilePath {
        let app = places.legacy.appending("app")
        try run("mkdir", ["-p", Word(app.appending("sub"))])
        try makeStore(app.appending("Notes.sqlite"), rows: 9, unflushed: true)
        try write("text", to: app.pushing("sub/file"))
        return app
    }

    private func isLink(_ path: FilePath) throws -> Bool {
        try Directory(path.removingLastComponent()).status(path.lastComponent ?? ".")?.kind == .symbolicLink
    }

    @Test(arguments: Places.FileSystem.allCases)
    func movesThereAndBack(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let app = try makeApp(places)
        let moved = places.group.appending("app")
        let plan = try groupstore("move-app", Word(app), Word(moved), "--dry-run", "--json")
        #expect(plan.summary.bool("dry_run") == true)
        #expect(plan.outcome == "would_move")
        #expect(try Directory(places.group).names() == [])
        let done = try groupstore("move-app", Word(app), Word(moved), "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "moved")
        #expect(done.summary.string("method") == (fileSystem == .same ? "rename" : "copy"))
        #expect(done.summary.integer("stores") == 2)
        #expect(try isLink(app))
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(try noteCount(moved.appending("Notes.sqlite")) == 9)
        #expect(try groupstore("move-app", Word(app), Word(moved), "--json").outcome == "already_moved")
        let undoing = try groupstore("move-app", "--undo", "--dry-run", Word(app), "--json")
        #expect(undoing.outcome == "would_undo", "\(undoing.errors)")
        #expect(undoing.summary.string("method") == (fileSystem == .same ? "rename" : "copy"))
        #expect(try isLink(app))
        let undone = try groupstore("move-app", "--undo", Word(app), "--json")
        #expect(undone.outcome == "undone", "\(undone.errors)")
        #expect(try !isLink(app))
        #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
        #expect(FileStatus(following: moved) == nil)
        #expect(try Directory(places.group).names() == [])
        for paths in [[Word(app)], [Word(moved)], [Word(app), Word(moved)], [Word(app), Word(moved), "--dry-run"]] {
            let again = try groupstore("move-app", "--undo", "--json", options: paths)
            #expect(again.status == 0 && again.outcome == "nothing_to_do", "\(again.errors)")
        }
        #expect(try Directory(places.group).names() == [])
    }

    /// A stranger's file has the name of the group's lock.
    @Test(arguments: Places.FileSystem.allCases)
    func keepsAStrangersFileInTheDirectoryOfRecords(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let app = try makeApp(places)
        let lock = places.group.pushing(".groupstore/lock")
        try run("mkdir", [Word(places.group.appending(".groupstore"))])
        try write("precious", to: lock)
        let moved = places.group.appending("app")
        #expect(try groupstore("move-app", Word(app), Word(moved), "--json").outcome == "moved")
        #expect(try groupstore("move-app", "--undo", Word(app), "--json").outcome == "undone")
        #expect(try run("cat", [Word(lock)]).output == "precious")
    }

    /// The journal can't be written, and nothing of ours stays.
    @Test(.enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
    func aFullDiskLeavesNothingOfOurs() throws {
        let places = try Places()
        let (app, tiny) = (try makeApp(places), places.scratch("tiny"))
        let script = """
            mkdir '\(tiny)' && mount -t tmpfs -o size=64k tmpfs '\(tiny)' || exit 1
            dd if=/dev/zero of='\(tiny)/fill' bs=1k count=64 2>/dev/null
            mkdir '\(app)/small'
            '\(Programs.groupstore)' move-app '\(app)/small' '\(tiny)' --json
            ls -A '\(tiny)'
            """
        let refused = try run("unshare", ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script)])
        #expect(refused.output.contains(#""code":"no_space""#), "\(refused.output)\(refused.errors)")
        #expect(refused.output.split(separator: "\n").dropFirst() == ["fill"], "\(refused.output)")
        #expect(try !isLink(app.appending("small")))
    }

    @Test func movesIntoADirectoryThatExists() throws {
        let places = try Places()
        let app = try makeApp(places)
        let done = try groupstore("move-app", Word(app), Word(places.group), "--json")
        #expect(done.summary.string("to") == places.group.appending("app").string, "\(done.errors)")
        #expect(try groupstore("move-app", Word(app), Word(places.group), "--json").outcome == "already_moved")
        #expect(try groupstore("move-app", "--undo", Word(app), Word(places.group), "--json").outcome == "undone")
    }

    @Test(arguments: [
        (["nowhere", "new"], 74, "no_source"), (["app/Notes.sqlite", "new"], 74, "not_a_directory"),
        (["app", "app/sub/new"], 74, "inside"), (["app", "missing/new"], 74, "no_group_directory"),
        (["app", "taken"], 73, "destination_taken"), (["--undo", "nowhere", "new"], 74, "no_receipt"),
    ])
    func refusesWithACodeAndChangesNothing(_ words: [String], _ status: Int32, _ code: String) throws {
        let places = try Places()
        _ = try makeApp(places)
        try write("", to: places.legacy.appending("taken"))
        let before = try DirectorySnapshot(places.legacy)
        let paths = words.map { $0.hasPrefix("-") ? Word($0) : Word(places.legacy.pushing(FilePath($0))) }
        let refused = try groupstore("move-app", "--json", options: paths)
        #expect(refused.status == status, "\(refused.errors)")
        #expect(refused.summary.object("error")?.string("code") == code)
        #expect(try DirectorySnapshot(places.legacy) == before)
    }

    @Test(.enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
    func aMountInsideOrAFullDiskChangesNothing() throws {
        let places = try Places()
        let app = try makeApp(places)
        try run("mkdir", [Word(places.scratch("tiny"))])
        let before = try DirectorySnapshot(places.legacy)
        for (mount, code) in [
            ("mount -t tmpfs tmpfs '\(app)/sub'", "mount_point"),
            ("mount -t tmpfs -o size=8k tmpfs '\(places.scratch("tiny"))'", "no_space"),
            ("mount -t tmpfs -o nr_inodes=7 tmpfs '\(places.scratch("tiny"))'", "no_space"),
        ] {
            let words = "'\(Programs.groupstore)' move-app '\(app)' '\(places.scratch("tiny"))/a' --json"
            for option in [" --dry-run", ""] {
                let script = "\(mount) || exit 1; \(words)\(option)"
                let refused = try run("unshare", ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script)])
                #expect(refused.status == 74, "\(refused.output)\(refused.errors)")
                #expect(refused.summary.object("error")?.string("code") == code, "\(refused.output)")
            }
            // A store that was locked for the copy may have got its log's rows.
            let after = try DirectorySnapshot(places.legacy)
            #expect(after.entries.filter(isOther) == before.entries.filter(isOther))
            #expect(try noteCount(app.appending("Notes.sqlite")) == 9)
            #expect(try Directory(places.scratch("tiny")).names() == [])
        }
    }

    @Test func anUndoTellsWhichPathsItCouldNotGiveBack() throws {
        let places = try Places()
        let app = try makeApp(places)
        let moved = places.group.appending("app")
        let store = Word(app.appending("paths.db"))
        let sql = "CREATE TABLE p (id INTEGER PRIMARY KEY, path); INSERT INTO p VALUES (1, '\(app)/x')"
        try run("sqlite3", [store, Word(sql)])
        let rewrite: Word = "--rewrite=\(app)=\(moved)"
        #expect(try groupstore("move-app", Word(app), Word(moved), rewrite).status == 0)
        try run("sqlite3", [store, "ALTER TABLE p RENAME COLUMN path TO place"])
        let undone = try groupstore("move-app", "--undo", Word(app), "--json")
        #expect(undone.status == 65)
        #expect(undone.outcome == "undone")
        #expect(undone.summary.integer("left") == 1)
        let left = try #require(undone.objects.first { $0.type == "left" })
        #expect(left.string("column") == "path")
        #expect(left.string("reason") == "column")
        #expect(try !isLink(app))
    }

    @Test func movesByARecipeOfTheUser() throws {
        let places = try Places()
        let app = try makeApp(places)
        let directory = places.scratch("config").pushing("groupstore/apps.d")
        try run("mkdir", ["-p", Word(directory)])
        let recipe = """
            {recipe: 1, name: notes, about: Notes, stores: [Notes.sqlite], leave: [sub/], rewrite: yes,
            after: [{store: Notes.sqlite, table: note}]}
            """
        try write(recipe, to: directory.appending("notes.yaml"))
        let variables = ["XDG_CONFIG_HOME": places.scratch("config").string, "XDG_DATA_DIRS": "/nonexistent"]
        func groupstore(_ words: Word...) throws -> FinishedProcess {
            try run(Programs.groupstore, words + ["--json"], environment: variables)
        }
        let listed = try groupstore("app", "recipes")
        #expect(listed.objects.first?.string("name") == "notes", "\(listed.output)\(listed.errors)")
        let checked = try groupstore("app", "check", "notes", Word(app))
        #expect(checked.objects.first { $0.type == "check" }?.integer("rows") == 9, "\(checked.output)")
        #expect(try groupstore("app", "check", "notes", Word(places.group)).status == 65)
        let moved = places.group.appending("app")
        let done = try groupstore("move-app", Word(app), Word(moved), "--recipe", "notes")
        #expect(done.outcome == "moved" && done.summary.string("method") == "copy", "\(done.output)\(done.errors)")
        #expect(done.objects.first { $0.type == "check" }?.integer("rows") == 9)
        #expect(try Directory(moved.appending("sub")).names() == [])
        try write("{recipe: 1,\nnome: x}", to: directory.appending("broken.yaml"))
        let broken = try groupstore("app", "recipes")
        #expect(broken.status == 65 && broken.errors.contains("broken.yaml:2: unknown key nome"), "\(broken.errors)")
    }

    @Test func theRecipesOfThePackageAreValid() throws {
        let place = CodeBlock.root.pushing("Packaging/apps.d")
        let names = try Directory(place).names()
        #expect(names.count >= 17)
        for name in names {
            let checked = try groupstore("app", "check", Word(place.appending(name)), "--json")
            #expect(checked.outcome == "valid", "\(checked.errors)")
            #expect(checked.summary.string("name") == name.stem)
        }
    }

    /// Each recipe with its program, as far as the programs are installed.
    @Test(.soak) func theRecipesSuitTheirPrograms() throws {
        let tester = Programs.source("Tests/Recipes/recipes.py")
        let done = try run("python3", [tester, Programs.groupstore, "--installed"], within: .ample)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }

    private func isOther(_ entry: (key: [UInt8], value: DirectorySnapshot.Entry)) -> Bool {
        !String(decoding: entry.key, as: UTF8.self).hasPrefix("app/Notes.sqlite")
    }

    /// A bounded sample of `script/soak apps`. `$GROUPSTORE_SEED` selects the points.
    @Test(.soak, .enabled(if: Programs.canTrace, "needs ptrace(2)"))
    func survivesKillsAndErrors() throws {
        let seed = getenv("GROUPSTORE_SEED").map { String(cString: $0) } ?? "1"
        let tester = Programs.source("Tests/Soak/apps.py")
        let done = try run(
            "python3", [tester, Programs.groupstore, "--sample", "6", "--kills", "12", "--seed", Word(seed)],
            within: .ample)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }
}
