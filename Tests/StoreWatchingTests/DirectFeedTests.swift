import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreWatching

@Suite struct DirectFeedTests {
    private let rig: DirectRig

    init() throws {
        rig = try DirectRig()
        try rig.sqlite("PRAGMA journal_mode = WAL; CREATE TABLE note (text); CREATE TABLE note_tag (text)")
    }

    private func tables(_ found: DirectRig.Found) -> ChangedTables? {
        if case .change(let tables) = found.event { tables } else { nil }
    }

    @Test func namesTheTablesOfEachCommit() throws {
        let shell = try RunningProcess("sqlite3", [Word(rig.store)])
        shell.send("SELECT count(*) FROM note;")
        try shell.line { $0 == "0" }
        try rig.watch(rig.store)
        // A busy machine may not have read the store in time for the first changes.
        var found: ChangedTables?
        while found?.isComplete != true {
            shell.send("INSERT INTO note VALUES ('one');")
            found = tables(try rig.next())
        }
        for table in ["note", "note_tag", "note"] {
            shell.send(Word("INSERT INTO \(table) VALUES ('one');"))
            #expect(tables(try rig.next()) == ChangedTables([table], isComplete: true))
        }
        shell.closeInput()
    }

    /// The watch of a new directory reports first that the directory is there. That must not keep the tables from being
    /// known once the store is watched.
    @Test func namesTheTablesOfTheFirstCommit() throws {
        let shell = try RunningProcess("sqlite3", [Word(rig.store)])
        shell.send("SELECT count(*) FROM note;")
        try shell.line { $0 == "0" }
        try rig.watch(rig.store)
        shell.send("INSERT INTO note VALUES ('one');")
        #expect(tables(try rig.next()) == ChangedTables(["note"], isComplete: true))
        shell.closeInput()
    }

    @Test func staysSilentWhileNobodyCommits() throws {
        try rig.watch(rig.store)
        try rig.sqlite("SELECT * FROM note; BEGIN; INSERT INTO note VALUES ('gone'); ROLLBACK; PRAGMA wal_checkpoint")
        #expect(try rig.settle().isEmpty)
    }

    @Test func reportsAStoreThatGoesAndComesAgain() throws {
        try rig.watch(rig.store)
        try run("rm", [Word(rig.store)])
        #expect(try rig.next().event == .reset(.vanished))
        try rig.sqlite("CREATE TABLE other (text)")
        _ = try rig.events { $0.event == .reset(.appeared) }
        try rig.sqlite("INSERT INTO other VALUES ('one')")
        _ = try rig.events { self.tables($0) != nil }
    }

    @Test func waitsForAStoreWithoutADirectory() throws {
        let late = rig.scratch.path.appending("later").appending("Late.sqlite")
        try rig.watch(late)
        try run("mkdir", [Word(late.removingLastComponent())])
        try rig.sqlite("CREATE TABLE note (text)", late)
        _ = try rig.events { $0.event == .reset(.appeared) }
    }

    /// The link is followed, and its replacement too.
    @Test func followsASymbolicLinkToItsNewTarget() throws {
        let link = rig.scratch.path.appending("Link.sqlite")
        let other = rig.scratch.path.appending("Other.sqlite")
        try rig.sqlite("CREATE TABLE note (text)", other)
        try run("ln", ["-s", "Notes.sqlite", Word(link)])
        try rig.watch(link)
        try rig.sqlite("INSERT INTO note VALUES ('one')")
        #expect(tables(try rig.next()) != nil)
        try run("ln", ["-sfn", "Other.sqlite", Word(link)])
        _ = try rig.events { $0.event == .relocated(from: rig.store.bytes, to: other.bytes) }
        try rig.sqlite("INSERT INTO note VALUES ('two')", other)
        #expect(tables(try rig.next()) != nil)
    }

    /// As a relocation with `retire: symlink` does.
    @Test func followsAStoreThatIsMovedAndLeavesALink() throws {
        try rig.watch(rig.store)
        let new = rig.scratch.path.appending("New.sqlite")
        try run("mv", [Word(rig.store), Word(new)])
        try run("ln", ["-s", Word(new), Word(rig.store)])
        _ = try rig.events { $0.event == .relocated(from: rig.store.bytes, to: new.bytes) }
        try rig.sqlite("INSERT INTO note VALUES ('two')", new)
        #expect(tables(try rig.next()) != nil)
    }

    @Test func reportsAStoreUnderEachOfItsNames() throws {
        let link = rig.scratch.path.appending("Link.sqlite")
        try run("ln", ["-s", "Notes.sqlite", Word(link)])
        let numbers = try rig.watch(rig.store, link)
        try rig.sqlite("INSERT INTO note VALUES ('one')")
        let found = try rig.events { $0.number == numbers[1] }
        #expect(found.contains { $0.number == numbers[0] })
    }

    @Test(arguments: ["", "directory"]) func refusesWhatCanBeNoStore(_ name: String) throws {
        try run("mkdir", [Word(rig.scratch.path.appending("directory"))])
        let path = name.isEmpty ? FilePath("/") : rig.scratch.path.appending(name)
        #expect(throws: DirectFeedError.notAStore(path)) { try rig.watch(path) }
        // The other stores are followed all the same.
        try rig.watch(rig.store)
    }
}
