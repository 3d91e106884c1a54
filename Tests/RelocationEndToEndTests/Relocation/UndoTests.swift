import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `groupstore relocate --undo`, which takes back a relocation if nobody has written to the store since.
@Suite(.ownThreads) struct UndoTests {
    private func undo(_ store: FilePath, _ places: Places) throws -> FinishedProcess {
        try groupstore("relocate", Word(store), Word(places.group), "--undo", "--json", "--deadline", "2")
    }

    private func relocate(_ store: FilePath, _ places: Places, _ more: Word...) throws {
        let done = try run(
            Programs.groupstore, ["relocate", Word(store), Word(places.group), "--json"] + more,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
    }

    @Test(arguments: Places.FileSystem.allCases, ["delete", "archive", "symlink"])
    func returnsTheStoreToItsOldLocation(_ fileSystem: Places.FileSystem, _ retirement: Word) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20, unflushed: true)
        let content = try store.dump()
        let support = try store.supportSnapshot()
        try relocate(store.path, places, "--retire", retirement)

        let undone = try undo(store.path, places)
        #expect(undone.status == 0, "\(undone.output)\(undone.errors)")
        #expect(undone.outcome == "undone")
        #expect(try store.dump() == content)
        #expect(try store.supportSnapshot() == support)
        #expect(try sqlite(store.path, "PRAGMA journal_mode") == "wal\n")
        #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .regular)
        #expect(try Directory(places.group).names() == [".groupstore"])
        let receipts = try Directory(places.group.appending(".groupstore")).directory("receipts")
        #expect(try receipts.names().isEmpty)
        // The store can be relocated again, as if for the first time.
        try relocate(store.path, places)
    }

    @Test(arguments: ["WAL", "DELETE"])
    func refusesAStoreWrittenSince(_ mode: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20, unflushed: mode == "WAL")
        try relocate(store.path, places)
        let published = places.group.appending("Notes.sqlite")
        // In WAL mode, such a commit doesn't change the header's change counter.
        try sqlite(published, "UPDATE note SET text = 'changed' WHERE id = 1")
        let before = try DirectorySnapshot(places.group)
        let refused = try undo(store.path, places)
        #expect(refused.status == 65, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "written_since")
        #expect(try DirectorySnapshot(places.group) == before)
        #expect(try holdsLinkAlone(places.legacy, to: published))
    }

    @Test func refusesToReplaceANewLegacyStore() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        try relocate(store.path, places, "--retire", "delete")
        try makeStore(store.path, rows: 3)
        let refused = try undo(store.path, places)
        #expect(refused.status == 73, "\(refused.output)")
        #expect(try noteCount(store.path) == 3)
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 20)
    }

    /// The remedy for a store that was written since leaves records in the program's own directory. They don't make it
    /// a group's: it can be moved as a whole, and back.
    @Test(arguments: [true, false]) func aDirectoryThatAStoreCameBackToCanStillBeMoved(_ isUndone: Bool) throws {
        let places = try Places()
        let app = places.scratch("app")
        try run("mkdir", [Word(app)])
        let store = try makeStore(app.appending("Notes.sqlite"), rows: 20)
        let published = places.group.appending("Notes.sqlite")
        try relocate(store.path, places)
        try sqlite(published, "INSERT INTO note (text) VALUES ('later')")
        let refused = try undo(store.path, places)
        let error = try #require(refused.summary.object("error"))
        #expect(error.string("code") == "written_since", "\(refused.output)")
        let command = try #require(error.string("hint")?.split(separator: ": ", maxSplits: 1).last)
        #expect(command == "groupstore relocate \(published) \(app)")
        #expect(try groupstore("relocate", Word(published), Word(app)).status == 0)
        if isUndone {
            #expect(try groupstore("relocate", Word(published), Word(app), "--undo").status == 0)
            #expect(try Directory(app).names() == [".groupstore", "Notes.sqlite"])
        }
        let moved = places.group.appending("app")
        let done = try groupstore("move-app", Word(app), Word(moved), "--json")
        #expect(done.outcome == "moved", "\(done.output)")
        if !isUndone {
            #expect(try noteCount(app.appending("Notes.sqlite")) == 21)
            // The receipt has moved along, and the link leads to it.
            #expect(try groupstore("relocate", Word(published), Word(app), "--undo").status == 0)
        }
        #expect(try noteCount(published) == 21)
        let back = try groupstore("move-app", "--undo", Word(app), "--json")
        #expect(back.outcome == "undone", "\(back.output)")
        #expect(try Directory(app).names() == [".groupstore", "Notes.sqlite"])
    }

    /// A group's receipts name its own place, and so do its archived stores.
    @Test(arguments: [[], ["--retire", "archive"]] as [[Word]]) func aGroupIsNotMovedAsAnApp(_ options: [Word]) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        #expect(try groupstore("relocate", Word(store.path), Word(places.group), options: options).status == 0)
        let refused = try groupstore("move-app", Word(places.group), Word(places.scratch("elsewhere")), "--json")
        #expect(refused.summary.object("error")?.string("code") == "own_directory", "\(refused.output)")
    }

    @Test func refusesAnOpenStoreAndAMissingReceipt() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        #expect(try undo(store.path, places).summary.object("error")?.string("code") == "no_receipt")
        #expect(try Directory(places.group).names().isEmpty)
        try relocate(store.path, places)
        let shell = try sqliteShell(places.group.appending("Notes.sqlite"))
        #expect(try undo(store.path, places).status == 75)
        shell.closeInput()
        try shell.wait()
        #expect(try undo(store.path, places).status == 0)
    }

    @Test func refusesAStoreThatAnAgentWouldRelocateAgain() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        try relocate(store.path, places)
        let agent = try AgentProcess(places, legacy: [store.path])
        let refused = try run(
            Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--undo", "--json"],
            environment: agent.environment)
        #expect(refused.status == 75)
        #expect(refused.summary.object("error")?.string("code") == "agent_serves")
        #expect(try agent.stop().status == 0)
    }

    /// So does the relocation that leads there all the same; also its dry run.
    @Test(arguments: [true, false]) func refusesTheOldPlaceWhileAnAgentWouldRelocateFromIt(_ isDryRun: Bool) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        try relocate(store.path, places)
        let agent = try AgentProcess(places, legacy: [store.path])
        let published = places.group.appending("Notes.sqlite")
        let refused = try run(
            Programs.groupstore,
            ["relocate", Word(published), Word(places.legacy), "--json"] + (isDryRun ? ["--dry-run"] : []),
            environment: agent.environment)
        #expect(refused.status == 75)
        #expect(refused.summary.object("error")?.string("code") == "agent_serves", "\(refused.output)")
        #expect(try noteCount(published) == 5)
        // Any other place is free.
        let elsewhere = try run(
            Programs.groupstore,
            ["relocate", Word(published), Word(places.legacy), "--name", "Other.sqlite", "--json"],
            environment: agent.environment)
        #expect(elsewhere.outcome == "relocated", "\(elsewhere.output)")
        #expect(try agent.stop().status == 0)
    }

    /// The receipt names the link's target; people name the link.
    @Test(arguments: ["delete", "symlink"])
    func returnsAStoreThatWasNamedThroughALink(_ retirement: Word) throws {
        let places = try Places()
        let real = places.legacy.appending("app.sqlite")
        let content = try makeStore(real, rows: 20).dump()
        let link = places.scratch("app.sqlite")
        try run("ln", ["-s", "legacy/app.sqlite", Word(link)])
        try relocate(link, places, "--retire", retirement)
        let undone = try undo(link, places)
        #expect(undone.status == 0, "\(undone.output)\(undone.errors)")
        #expect(undone.summary.string("to") == real.string)
        #expect(try StoreFiles(real).dump() == content)
        #expect(try run("readlink", [Word(link)]).lines == ["legacy/app.sqlite"])
    }

    @Test func worksThroughAnAgentAndALink() throws {
        let places = try Places()
        let real = places.legacy.appending("app.sqlite")
        try makeStore(real, rows: 20)
        let link = places.scratch("app.sqlite")
        try run("ln", ["-s", Word(real), Word(link)])
        let agent = try AgentProcess(places, legacy: [])
        for arguments: [Word] in [[], ["--undo"]] {
            let done = try run(
                Programs.groupstore, ["relocate", Word(link), Word(places.group), "--json"] + arguments,
                environment: agent.environment)
            #expect(done.status == 0, "\(done.output)\(done.errors)")
        }
        #expect(try noteCount(real) == 20)
        #expect(try agent.stop().status == 0)
    }

    /// An agent that would relocate the link's target again refuses, too.
    @Test func refusesThroughALinkWhatAnAgentWouldRelocateAgain() throws {
        let places = try Places()
        let real = places.legacy.appending("app.sqlite")
        try makeStore(real, rows: 20)
        let link = places.scratch("app.sqlite")
        try run("ln", ["-s", Word(real), Word(link)])
        try relocate(link, places)
        let agent = try AgentProcess(places, legacy: [real])
        let refused = try run(
            Programs.groupstore, ["relocate", Word(link), Word(places.group), "--undo", "--json"],
            environment: agent.environment)
        #expect(refused.summary.object("error")?.string("code") == "agent_serves", "\(refused.output)")
        #expect(try agent.stop().status == 0)
    }

    @Test func namesTheCommandThatDoesWhatUndoCanNot() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("My notes.sqlite"), rows: 20)
        try relocate(store.path, places)
        // From another place than it came from.
        let other = places.scratch("My notes.sqlite")
        let wrong = try undo(other, places).summary.object("error")?.string("hint") ?? ""
        #expect(wrong.contains("groupstore relocate '\(store.path)' \(places.group) --undo"), "\(wrong)")
        try sqlite(places.group.appending("My notes.sqlite"), "DELETE FROM note WHERE id = 1")
        let hint = try undo(store.path, places).summary.object("error")?.string("hint") ?? ""
        let command = try #require(hint.split(separator: ": ", maxSplits: 1).last.map(String.init))
        let words = command.replacing("groupstore ", with: "\(Programs.groupstore) ", maxReplacements: 1)
        let done = try run(
            "bash", ["-c", Word(words)], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0, "\(command): \(done.errors)")
        #expect(try noteCount(store.path) == 19)
    }

    /// The remedy for a store that was written since; the link goes, or is replaced by one in the other direction.
    @Test(arguments: Places.FileSystem.allCases, [false, true])
    func returnsAStoreOverTheLinkThatItsRelocationLeft(
        _ fileSystem: Places.FileSystem, _ leavesAnotherLink: Bool
    ) throws {
        let name: Word = leavesAnotherLink ? "Shared.db" : "Notes.sqlite"
        let retirement: Word = leavesAnotherLink ? "symlink" : "delete"
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        try relocate(store.path, places, "--retire", "symlink", "--name", name)
        try sqlite(store.path, "DELETE FROM note WHERE id = 1")
        let hint = try undo(store.path, places).summary.object("error")?.string("hint") ?? ""
        let command = try #require(hint.split(separator: ": ", maxSplits: 1).last.map(String.init))
        let words = command.replacing("groupstore ", with: "\(Programs.groupstore) ", maxReplacements: 1)
        let done = try run(
            "bash", ["-c", Word("\(words) --retire \(retirement)")],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0, "\(command): \(done.errors)")
        #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .regular)
        #expect(try noteCount(store.path) == 19)
        let published = places.group.appending(FilePath.Component(bytes: name.bytes) ?? "Notes.sqlite")
        #expect(try Directory(places.group).names().allSatisfy { !"\($0)".contains("-link") })
        if leavesAnotherLink {
            #expect(try run("readlink", [Word(published)]).lines == [store.path.string])
            #expect(try noteCount(published) == 19)
        } else {
            #expect(FileStatus(following: published) == nil)
        }
        // Undone, all is as before the return.
        let undone = try groupstore("relocate", Word(published), Word(places.legacy), "--undo", "--json")
        #expect(undone.outcome == "undone", "\(undone.output)\(undone.errors)")
        #expect(try Directory(places.group).status(.init(bytes: name.bytes) ?? "")?.kind == .regular)
        #expect(try run("readlink", [Word(store.path)]).lines == [published.string])
        #expect(try noteCount(store.path) == 19)
    }

    /// Killed at each rename and each link, it is finished or undone by the next run.
    @Test(
        .enabled(if: Programs.canTrace, "strace can't trace here"), arguments: ["renameat2", "symlinkat"],
        Places.FileSystem.allCases)
    func aKilledReturnOverALinkIsTakenUp(_ call: String, _ fileSystem: Places.FileSystem) throws {
        var kills = 0
        for number in 1...20 {
            let places = try Places(fileSystem)
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
            try relocate(store.path, places, "--retire", "symlink")
            try sqlite(store.path, "DELETE FROM note WHERE id = 1")
            let published = places.group.appending("Notes.sqlite")
            let words: [Word] = [
                Programs.groupstore, "relocate", Word(published), Word(places.legacy), "--retire", "symlink",
            ]
            let inject: [Word] = [
                "-f", "-o", "/dev/null", "-e", Word("trace=\(call)"), "-e",
                Word("inject=\(call):signal=KILL:when=\(number)"),
            ]
            let alone = ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"]
            guard try run("strace", inject + words, environment: alone).status != 0 else { break }
            kills += 1
            let done = try run(words[0], words.dropFirst() + [], environment: alone)
            #expect(done.status == 0, "\(call) \(number): \(done.errors)")
            #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .regular, "\(call) \(number)")
            #expect(try noteCount(store.path) == 19, "\(call) \(number)")
            #expect(try run("readlink", [Word(published)]).lines == [store.path.string], "\(call) \(number)")
        }
        #expect(kills > 0)
    }

    /// An undo may have removed the receipt already, and even its journal. The store may have another name in the
    /// group. Its journal mode is off and on again, which is no write.
    @Test(
        .enabled(if: Programs.canTrace, "strace can't trace here"), arguments: ["unlinkat", "fsync"],
        Places.FileSystem.allCases)
    func aKilledUndoIsFinishedByTheNext(_ call: String, _ fileSystem: Places.FileSystem) throws {
        var kills = 0
        for number in 1...30 {
            let places = try Places(fileSystem)
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20, unflushed: true)
            try relocate(store.path, places, "--name", number.isMultiple(of: 2) ? "Shared.db" : "Notes.sqlite")
            let words: [Word] = ["relocate", Word(store.path), Word(places.group), "--undo"]
            let inject: [Word] = [
                "-f", "-o", "/dev/null", "-e", Word("trace=\(call)"), "-e",
                Word("inject=\(call):signal=KILL:when=\(number)"), Programs.groupstore,
            ]
            let alone = ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"]
            guard try run("strace", inject + words, environment: alone).status != 0 else { break }
            kills += 1
            let done = try run(Programs.groupstore, words, environment: alone)
            #expect(done.status == 0, "\(call) \(number): \(done.output)\(done.errors)")
            #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .regular, "\(number)")
            #expect(try Directory(places.group).names() == [".groupstore"], "\(number)")
        }
        #expect(kills > 3)
    }

    /// The first link is of a relocation that can't be undone before the second one.
    @Test func namesTheLaterRelocationThatMustBeUndoneFirst() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        try relocate(store.path, places, "--retire", "symlink")
        let next = places.scratch("next")
        try run("mkdir", [Word(next)])
        let second = try groupstore(
            "relocate", Word(places.group.appending("Notes.sqlite")), Word(next), "--retire", "symlink", "--name",
            "Other.db")
        #expect(second.status == 0, "\(second.errors)")
        let refused = try undo(store.path, places)
        #expect(refused.summary.object("error")?.string("code") == "store_gone", "\(refused.output)")
        let hint = refused.summary.object("error")?.string("hint") ?? ""
        let command = try #require(hint.split(separator: ": ", maxSplits: 1).last.map(String.init))
        let words = command.replacing("groupstore ", with: "\(Programs.groupstore) ", maxReplacements: 1)
        let done = try run(
            "bash", ["-c", Word(words)], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0, "\(command): \(done.errors)")
        #expect(try undo(store.path, places).outcome == "undone")
        #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .regular)
    }

    /// Side files beside the link belong to no store: SQLite names those of the store by the link's target.
    @Test func archivesOnlyTheSideFilesBesideTheLink() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        try relocate(store.path, places, "--retire", "symlink")
        let log = places.legacy.appending("Notes.sqlite-wal")
        try write("no log", to: log)
        let published = places.group.appending("Notes.sqlite")
        let back = try groupstore("relocate", Word(published), Word(places.legacy))
        #expect(back.status == 0 && back.errors.contains("set aside \(log), then relocate"), "\(back.errors)")
        let archives = try groupstore("archive", "list", Word(places.legacy), "--json").objects
        #expect(archives.first?.string("state") == "leftovers", "\(archives)")
        #expect(try groupstore("relocate", Word(published), Word(places.legacy), "--undo").status == 0)
        #expect(try run("readlink", [Word(store.path)]).lines == [published.string])
    }

    /// Neither a lock nor a claim is left in a directory that is no group's.
    @Test func aRefusalForAnOpenStoreLeavesNothing() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        let shell = try sqliteShell(store.path)
        let refused = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--json", options: ["--deadline", "0"])
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "in_use", "\(refused.output)")
        #expect(try Directory(places.group).names().isEmpty)
        shell.closeInput()
        try shell.wait()
        try relocate(store.path, places)
    }

    /// Only the receipt proves that the link is ours; and a refusal leaves nothing behind.
    @Test func refusesToReplaceALinkThatNoRelocationLeft() throws {
        let places = try Places()
        let store = try makeStore(places.group.appending("Notes.sqlite"), rows: 20)
        let link = places.legacy.appending("Notes.sqlite")
        try run("ln", ["-s", Word(store.path), Word(link)])
        let before = try DirectorySnapshot(places.legacy)
        let refused = try groupstore("relocate", Word(store.path), Word(places.legacy), "--json")
        #expect(refused.status == 65, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "not_a_file")
        #expect(refused.summary.object("error")?.string("hint")?.hasSuffix("rm \(link)") == true, "\(refused.output)")
        #expect(try DirectorySnapshot(places.legacy) == before)
        #expect(try noteCount(store.path) == 20)
    }

    /// The link stands for a store that is in the archive; the one that it leads to never was there.
    @Test(arguments: ["keep-group", "merge"])
    func refusesToReplaceTheLinkThatAConflictLeft(_ choice: Word) throws {
        let places = try Places()
        let (link, kept) = (places.legacy.appending("Notes.sqlite"), places.group.appending("Notes.sqlite"))
        for (number, path) in [link, kept].enumerated() {
            let sql = "CREATE TABLE note (id INTEGER PRIMARY KEY); INSERT INTO note VALUES (\(number))"
            try run("sqlite3", [Word(path), Word(sql)])
        }
        let done = try groupstore(
            "relocate", Word(link), Word(places.group), "--retire", "symlink", "--on-conflict", choice)
        #expect(done.status == 0, "\(done.errors)")
        #expect(try run("readlink", [Word(link)]).lines == [kept.string])
        let refused = try groupstore("relocate", Word(kept), Word(places.legacy), "--json")
        #expect(refused.status == 65, "\(refused.output)")
        let remedy = try #require(refused.summary.object("error")?.string("hint"))
        #expect(remedy.hasSuffix(": rm \(link)"), "\(refused.output)")
        try run("rm", [Word(link)])
        #expect(try groupstore("relocate", Word(kept), Word(places.legacy)).status == 0)
    }

    /// The store in its former place is the only one: nothing advises to move it away.
    @Test func saysThatAStoreHasReturnedAlready() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        try relocate(store.path, places, "--retire", "symlink")
        let back = try groupstore("relocate", Word(places.group.appending("Notes.sqlite")), Word(places.legacy))
        #expect(back.status == 0, "\(back.errors)")
        let refused = try groupstore("relocate", Word(store.path), Word(places.group), "--undo", "--json")
        #expect(refused.status == 65, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "store_gone", "\(refused.output)")
        #expect(try noteCount(store.path) == 20)
    }

    /// By its receipt, through a link that the relocation left, and through an agent.
    @Test(arguments: ["delete", "symlink"], [true, false])
    func returnsAStoreThatWasGivenAnotherName(_ retirement: Word, _ throughAgent: Bool) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20)
        // Another store has the name, and came from another place.
        let other = try makeStore(places.scratch("Notes.sqlite"), rows: 3)
        try relocate(other.path, places)
        try relocate(store.path, places, "--retire", retirement, "--name", "Shared.db")
        let agent = try throughAgent ? AgentProcess(places, legacy: []) : nil
        let undone = try run(
            Programs.groupstore, ["relocate", Word(store.path), Word(places.group), "--undo", "--json"],
            environment: agent?.environment ?? ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(undone.outcome == "undone", "\(undone.output)\(undone.errors)")
        #expect(try noteCount(store.path) == 20)
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 3)
        #expect(try Directory(places.group).status("Shared.db") == nil)
        if let agent { #expect(try agent.stop().status == 0) }
    }
}
