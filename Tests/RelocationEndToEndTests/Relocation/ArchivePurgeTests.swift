import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of `groupstore archive purge`, which removes what is elsewhere too and keeps what is the only copy.
@Suite(.ownThreads) struct ArchivePurgeTests {
    private let places: Places
    private var legacy: FilePath { places.legacy.appending("Notes.sqlite") }
    private var archiveDirectory: FilePath { places.group.appending(".groupstore").appending("archive") }

    init() throws { places = try Places() }

    private func purge(_ options: Word...) throws -> FinishedProcess {
        try groupstore("archive", "purge", Word(places.group), options: options + ["--json"])
    }

    private func relocate(_ options: Word...) throws {
        let done = try groupstore("relocate", Word(legacy), Word(places.group), options: options)
        #expect(done.status == 0, "\(done.errors)")
    }

    private func archives() throws -> [FilePath.Component] { try Directory(archiveDirectory).names() }

    /// Archives a store that the group doesn't hold: the losing one of a conflict.
    private func archiveOnlyCopy() throws {
        try makeStore(places.group.appending("Notes.sqlite"), rows: 9)
        try makeStore(legacy, rows: 4)
        try relocate("--on-conflict", "keep-group", "--retire", "delete")
    }

    @Test func removesACopyOfAStoreThatLivesOnInTheGroup() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        try sqlite(places.group.appending("Notes.sqlite"), "DELETE FROM note WHERE id > 11")
        let preview = try purge("Notes.sqlite", "--dry-run")
        #expect(preview.status == 0)
        #expect(preview.summary.bool("dry_run") == true)
        let text = try groupstore("archive", "purge", Word(places.group), "Notes.sqlite", "--dry-run").output
        #expect(text.contains("1 would be purged, would free "), "\(text)")
        #expect(try archives().count == 1)
        let done = try purge("Notes.sqlite")
        #expect(done.outcome == "purged", "\(done.output)")
        #expect(done.objects.first?.string("value") == "redundant")
        #expect(done.objects.first?.string("elsewhere") == places.group.appending("Notes.sqlite").string)
        #expect(
            done.output.contains(#""fewer":[{"table":"note","rows":20,"missing":9,"changed":0}]"#), "\(done.output)")
        #expect(done.summary.integer("bytes") ?? 0 > 8192)
        #expect(try archives().isEmpty)
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 11)
    }

    @Test func keepsTheOnlyCopyUnlessForced() throws {
        try archiveOnlyCopy()
        let before = try DirectorySnapshot(archiveDirectory)
        let refused = try purge("Notes.sqlite")
        #expect(refused.status == 73)
        #expect(refused.summary.object("error")?.string("code") == "only_copy")
        let passedOver = try purge("--older-than", "0s")
        #expect(passedOver.status == 0)
        #expect(passedOver.summary.integer("kept") == 1)
        #expect(try DirectorySnapshot(archiveDirectory) == before)
        #expect(try purge("Notes.sqlite", "--force").outcome == "purged")
        #expect(try archives().isEmpty)
    }

    @Test func removesWhatWasRestored() throws {
        try archiveOnlyCopy()
        try groupstore("archive", "restore", Word(places.group), "Notes.sqlite")
        // Even if the restored store has gone on since.
        try sqlite(legacy, "INSERT INTO note (text) VALUES ('later')")
        #expect(try purge("Notes.sqlite").outcome == "purged")
        #expect(try noteCount(legacy) == 5)
    }

    @Test func keepsWhatHasLostItsRestoredCopy() throws {
        try archiveOnlyCopy()
        let copy = places.scratch("copy.sqlite")
        try groupstore("archive", "restore", Word(places.group), "Notes.sqlite", "--to", Word(copy))
        try run("rm", [Word(copy)])
        #expect(try purge("Notes.sqlite").status == 73)
        // Another store with that name proves nothing.
        try makeStore(copy, rows: 1)
        #expect(try purge("Notes.sqlite").status == 73)
        #expect(try archives().count == 1)
    }

    /// A new file often gets the inode of the removed one.
    @Test func keepsWhatTheGroupHasLost() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        let published = places.group.appending("Notes.sqlite")
        // The birth of a file is compared with the receipt's second: as if it had passed.
        let receipts = places.group.appending(".groupstore").appending("receipts")
        let receipt = receipts.appending(try #require(try Directory(receipts).names().first))
        try run("sed", ["-i", "s/\"at\" : \"[^\"]*\"/\"at\" : \"2001-01-01T00:00:00Z\"/", Word(receipt)])
        #expect(try run("grep", ["-c", "2001", Word(receipt)]).lines == ["1"])
        for _ in 0..<5 {
            try run("rm", ["-rf", Word(published), Word(places.group.appending(".Notes_SUPPORT"))])
            try makeStore(published, rows: 2)
            #expect(try purge("Notes.sqlite").status == 73)
        }
        #expect(try archives().count == 1)
    }

    @Test func purgesByAgeOnly() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        #expect(try purge("--older-than", "1h").outcome == "nothing_to_do")
        #expect(try archives().count == 1)
        #expect(try purge("--older-than", "0ms").outcome == "purged")
        #expect(try purge("--older-than", "3").status == 64)
        #expect(try groupstore("archive", "purge", Word(places.group)).status == 64)
    }

    @Test func namedArchivesArePurgedAllOrNone() throws {
        try archiveOnlyCopy()
        try sqlite(legacy, "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        try relocate()
        #expect(try archives().count == 2)
        let names = try archives().map { Word(FilePath(root: nil, [$0])) }
        let done = try groupstore("archive", "purge", Word(places.group), options: names + ["--json"])
        #expect(done.status == 73)
        #expect(try archives().count == 2)
        // The one without rows is empty, and may go.
        let byAge = try purge("--older-than", "0s")
        #expect(byAge.summary.integer("purged") == 1 && byAge.summary.integer("kept") == 1, "\(byAge.output)")
    }

    /// A purge that was killed has given the archive another name. Nothing is removed by that name alone.
    @Test func provesAgainWhatAnInterruptedPurgeLeft() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        let id = try #require(try archives().first)
        let hidden = try #require(FilePath.Component(bytes: id.bytes + Array(".purged".utf8)))
        let published = places.group.appending("Notes.sqlite")
        try run("mv", [Word(archiveDirectory.appending(id)), Word(archiveDirectory.appending(hidden))])
        try run("cp", [Word(published), Word(places.scratch("saved"))])
        try write("", to: published)
        #expect(try groupstore("archive", "list", Word(places.group), "--json").summary.integer("archives") == 0)
        #expect(try purge(Word(FilePath(root: nil, [id]))).status == 73)
        #expect(try archives() == [id])
        try run("cp", [Word(places.scratch("saved")), Word(published)])
        #expect(try purge("--older-than", "0s").outcome == "purged")
        #expect(try archives().isEmpty)
    }

    /// As by a timer, after the group's store was emptied in place.
    @Test func losesNothingAfterAnAccident() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        try write("", to: places.group.appending("Notes.sqlite"))
        let done = try purge("--older-than", "0s")
        #expect(
            done.summary.integer("kept") == 1 && done.objects.first?.string("value") == "only_copy", "\(done.output)")
        #expect(try archives().count == 1)
    }

    /// A transfer that was interrupted while it restored the archive still needs it.
    @Test func keepsWhatAnUnfinishedRestorationNeeds() throws {
        try makeStore(legacy, rows: 20)
        try relocate("--retire", "archive")
        let id = try #require(try archives().first).string
        let journal = """
            {"version": 1, "state": {"intended": {}}, "transfer": {"id": "1-abc", "copies": false, "hadWAL": false,
            "purpose": {"restore": {"to": "\(places.legacy)", "as": "Notes.sqlite", "taken": "\(id)"}},
            "directory": "\(archiveDirectory.appending(id))", "name": "Notes.sqlite", "retirement": "delete",
            "database": {"device": 1, "inode": 1}}}
            """
        try write(journal, to: places.group.appending(".groupstore").appending("journal.json"))
        let refused = try purge("Notes.sqlite", "--force")
        #expect(refused.status == 75, "\(refused.output)\(refused.errors)")
        #expect(refused.summary.object("error")?.string("code") == "interrupted")
        #expect(try archives().count == 1)
    }
}
