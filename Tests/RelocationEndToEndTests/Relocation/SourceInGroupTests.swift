import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of sources that are one of the group's own stores, by any path. Programs know the store by its name, so it
/// keeps that name.
@Suite(.ownThreads) struct SourceInGroupTests {
    private let places: Places
    private let store: StoreFiles

    init() throws {
        places = try Places()
        store = try makeStore(places.group.appending("Notes.sqlite"), rows: 5)
    }

    private func link(_ path: FilePath, to target: FilePath) throws { try run("ln", ["-s", Word(target), Word(path)]) }

    /// Returns paths to the group's store: with a link at the end, in the middle or in a chain, or without a link.
    private func sources() throws -> [FilePath] {
        let directory = places.scratch("way")
        try run("mkdir", ["-p", Word(directory.appending("deep"))])
        try link(places.legacy.appending("old.db"), to: store.path)
        try link(directory.appending("relative.db"), to: "../group/Notes.sqlite")
        try link(directory.appending("chain.db"), to: places.legacy.appending("old.db"))
        try link(directory.appending("group"), to: places.group)
        try link(directory.appending("inside"), to: directory.appending("deep"))
        try link(directory.appending("dotted.db"), to: "inside/../group/Notes.sqlite")
        try link(places.group.appending("alias.db"), to: "Notes.sqlite")
        return [
            places.legacy.appending("old.db"), directory.appending("relative.db"), directory.appending("chain.db"),
            directory.pushing("group/Notes.sqlite"), directory.pushing("inside/../dotted.db"),
            directory.pushing("deep/../../group/Notes.sqlite"), places.group.appending("alias.db"), store.path,
        ]
    }

    @Test func acceptsOnlyTheStoresOwnName() throws {
        let sources = try sources()
        let before = try (DirectorySnapshot(places.group), DirectorySnapshot(places.legacy))
        for source in sources {
            for words: [Word] in [["--name", "Other.sqlite"], source == store.path ? ["--name", "x.db"] : []] {
                // A path through a directory's link ends in the store's own name.
                guard source.lastComponent != "Notes.sqlite" || !words.isEmpty else { continue }
                for options: [Word] in [[], ["--dry-run"], ["--retire", "symlink"]] {
                    let refused = try groupstore(
                        "relocate", Word(source), Word(places.group), "--json", options: words + options)
                    #expect(refused.status == 65 && refused.outcome == "refused", "\(source): \(refused.output)")
                    #expect(refused.summary.object("error")?.string("code") == "in_group", "\(refused.output)")
                }
            }
            let done = try groupstore(
                "relocate", Word(source), Word(places.group), "--name", "Notes.sqlite", "--json")
            #expect(done.status == 0 && done.outcome == "already_relocated", "\(source): \(done.output)")
        }
        #expect(try (DirectorySnapshot(places.group), DirectorySnapshot(places.legacy)) == before)
    }

    @Test func theAgentLeavesTheStoreInPlace() throws {
        let sources = try sources()
        let agent = try AgentProcess(places, legacy: [sources[0]])
        for source in sources.dropFirst() where source.lastComponent != "Notes.sqlite" {
            let refused = try groupstore(
                "relocate", Word(source), Word(places.group), "--json", environment: agent.environment)
            #expect(refused.summary.object("error")?.string("code") == "in_group", "\(refused.output)")
        }
        let row = try agent.legacyRow { $0 != "arriving" && $0 != "relocating" }
        #expect(row.string("state") == "refused" && row.string("code") == "in_group", "\(row.text)")
        #expect(try noteCount(store.path) == 5)
        #expect(FileStatus(following: sources[0]) != nil)
        #expect(try agent.stop().status == 0)
    }

    /// Otherwise a mistyped name would seem to be relocated.
    @Test(arguments: [["mkdir"], ["touch"], ["mkfifo"], ["cp", "/proc/version"]] as [[Word]], [false, true])
    func refusesAnAbsentSourceWhateverHasItsNameInTheGroup(_ command: [Word], _ isDryRun: Bool) throws {
        try run(command[0], command.dropFirst() + [Word(places.group.appending("Other.sqlite"))])
        let refused = try groupstore(
            "relocate", Word(places.legacy.appending("Other.sqlite")), Word(places.group), "--json",
            options: isDryRun ? ["--dry-run"] : [])
        #expect(refused.status == 74, "\(refused.output)")
        #expect(refused.summary.object("error")?.string("code") == "no_store", "\(refused.output)")
    }

    /// An archived store may be the only copy of its content.
    @Test func refusesAnArchivedStore() throws {
        try sqlite(places.legacy.appending("Notes.sqlite"), "CREATE TABLE note (id)")
        try groupstore("relocate", Word(places.legacy.appending("Notes.sqlite")), Word(places.group))
        let archived = try run(
            "find", [Word(places.group.pushing(".groupstore/archive")), "-name", "Notes.sqlite"]
        ).lines
        let path = FilePath(try #require(archived.first))
        let refused = try groupstore("relocate", Word(path), Word(places.group), "--name", "Back.sqlite", "--json")
        #expect(refused.summary.object("error")?.string("code") == "own_directory", "\(refused.output)")
        #expect(FileStatus(following: path) != nil)
    }
}
