import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// What a store keeps in files beside it goes with it, or stays; it is never gone with a database that isn't needed.
@Suite(.ownThreads) struct ExternalDataTests {
    /// A backup is put back where the store was, and the group has lost the files meanwhile. The receipt of a copy knows it again.
    @Test func aStoreThatComesBackIsKeptWhereTheGroupHasLostItsFiles() throws {
        let places = try Places(.another)
        let legacy = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let backup = places.scratch("backup")
        try run("cp", ["-a", Word(places.legacy), Word(backup)])
        #expect(try relocate(legacy, places).outcome == "relocated")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        try sqlite(published.path, "INSERT INTO note (text) VALUES ('later')")

        // What it holds may not be in the group any more: it is put aside, with its files.
        try run("cp", ["-a", Word(backup.pushing(".")), Word(places.legacy)])
        #expect(try relocate(legacy, places).outcome == "already_relocated")
        #expect(try files(named: "1F2E", below: places.group.pushing(".groupstore")) == 1)

        try run("rm", ["-r", Word(published.support)])
        try run("cp", ["-a", Word(backup.pushing(".")), Word(places.legacy)])
        #expect(try relocate(legacy, places).outcome == "already_relocated")
        #expect(try files(named: "1F2E", below: places.group.pushing(".groupstore")) == 2)
        #expect(try noteCount(published.path) == 11)
        #expect(FileStatus(following: legacy.path) == nil)
    }

    private func relocate(_ store: StoreFiles, _ places: Places) throws -> FinishedProcess {
        try groupstore("relocate", Word(store.path), Word(places.group), "--json")
    }

    private func files(named name: String, below directory: FilePath) throws -> Int {
        try run("find", [Word(directory), "-name", Word(name)]).lines.count
    }
}
