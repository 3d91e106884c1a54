import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite(.ownThreads) struct GroupCommandTests {
    private let user: UserAccount
    private var directory: FilePath { user.containers.appending("group.a") }

    init() throws { user = try UserAccount() }

    private var exists: Bool { FileStatus(following: directory) != nil }

    @Test func createsTheStandardDirectoryOnce() throws {
        let made = try user.command("group", "create", "group.a", "--json")
        #expect(made.status == 0 && made.outcome == "created")
        #expect(made.summary.string("directory") == directory.string)
        #expect(FileStatus(following: directory)?.permissions == 0o700)
        #expect(FileStatus(following: user.containers)?.permissions == 0o700)
        let again = try user.command("group", "create", "group.a", "--json")
        #expect(again.status == 0 && again.outcome == "exists")
    }

    /// A program makes the same directory as the command, but none inside a Flatpak: it would be gone with the app.
    @Test func aProgramMakesTheSameDirectory() throws {
        func created(_ identifier: Word, _ environment: [String: String] = [:]) throws -> String? {
            try run(
                Programs.claimWorker, ["--create", identifier],
                environment: user.environment.merging(environment) { $1 }
            ).lines.first
        }
        #expect(try created("group.a", ["FLATPAK_ID": "com.example.App"])?.hasPrefix("no_container: ") == true)
        #expect(!exists)
        #expect(try created("../a")?.hasPrefix("bad_identifier: ") == true)
        for _ in 0..<2 { #expect(try created("group.a") == directory.string) }
        #expect(FileStatus(following: directory)?.permissions == 0o700)
        #expect(try user.command("group", "create", "group.a", "--json").outcome == "exists")
        try write("in its place", to: user.containers.appending("group.b"))
        let refused = try created("group.b")
        #expect(
            refused?.hasPrefix("no_container: ") == true && refused?.contains("group.b") == true, "\(refused ?? "")")
    }

    @Test func showsTheProgramsDirectoriesThatWereMovedThere() throws {
        #expect(try user.command("group", "create", "group.a").status == 0)
        let app = user.scratch("app")
        try run("mkdir", [Word(app)])
        try makeStore(app.appending("Notes.sqlite"), rows: 1)
        #expect(try user.command("move-app", Word(app), "group.a").status == 0)
        let shown = try user.command("group", "show", "group.a", "--json")
        let moved = try #require(shown.objects.first { $0.type == "moved_app" })
        #expect(moved.string("path") == directory.appending("app").string, "\(moved.text)")
        #expect(moved.string("from") == app.string && moved.integer("stores") == 2)
        #expect(shown.summary.integer("stores") == 0 && shown.summary.integer("apps") == 1)
        let listed = try user.command("group", "list")
        #expect(listed.output.contains("0 stores, 1 app"), "\(listed.output)")
        #expect(try user.command("move-app", "--undo", Word(app)).status == 0)
        let left = try user.command("group", "show", "group.a", "--json")
        #expect(!left.objects.contains { $0.type == "moved_app" })
    }

    @Test func createsTheConfiguredDirectory() throws {
        let place = user.scratch("elsewhere")
        try write("groups: [{ id: group.a, directory: \(place) }]\n", to: user.vendorDropIns.appending("a.yaml"))
        #expect(try user.command("group", "create", "group.a").status == 0)
        #expect(FileStatus(following: place)?.kind == .directory && !exists)
        let listed = try user.command("group", "list", "--json")
        #expect(listed.objects.first?.string("directory") == place.string)
        #expect(listed.objects.first?.bool("configured") == true)
    }

    @Test(arguments: ["../x", "a/b", ".hidden", "группа", "a b"])
    func refusesWhatIsNoIdentifier(_ name: String) throws {
        for command in ["create", "show", "remove"] as [Word] {
            #expect(try user.command("group", command, Word(name)).status == 64)
        }
        #expect(FileStatus(following: user.containers) == nil)
    }

    @Test func listsAndShowsGroups() throws {
        #expect(try user.command("group", "list").output.contains("no groups"))
        #expect(try user.command("group", "show", "group.a").status == 74)
        try user.command("group", "create", "group.a")
        try user.command("group", "create", "group.b")
        try makeStore(directory.appending("Notes.sqlite"), rows: 1)
        let listed = try user.command("group", "list", "--json").objects
        #expect(listed.filter { $0.type == "group" }.compactMap { $0.integer("stores") } == [1, 0])
        let shown = try user.command("group", "show", "group.a", "--json")
        #expect(shown.status == 0 && shown.summary.string("mode") == "0700", "\(shown.output)")
        #expect(shown.objects.first { $0.type == "file" }?.string("name") == "Notes.sqlite")
        #expect(try user.command("group", "show", "group.a").output.contains("Notes.sqlite"))
    }

    @Test func removesAGroupWithoutContent() throws {
        try user.command("group", "create", "group.a")
        try write("", to: directory.appending("Empty.sqlite"))
        let would = try user.command("group", "remove", "group.a", "--dry-run", "--json")
        #expect(would.status == 0 && would.outcome == "would_remove" && exists)
        let removed = try user.command("group", "remove", "group.a", "--json")
        #expect(removed.status == 0 && removed.outcome == "removed" && !exists, "\(removed.errors)")
        #expect(try Directory(user.containers).names().isEmpty)
        #expect(try user.command("group", "remove", "group.a").status == 74)
    }

    @Test func deletesAStoreOnlyWhenAskedExplicitly() throws {
        try user.command("group", "create", "group.a")
        let store = directory.appending("Notes.sqlite")
        try makeStore(store, rows: 2, unflushed: true)
        let before = try DirectorySnapshot(directory)
        let refused = try user.command("group", "remove", "group.a")
        #expect(refused.status == 73)
        for name in ["Notes.sqlite", "Notes.sqlite-wal", ".Notes_SUPPORT", "--delete-stores"] {
            #expect(refused.errors.contains(name), "\(refused.errors)")
        }
        let would = try user.command("group", "remove", "group.a", "--dry-run", "--json")
        #expect(would.status == 0 && would.outcome == "not_empty")
        #expect(try DirectorySnapshot(directory) == before)
        let removed = try user.command("group", "remove", "group.a", "--delete-stores", "--json")
        #expect(removed.status == 0 && !exists, "\(removed.errors)")
        #expect(removed.objects.contains { $0.string("path") == store.string })
        #expect(try Directory(user.containers).names().isEmpty)
    }

    @Test func keepsArchivedStoresToo() throws {
        try user.command("group", "create", "group.a")
        let legacy = user.scratch("Old.sqlite")
        try makeStore(legacy, rows: 2)
        let done = try user.command("relocate", Word(legacy), Word(directory), "--retire", "archive")
        #expect(done.status == 0, "\(done.errors)")
        try run("sh", ["-c", "rm -rf \(Word(directory))/Old* \(Word(directory))/.Old*"])
        let refused = try user.command("group", "remove", "group.a")
        #expect(refused.status == 73 && refused.errors.contains(".groupstore/archive"), "\(refused.errors)")
    }

    @Test func keepsAStoreThatAProgramHasOpen() throws {
        try user.command("group", "create", "group.a")
        let store = directory.appending("Notes.sqlite")
        try makeStore(store, rows: 2)
        let shell = try sqliteShell(store)
        try shell.execute("SELECT count(*) FROM note")
        let refused = try user.command("group", "remove", "group.a", "--delete-stores")
        #expect(refused.status == 75 && refused.errors.contains("sqlite3 (pid \(shell.pid))"), "\(refused.errors)")
        shell.closeInput()
        try shell.wait()
        #expect(try noteCount(store) == 2)
    }

    /// The agent follows the store, and lets go of it.
    @Test func removesAGroupThatAnAgentServes() throws {
        try user.command("group", "create", "group.a")
        let store = directory.appending("Notes.sqlite")
        try makeStore(store, rows: 2, unflushed: true)
        let agent = try user.agent()
        let connection = try WireConnection(user.socket)
        try connection.send(["id": 1, "op": "subscribe", "store": "group.a/Notes.sqlite"])
        #expect(try connection.next { $0["id"] == .integer(1) }.bool("ok") == true)
        let removed = try user.command("group", "remove", "group.a", "--delete-stores")
        #expect(removed.status == 0, "\(removed.errors)")
        #expect(try connection.next("reset").string("reason") == "vanished")
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
    }

    @Test func leavesASymbolicLinkAlone() throws {
        let target = user.scratch("target")
        try run("mkdir", ["-p", Word(target), Word(user.containers)])
        try write("content", to: target.appending("file"))
        try run("ln", ["-s", Word(target), Word(directory)])
        #expect(try user.command("group", "remove", "group.a", "--delete-stores").status == 74)
        #expect(FileStatus(following: target.appending("file"))?.size == 7)
    }

    /// Links in a group lead to somebody else's files.
    @Test func followsNoLinkOutOfTheGroup() throws {
        try user.command("group", "create", "group.a")
        let outside = user.scratch("outside")
        try run("mkdir", [Word(outside)])
        try write("content", to: outside.appending("file"))
        try run("ln", ["-s", Word(outside), Word(directory.appending("link"))])
        #expect(try user.command("group", "remove", "group.a").status == 0)
        #expect(FileStatus(following: outside.appending("file"))?.size == 7 && !exists)
    }

    @Test func relocateTakesAShortForm() throws {
        try user.command("group", "create", "group.a")
        let old = user.home.pushing("snap/notes/common")
        try run("mkdir", ["-p", Word(old)])
        try makeStore(old.appending("Notes.sqlite"), rows: 2)
        let done = try user.command("relocate", "snap:notes/common/Notes.sqlite", Word(directory), "--json")
        #expect(done.status == 0 && done.outcome == "relocated", "\(done.output)")
        #expect(done.summary.string("from") == old.appending("Notes.sqlite").string)
        let wrong = try user.command("relocate", "snap:notes/Notes.sqlite", Word(directory), "--json")
        #expect(wrong.status == 65 && wrong.errors.contains("snap:notes/common/"), "\(wrong.errors)")
    }
}
