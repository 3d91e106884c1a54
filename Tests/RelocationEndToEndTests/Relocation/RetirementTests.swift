import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that `--retire` also takes effect if the group container already has a store.
@Suite(.ownThreads) struct RetirementTests {
    enum Situation: String, CaseIterable {
        case sameContent, emptyLegacy, keepGroup
    }

    private func prepare(_ situation: Situation, _ places: Places) throws -> FilePath {
        let legacy = places.legacy.appending("Notes.sqlite")
        try makeStore(legacy, rows: situation == .emptyLegacy ? 0 : 10)
        if situation == .sameContent {
            try run("cp", ["-a", Word(places.legacy.pushing(".")), Word(places.group)])
        } else {
            try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        }
        return legacy
    }

    private func relocate(_ store: FilePath, _ group: FilePath, _ options: [Word]) throws -> FinishedProcess {
        try groupstore("relocate", Word(store), Word(group), "--json", options: options)
    }

    @Test(arguments: Situation.allCases, [Places.FileSystem.same, .another])
    func replacesTheLegacyStoreByALink(_ situation: Situation, _ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let legacy = try prepare(situation, places)
        let published = places.group.appending("Notes.sqlite")
        let rows = try noteCount(published)
        let options: [Word] = ["--retire", "symlink", "--on-conflict", "keep-group"]
        let done = try relocate(legacy, places.group, options)
        #expect(done.outcome == "already_relocated", "\(done.output)")
        #expect(try run("readlink", [Word(legacy)]).lines == [published.string])
        #expect(try noteCount(legacy) == rows)
        #expect(try relocate(legacy, places.group, options).outcome == "already_relocated")
    }

    @Test(arguments: Places.FileSystem.allCases)
    func leadsAProgramThatCannotBeChangedToTheNewPlace(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        try makeStore(places.legacyStore, rows: 3)
        let planned = try relocate(places.legacyStore, places.group, ["--dry-run"])
        #expect(planned.output.contains("and leave a symbolic link"), "\(planned.output)")
        #expect(try relocate(places.legacyStore, places.group, []).outcome == "relocated")
        #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
        try sqlite(places.legacyStore, "PRAGMA journal_mode = WAL; INSERT INTO note (text) VALUES ('there')")
        #expect(try noteCount(places.groupStore) == 4)
        #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
        #expect(try relocate(places.legacyStore, places.group, []).outcome == "already_relocated")
    }

    /// A group's programs find a store by the group. With a link there, the group would seem to have one.
    @Test func leavesNoLinkInAGroup() throws {
        let places = try Places()
        let (first, second) = (places.scratch("first"), places.scratch("second"))
        try run("mkdir", ["-m", "0700", Word(first), Word(second)])
        try makeStore(places.legacyStore, rows: 3)
        #expect(try relocate(places.legacyStore, first, ["--retire", "delete"]).outcome == "relocated")
        #expect(try relocate(first.appending("Notes.sqlite"), second, []).outcome == "relocated")
        #expect(try Directory(first).names() == [".groupstore"])
        #expect(try noteCount(second.appending("Notes.sqlite")) == 3)
    }

    /// A program would begin an empty store through a link that leads nowhere, and SQLite would make its file.
    @Test func aLinkLeadsOnWhenItsStoreMovesOn() throws {
        let places = try Places()
        let (first, second) = (places.scratch("first"), places.scratch("second"))
        try run("mkdir", ["-m", "0700", Word(first), Word(second)])
        try makeStore(places.legacyStore, rows: 3)
        #expect(try relocate(places.legacyStore, first, []).outcome == "relocated")
        #expect(try relocate(first.appending("Notes.sqlite"), second, []).outcome == "relocated")
        try sqlite(places.legacyStore, "INSERT INTO note (text) VALUES ('there')")
        #expect(try noteCount(second.appending("Notes.sqlite")) == 4)
        #expect(try holdsLinkAlone(places.legacy, to: second.appending("Notes.sqlite")))
        // The first command again doesn't fetch it.
        let again = try relocate(places.legacyStore, first, [])
        #expect(again.summary.object("error")?.string("code") == "relocated_elsewhere", "\(again.output)")
    }

    /// Back at its old place, the store is where a program that can't be changed opens it.
    @Test func leavesALinkAgainAfterTheStoreCameBack() throws {
        let places = try Places()
        try makeStore(places.legacyStore, rows: 3)
        #expect(try relocate(places.legacyStore, places.group, []).outcome == "relocated")
        #expect(try relocate(places.groupStore, places.legacy, []).outcome == "relocated")
        #expect(try Directory(places.group).names() == [".groupstore"])
        #expect(try relocate(places.legacyStore, places.group, []).outcome == "relocated")
        #expect(try Directory(places.legacy).status("Notes.sqlite")?.kind == .symbolicLink)
        #expect(try noteCount(places.legacyStore) == 3)
    }

    /// A store is relocated once. Otherwise each of two programs that relocate it would take it from the other's group.
    @Test func theLinkOfARelocationIsNoStoreForAnotherGroup() throws {
        let places = try Places()
        let other = places.scratch("other")
        try run("mkdir", ["-m", "0700", Word(other)])
        try makeStore(places.legacyStore, rows: 3)
        #expect(try relocate(places.legacyStore, places.group, []).outcome == "relocated")
        let link = places.scratch("Notes.sqlite")
        try run("ln", ["-s", Word(places.legacyStore), Word(link)])
        let attempts: [(FilePath, [Word])] = [
            (places.legacyStore, []), (places.legacyStore, ["--dry-run"]), (link, []),
        ]
        for (path, options) in attempts {
            let refused = try relocate(path, other, options)
            let error = try #require(refused.summary.object("error"), "\(refused.output)")
            #expect(refused.status == 74 && error.string("code") == "relocated_elsewhere")
            #expect(error.string("hint")?.hasSuffix("groupstore relocate \(places.groupStore) \(other)") == true)
        }
        #expect(try holdsLinkAlone(places.legacy, to: places.groupStore))
        #expect(try relocate(places.groupStore, other, []).outcome == "relocated")
        #expect(try noteCount(other.appending("Notes.sqlite")) == 3)
    }

    /// The remedy ends the conflict, and the next one.
    @Test func leadsAProgramThatCameBackToTheGroupsStore() throws {
        let places = try Places()
        let (legacy, published) = (places.legacy.appending("Notes.sqlite"), places.group.appending("Notes.sqlite"))
        try makeStore(legacy, rows: 10)
        #expect(try relocate(legacy, places.group, ["--retire", "delete"]).outcome == "relocated")
        try makeStore(legacy, rows: 2)
        let conflict = try relocate(legacy, places.group, [])
        let hint = try #require(conflict.summary.object("error")?.string("hint"), "\(conflict.output)")
        let words = try #require(hint.split(separator: ": ").last?.split(separator: " ").dropFirst())
        #expect(words.suffix(2) == ["--retire", "symlink"], "\(hint)")
        let done = try run(Programs.groupstore, words.map { Word(String($0)) })
        #expect(done.status == 0, "\(done.errors)")
        #expect(try run("readlink", [Word(legacy)]).lines == [published.string])
        #expect(try noteCount(legacy) == 10)
    }

    @Test func archivesARedundantCopy() throws {
        let places = try Places()
        let legacy = try prepare(.sameContent, places)
        #expect(try relocate(legacy, places.group, ["--retire", "archive"]).outcome == "already_relocated")
        #expect(try run("find", [Word(places.legacy), "-name", "Notes*"]).lines.isEmpty)
        let archived = try run("find", [Word(places.group.appending(".groupstore/archive")), "-name", "Notes.sqlite"])
        #expect(try noteCount(FilePath(try #require(archived.lines.first))) == 10)
    }
}
