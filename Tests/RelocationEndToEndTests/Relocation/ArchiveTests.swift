import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `groupstore archive`: archives can be listed and shown, and stores restored from them.
@Suite(.ownThreads) struct ArchiveTests {
    private let places: Places
    private var legacy: FilePath { places.legacy.appending("Notes.sqlite") }
    private var published: FilePath { places.group.appending("Notes.sqlite") }

    init() throws { places = try Places() }

    /// Relocates a new store and keeps a copy of it in the archive. Returns the store as it was.
    private func archiveStore(rows: Int = 20) throws -> (content: String, support: DirectorySnapshot?) {
        let store = try makeStore(legacy, rows: rows, unflushed: true)
        let (content, support) = (try store.dump(), try store.supportSnapshot())
        let done = try groupstore("relocate", Word(legacy), Word(places.group), "--retire", "archive", "--json")
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        return (content, support)
    }

    private func archive(_ verb: Word, _ more: Word..., options: [Word] = []) throws -> FinishedProcess {
        try groupstore("archive", verb, Word(places.group), options: more + options + ["--json"])
    }

    private func ids() throws -> [String] { try archive("list").objects.compactMap { $0.string("id") } }

    private var archiveDirectory: FilePath { places.group.appending(".groupstore").appending("archive") }

    @Test func listsWhatWhenWhyAndFromWhere() throws {
        let empty = try archive("list")
        #expect(empty.status == 0)
        #expect(empty.summary.integer("archives") == 0)
        #expect(try Directory(places.group).names().isEmpty, "listing creates nothing")
        _ = try archiveStore()
        try makeStore(legacy, rows: 3)
        try groupstore("relocate", Word(legacy), Word(places.group), "--on-conflict", "keep-group")

        let listed = try archive("list")
        let sets = listed.objects.filter { $0.type == "archive" }
        #expect(sets.count == 2)
        for set in sets {
            #expect(set.string("name") == "Notes.sqlite")
            #expect(set.string("from") == legacy.string)
            #expect(set.string("state") == "complete")
            #expect(set.string("at")?.isEmpty == false)
            #expect(set.integer("bytes") ?? 0 > 8192)
        }
        let reasons = Set(sets.compactMap { $0.string("reason") })
        #expect(reasons.count == 2 && reasons.contains { $0.contains("both places") }, "\(reasons)")
        #expect(listed.summary.integer("archives") == 2)
        let text = try groupstore("archive", "list", Word(places.group))
        #expect(text.lines.filter { $0.contains("Notes.sqlite") && $0.contains("from") }.count == 2, "\(text.output)")
    }

    @Test func namesAGroupByItsIdentifier() throws {
        _ = try archiveStore()
        let containers = ["GROUPSTORE_CONTAINERS": places.group.removingLastComponent().string]
        let done = try groupstore("archive", "list", "group", "--json", environment: containers)
        #expect(done.summary.integer("archives") == 1, "\(done.output)\(done.errors)")
    }

    @Test func showsTheFilesTheIntegrityAndTheContentWithoutChangingAnything() throws {
        _ = try archiveStore()
        let before = try DirectorySnapshot(places.group)
        let shown = try archive("show", "Notes.sqlite")
        #expect(shown.status == 0, "\(shown.errors)")
        #expect(shown.summary.string("integrity") == "ok")
        let files = Set(shown.objects.filter { $0.type == "file" }.compactMap { $0.string("name") })
        #expect(files == ["Notes.sqlite", ".Notes_SUPPORT/_EXTERNAL_DATA/1F2E"])
        #expect(
            shown.objects.contains { $0.type == "table" && $0.string("name") == "note" && $0.integer("rows") == 20 })
        #expect(try DirectorySnapshot(places.group) == before)
    }

    @Test func showsAndRefusesADamagedOrIncompleteStore() throws {
        _ = try archiveStore(rows: 2000)
        let id = try #require(try ids().first)
        let directory = archiveDirectory.appending(id)
        let database = directory.appending("Notes.sqlite")
        do {
            let file = try Descriptor(opening: database, flags: O_RDWR)
            try file.write([UInt8](repeating: 0xA5, count: 4096), at: 4096 * 5, path: database)
        }
        let shown = try archive("show", Word(id))
        #expect(shown.status == 65)
        #expect(shown.summary.object("error")?.string("code") == "damaged", "\(shown.output)")
        let refused = try archive("restore", Word(id))
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "damaged")
        #expect(try Directory(places.legacy).names().isEmpty)

        let forced = try archive("restore", Word(id), "--opaque")
        #expect(forced.status == 0, "\(forced.output)\(forced.errors)")
        #expect(try run("cmp", [Word(database), Word(legacy)]).status == 0)

        try run("rm", ["-r", Word(directory.appending(".Notes_SUPPORT"))])
        let incomplete = try archive("show", Word(id))
        #expect(incomplete.status == 65)
        #expect(incomplete.summary.object("error")?.string("code") == "incomplete")
    }

    @Test(arguments: Places.FileSystem.allCases, [false, true])
    func restoresToWhereItWas(_ fileSystem: Places.FileSystem, _ moves: Bool) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 20, unflushed: true)
        let (content, support) = (try store.dump(), try store.supportSnapshot())
        try groupstore("relocate", Word(store.path), Word(places.group), "--retire", "archive")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        let options: [Word] = moves ? ["--move", "--json"] : ["--json"]
        let done = try groupstore("archive", "restore", Word(places.group), "Notes.sqlite", options: options)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.outcome == "restored")
        #expect(done.summary.bool("kept") == !moves)
        #expect(try store.dump() == content)
        #expect(try store.supportSnapshot() == support)
        #expect(try sqlite(store.path, "PRAGMA journal_mode") == "wal\n")
        #expect(try published.dump() == content)
        let archives = try Directory(places.group.appending(".groupstore").appending("archive")).names()
        #expect(archives.count == (moves ? 0 : 1))
        // The relocation itself is not undone.
        #expect(try Directory(places.group.appending(".groupstore").appending("receipts")).names().count == 1)
    }

    @Test func restoresToAnotherNameAndIntoADirectory() throws {
        let (content, support) = try archiveStore()
        let other = try StoreFiles(places.scratch("Old notes.db"))
        let done = try archive("restore", "Notes.sqlite", "--to", Word(other.path))
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try other.dump() == content)
        #expect(try other.supportSnapshot() == support)
        #expect(try archive("restore", "Notes.sqlite", "--to", Word(places.legacy)).status == 0)
        #expect(try StoreFiles(legacy).dump() == content)
        // The archive's note says where the copies are.
        #expect(try archive("list").objects.first?.objects("restored").count == 2)
    }

    @Test(arguments: ["Notes.sqlite", "Notes.sqlite-wal", "Notes.sqlite-journal", ".Notes_SUPPORT"])
    func overwritesNothing(_ name: String) throws {
        _ = try archiveStore()
        let taken = places.legacy.appending(name)
        try write("somebody else's", to: taken)
        let (before, archived) = (try DirectorySnapshot(places.legacy), try DirectorySnapshot(archiveDirectory))
        for options: [Word] in [[], ["--move"], ["--dry-run"]] {
            let refused = try archive("restore", "Notes.sqlite", options: options)
            #expect(refused.status == 73, "\(refused.output)")
            #expect(refused.outcome == "conflict")
            #expect(refused.summary.object("error")?.string("code") == "destination_taken")
        }
        #expect(try DirectorySnapshot(places.legacy) == before)
        #expect(try DirectorySnapshot(archiveDirectory) == archived)
    }

    @Test func leavesALinkAtTheDestinationAlone() throws {
        _ = try archiveStore()
        try run("ln", ["-s", "/nonexistent/Notes.sqlite", Word(legacy)])
        #expect(try archive("restore", "Notes.sqlite").status == 73)
        #expect(try run("readlink", [Word(legacy)]).lines == ["/nonexistent/Notes.sqlite"])
    }

    @Test func refusesAStoreWithASecondName() throws {
        _ = try archiveStore()
        let id = try #require(try ids().first)
        try run("ln", [Word(archiveDirectory.appending(id).appending("Notes.sqlite")), Word(places.scratch("other"))])
        let refused = try archive("restore", Word(id), "--move")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "hard_linked")
    }

    /// Anybody who may write to the group's directory could leave a note that names a place of another user.
    @Test func followsNoNoteThatOthersMayHaveWritten() throws {
        _ = try archiveStore()
        let id = try #require(try ids().first)
        let note = archiveDirectory.appending(id).appending("about.json")
        try run("chmod", ["0666", Word(note)])
        let refused = try archive("restore", Word(id))
        #expect(refused.status == 77)
        #expect(refused.summary.object("error")?.string("code") == "untrusted_note")
        #expect(try archive("restore", Word(id), "--to", Word(legacy)).status == 0)
    }

    @Test func dryRunChangesNothing() throws {
        _ = try archiveStore()
        let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        let done = try archive("restore", "Notes.sqlite", "--dry-run")
        #expect(done.status == 0)
        #expect(done.summary.bool("dry_run") == true)
        #expect(try DirectorySnapshot(places.legacy) == before.0)
        #expect(try DirectorySnapshot(places.group) == before.1)
    }

    @Test func refusesAMissingDirectoryAndItsOwnRecords() throws {
        _ = try archiveStore()
        let missing = try archive("restore", "Notes.sqlite", "--to", "/nonexistent/there/Notes.sqlite")
        #expect(missing.status == 74)
        #expect(missing.summary.object("error")?.string("code") == "no_directory")
        let own = try archive("restore", "Notes.sqlite", "--to", Word(archiveDirectory.appending("Notes.sqlite")))
        #expect(own.summary.object("error")?.string("code") == "own_directory")
        let unknown = try archive("restore", "Unknown.sqlite")
        #expect(unknown.status == 65)
        #expect(unknown.summary.object("error")?.string("hint")?.contains("archive list") == true)
    }

    @Test func asksForTheIdentifierIfTwoArchivesHaveOneName() throws {
        _ = try archiveStore()
        try makeStore(legacy, rows: 3)
        try groupstore("relocate", Word(legacy), Word(places.group), "--on-conflict", "keep-group")
        let refused = try archive("restore", "Notes.sqlite")
        #expect(refused.status == 64)
        #expect(refused.summary.object("error")?.string("code") == "ambiguous")
        for id in try ids() { #expect(refused.errors.contains(id)) }
        let other = places.scratch("other.sqlite")
        let conflicting = try archive("list").objects.first { $0.string("reason")?.contains("both places") == true }
        let id = try #require(conflicting?.string("id"))
        #expect(try archive("restore", Word(id), "--to", Word(other)).status == 0)
        #expect(try noteCount(other) == 3)
    }

    @Test func refusesAPlaceFromWhichAnAgentWouldRelocateTheStore() throws {
        _ = try archiveStore()
        let agent = try AgentProcess(places, legacy: [legacy])
        let refused = try run(
            Programs.groupstore, ["archive", "restore", Word(places.group), "Notes.sqlite", "--json"],
            environment: agent.environment)
        #expect(refused.status == 75)
        #expect(refused.summary.object("error")?.string("code") == "agent_serves")
        #expect(try Directory(places.legacy).names().isEmpty)
        let other = places.scratch("other.sqlite")
        let done = try run(
            Programs.groupstore,
            ["archive", "restore", Word(places.group), "Notes.sqlite", "--to", Word(other), "--json"],
            environment: agent.environment)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(try noteCount(other) == 20)
        #expect(try agent.stop().status == 0)
    }

    /// A store that the group lost returns under the eyes of an agent, whose subscribers are notified.
    @Test func restoresIntoAServedGroup() throws {
        let (content, _) = try archiveStore()
        try run("rm", ["-r", Word(published), Word(places.group.appending(".Notes_SUPPORT"))])
        let agent = try AgentProcess(places, legacy: [])
        let subscriber = try agent.subscribe("Notes.sqlite")
        let done = try run(
            Programs.groupstore,
            ["archive", "restore", Word(places.group), "Notes.sqlite", "--to", Word(published), "--json"],
            environment: agent.environment)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        try subscriber.next("change", "reset", "relocated")
        #expect(try StoreFiles(published).dump() == content)
        #expect(try agent.stop().status == 0)
    }

    @Test(arguments: OddNameTests.names)
    func restoresAnyName(_ name: Word) throws {
        let component = try #require(FilePath.Component(bytes: name.bytes))
        let plain = try makeStore(places.scratch("plain.sqlite"), rows: 20)
        let odd = try StoreFiles(places.legacy.appending(component))
        for (part, oddPart) in [(plain.name.database, odd.name.database), (plain.name.support, odd.name.support)] {
            try run(
                "mv",
                [
                    "--", Word(places.scratch("plain.sqlite").removingLastComponent().appending(part)),
                    Word(places.legacy.appending(oddPart)),
                ])
        }
        let content = try odd.dump()
        let done = try groupstore("relocate", Word(odd.path), Word(places.group), "--retire", "archive")
        #expect(done.status == 0, "\(name): \(done.errors)")
        let listed = try archive("list")
        #expect(listed.objects.first?.path("name") == name.bytes)
        let text = try groupstore("archive", "list", Word(places.group))
        #expect(text.lines.count == 3, "a name may not begin a line: \(text.output)")
        // A name is accepted as it is, behind "--" even with a leading hyphen.
        let restored = try groupstore("archive", "restore", "--json", "--move", "--", Word(places.group), name)
        #expect(restored.status == 0, "\(name): \(restored.output)\(restored.errors)")
        #expect(restored.summary.path("to") == odd.path.bytes)
        #expect(try odd.dump() == content)
        #expect(try archive("list").summary.integer("archives") == 0)
    }
}
