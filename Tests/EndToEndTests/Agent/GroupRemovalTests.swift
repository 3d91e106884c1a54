import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The removal of a group beside programs that use it, and one that is killed.
@Suite(.ownThreads) struct GroupRemovalTests {
    private let user: UserAccount
    private var directory: FilePath { user.containers.appending("group.a") }
    private var store: FilePath { directory.appending("Notes.sqlite") }

    init() throws {
        user = try UserAccount()
        try user.command("group", "create", "group.a")
    }

    /// Starts the command, and slows down or kills it at one of its system calls.
    private func remove(_ injection: String, _ options: [Word] = []) throws -> RunningProcess {
        let call = String(injection.prefix { $0 != ":" })
        let strace: [Word] = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=\(call)", "-e", "inject=\(injection)"]
        return try RunningProcess(
            "strace", strace + [Programs.groupstore, "group", "remove", "group.a"] + options,
            environment: user.environment)
    }

    private func names() throws -> [String] { try Directory(user.containers).names().map(\.string).sorted() }

    /// The names of all files with content under the containers' directory, but for locks and records.
    private func contents() throws -> [String] {
        let records: [Word] = ["-not", "-name", "*.json*", "-not", "-name", "lock"]
        let found = try run(
            "find", [Word(user.containers), "-type", "f", "-size", "+0"] + records + ["-printf", "%f\n"])
        return found.lines.sorted()
    }

    private func waitUntil(_ condition: () -> Bool) throws {
        let deadline = Deadline(after: .ample)
        while !condition() {
            guard !deadline.hasPassed else { throw Unexpected("the command didn't get there") }
            pause(.milliseconds(1))
        }
    }

    @Test func namesTheWayBackOfAProgramThatWasMovedThere() throws {
        let app = user.scratch("app")
        try run("mkdir", [Word(app)])
        try makeStore(app.appending("z.sqlite"), rows: 1)
        #expect(try user.command("move-app", Word(app), "group.a").status == 0)
        let refused = try user.command("group", "remove", "group.a", "--json")
        let hint = try #require(refused.summary.object("error")?.string("hint"), "\(refused.output)")
        let command = "groupstore move-app --undo \(directory.appending("app"))"
        #expect(refused.status == 73 && hint.contains(": \(command); or delete it for good: "), "\(hint)")
        #expect(try user.command("move-app", "--undo", Word(directory.appending("app"))).status == 0)
        #expect(try noteCount(app.appending("z.sqlite")) == 1)
        #expect(try user.command("group", "remove", "group.a").status == 0)
        #expect(FileStatus(following: directory) == nil)
    }

    /// By its name alone, a directory isn't one that was moved there.
    @Test func namesNoWayBackOfAnotherDirectory() throws {
        let app = user.scratch("app")
        try run("mkdir", [Word(app)])
        try makeStore(app.appending("z.sqlite"), rows: 1)
        #expect(try user.command("move-app", Word(app), "group.a").status == 0)
        try run("mv", [Word(directory.appending("app")), Word(user.scratch("taken"))])
        try run("mkdir", [Word(directory.appending("app"))])
        try makeStore(directory.pushing("app/z.sqlite"), rows: 1)
        let refused = try user.command("group", "remove", "group.a", "--json")
        #expect(refused.status == 73 && !refused.output.contains("move-app"), "\(refused.output)")
    }

    @Test func leavesADirectoryWithTheNameOfALeftover() throws {
        for name in [".group.a.removed", ".group.a.removing-1-a", ".group.a.removing-1-a.records"] {
            let other = user.containers.appending(name)
            try run("mkdir", [Word(other)])
            try makeStore(other.appending("z.sqlite"), rows: 1)
        }
        let before = try contents()
        #expect(try user.command("group", "remove", "group.a", "--delete-stores").status == 0)
        #expect(try contents() == before && before.count >= 3)
    }

    @Test func keepsAStoreThatComesBeforeTheRename() throws {
        let removal = try remove("renameat2:delay_enter=500000:when=1")
        // The record is written, and the directory is about to be renamed.
        let record = directory.pushing(".groupstore-removal/removal.json")
        try waitUntil { FileStatus(following: record) != nil }
        try makeStore(store, rows: 2)
        let refused = try removal.wait()
        #expect(refused.status == 73 && refused.errors.contains("Notes.sqlite"), "\(refused.errors)")
        #expect(try noteCount(store) == 2)
        #expect(try names() == ["group.a"])
        #expect(FileStatus(following: directory.appending(".groupstore-removal")) == nil)
    }

    /// A process that has the directory open still makes files in it when it has lost its name.
    @Test(arguments: [[], ["--delete-stores"]] as [[Word]])
    func keepsAFileThatComesAfterTheRename(_ options: [Word]) throws {
        try write("", to: directory.appending("empty"))
        if !options.isEmpty { try makeStore(store, rows: 2) }
        let held = try Directory(directory)
        let removal = try remove("renameat2:delay_enter=500000:when=2", options)
        try waitUntil { FileStatus(following: directory) == nil }
        try DurableFile.write(Array("acknowledged".utf8), as: "Late", in: held, mode: 0o600)
        let refused = try removal.wait()
        #expect([73, 75].contains(refused.status) && refused.errors.contains("Late"), "\(refused.errors)")
        #expect(FileStatus(following: directory.appending("Late"))?.size == 12)
        #expect(try names() == ["group.a"])
    }

    @Test func keepsAStoreThatIsOpenInASubdirectory() throws {
        try run("mkdir", [Word(directory.appending("sub"))])
        let store = directory.pushing("sub/Notes.sqlite")
        try makeStore(store, rows: 2)
        let shell = try sqliteShell(store)
        try shell.execute("BEGIN IMMEDIATE; INSERT INTO note (text) VALUES ('third'); COMMIT")
        let refused = try user.command("group", "remove", "group.a", "--delete-stores")
        #expect(refused.status == 75 && refused.errors.contains("sqlite3 (pid \(shell.pid))"), "\(refused.errors)")
        shell.closeInput()
        try shell.wait()
        #expect(try noteCount(store) == 3)
        #expect(try user.command("group", "remove", "group.a", "--delete-stores").status == 0)
    }

    /// Not every file in the records' place is a record.
    @Test(arguments: ["receipts", "claims"]) func keepsAStoreAmongTheRecords(_ place: String) throws {
        let records = directory.pushing(FilePath(".groupstore/\(place)"))
        try run("mkdir", ["-p", Word(records)])
        try makeStore(records.appending("a.json"), rows: 1)
        let refused = try user.command("group", "remove", "group.a")
        #expect(refused.status == 73 && refused.errors.contains(".groupstore/\(place)"), "\(refused.errors)")
        #expect(try noteCount(records.appending("a.json")) == 1)
    }

    /// Kills the command at its renames and removals, runs it again without consent, which must lose nothing, and then
    /// with it, which must leave nothing.
    @Test(arguments: ["renameat2", "unlinkat"]) func aKilledRemovalIsTakenUp(_ call: String) throws {
        var kills = 0
        // Every second rename and every eighth removal is tried.
        for number in stride(from: 1, through: 60, by: call == "renameat2" ? 2 : 8) {
            try user.command("group", "create", "group.a")
            try run("mkdir", [Word(directory.appending("sub"))])
            try makeStore(store, rows: 2)
            try makeStore(directory.pushing("sub/Other.sqlite"), rows: 1)
            try run("mkdir", ["-p", Word(directory.pushing(".groupstore/receipts"))])
            try write("{}", to: directory.pushing(".groupstore/receipts/a.json"))
            let killed = try remove("\(call):signal=KILL:when=\(number)", ["--delete-stores"]).wait()
            guard killed.status != 0 else { break }
            kills += 1
            let left = try contents()
            let again = try user.command("group", "remove", "group.a")
            #expect(try contents() == left, "\(call) \(number): \(again.output)\(again.errors)")
            #expect(
                left.isEmpty ? [0, 74].contains(again.status) : again.status == 73, "\(call) \(number): \(again.errors)"
            )
            #expect(try names() == (left.isEmpty ? [] : ["group.a"]), "\(call) \(number)")
            if !left.isEmpty {
                #expect(FileStatus(following: directory.pushing(".groupstore/receipts/a.json")) != nil)
                #expect(try user.command("group", "remove", "group.a", "--delete-stores").status == 0)
                #expect(try names().isEmpty)
            }
        }
        #expect(kills > 2)
    }

    /// A removal that is killed while it writes its record has moved nothing.
    @Test(arguments: ["", "{", "{\n  \"id\" : \"a", "\0\0"]) func clearsAwayAnUnfinishedRecord(_ text: String) throws {
        let aside = directory.appending(".groupstore-removal")
        for isAgent in [true, false] {
            try run("mkdir", ["-m", "0700", Word(aside)])
            try write(text, to: aside.appending("removal.json.new"))
            if isAgent {
                let agent = try user.agent()
                try waitUntil { FileStatus(following: aside) == nil }
                agent.signal(SIGTERM)
                try agent.wait()
            } else {
                let done = try user.command("group", "remove", "group.a")
                #expect(done.status == 0, "\(done.errors)")
            }
        }
        #expect(try names().isEmpty)
    }

    /// If another directory has the group's name meanwhile, what is left isn't touched, and both are named.
    @Test func namesWhatIsLeftIfTheNameIsTaken() throws {
        try makeStore(store, rows: 2)
        #expect(try remove("renameat2:signal=KILL:when=2", ["--delete-stores"]).wait().status != 0)
        let left = try #require(try names().first)
        #expect(left.hasPrefix(".group.a.removing-"))
        let shown = try user.command("group", "show", "group.a")
        #expect(shown.errors.contains(left) && shown.errors.contains("group remove group.a"), "\(shown.errors)")
        try user.command("group", "create", "group.a")
        let removed = try user.command("group", "remove", "group.a", "--delete-stores")
        #expect(removed.status == 0 && removed.output.contains(left), "\(removed.output)")
        #expect(try contents().contains("Notes.sqlite"))
        // Its name is free now.
        #expect(try user.command("group", "remove", "group.a").status == 73)
        #expect(try noteCount(store) == 2)
    }
}
