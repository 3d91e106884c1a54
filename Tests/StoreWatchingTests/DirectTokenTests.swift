import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreWatching

/// A token that says that nothing happened must be right.
@Suite struct DirectTokenTests {
    private static let modes = ["WAL", "DELETE", "TRUNCATE", "PERSIST", "MEMORY"]

    /// Returns a rig with a store that nobody has open.
    private func rig(_ mode: String) throws -> DirectRig {
        let rig = try DirectRig()
        try rig.sqlite("PRAGMA journal_mode = \(mode); CREATE TABLE note (text); INSERT INTO note VALUES ('first')")
        return rig
    }

    /// Returns what a later process finds: the event that stands for everything since the token.
    private func event(since token: DirectToken, _ rig: DirectRig) throws -> StoreEvent? {
        let later = try DirectRig(rig.scratch)
        let number = try #require(try later.watch(later.store).first)
        return try #require(DirectToken(token.description)).event(until: later.token(number))
    }

    @Test(arguments: modes) func saysThatNothingHappened(_ mode: String) throws {
        let rig = try rig(mode)
        // A write within one tick of the clock can't be told from an earlier one.
        pause(.milliseconds(30))
        try rig.watch(rig.store)
        #expect(try event(since: rig.token(), rig) == nil)
        try rig.sqlite("SELECT * FROM note")
        #expect(try event(since: rig.token(), rig) == nil)
    }

    @Test func saysThatNothingHappenedWhileTheStoreIsOpen() throws {
        let rig = try rig("WAL")
        let shell = try RunningProcess("sqlite3", [Word(rig.store)])
        try rig.watch(rig.store)
        shell.send("INSERT INTO note VALUES ('one');")
        let token = try rig.next().token
        #expect(try event(since: token, rig) == nil)
        shell.send("PRAGMA wal_checkpoint; SELECT 'checked';")
        try shell.line { $0 == "checked" }
        #expect(try event(since: token, rig) == nil)
        shell.closeInput()
    }

    private static let writes = [
        "INSERT INTO note VALUES ('more')", "PRAGMA journal_mode = DELETE; INSERT INTO note VALUES ('more')",
        "PRAGMA journal_mode = WAL; INSERT INTO note VALUES ('more')",
        "PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note VALUES ('more'); INSERT INTO note VALUES ('again')",
        "PRAGMA journal_mode = OFF; INSERT INTO note VALUES ('more')", "DELETE FROM note", "VACUUM",
        "PRAGMA user_version = 7",
    ]

    /// The token is the one at the start, or that of a change.
    @Test(arguments: modes, writes) func seesAWrite(_ mode: String, _ sql: String) throws {
        let rig = try rig(mode)
        try rig.watch(rig.store)
        let start = rig.token()
        try rig.sqlite(sql)
        #expect(try event(since: start, rig) != nil)
        let token = try rig.next().token
        try rig.sqlite("INSERT INTO note VALUES ('the last')")
        #expect(try event(since: token, rig) != nil)
    }

    @Test func seesAnotherStore() throws {
        let rig = try rig("WAL")
        try rig.watch(rig.store)
        let other = rig.scratch.path.appending("Other.sqlite")
        try rig.sqlite("CREATE TABLE note (text)", other)
        try run("mv", [Word(other), Word(rig.store)])
        #expect(try event(since: rig.token(), rig) == .reset(.replaced))
    }

    /// The copy has the old one's time stamps and size.
    @Test func seesACopyPutOverTheStore() throws {
        let rig = try rig("DELETE")
        let copy = rig.scratch.path.appending("Copy.sqlite")
        try run("cp", ["-p", Word(rig.store), Word(copy)])
        try rig.sqlite("UPDATE note SET text = 'other'")
        pause(.milliseconds(30))
        try rig.watch(rig.store)
        let token = rig.token()
        try run("cp", ["-p", Word(copy), Word(rig.store)])
        #expect(try event(since: token, rig) != nil)
    }

    /// Neither the size nor the times that programs can set tell that it was written.
    @Test(arguments: modes) func seesAWriteUnderRestoredTimes(_ mode: String) throws {
        let rig = try rig(mode)
        let old = rig.scratch.path.appending("Old.sqlite")
        pause(.milliseconds(30))
        try rig.watch(rig.store)
        let token = rig.token()
        try run("cp", ["-p", Word(rig.store), Word(old)])
        try rig.sqlite("UPDATE note SET text = 'other'")
        try run("touch", ["-r", Word(old), Word(rig.store)])
        #expect(try event(since: token, rig) != nil)
        try run("cp", ["-p", Word(old), Word(rig.store)])
        #expect(try event(since: token, rig) != nil)
    }

    @Test func seesAStoreComeAndGo() throws {
        let rig = try rig("WAL")
        let absent = DirectToken(nil)
        #expect(try event(since: absent, rig) == .reset(.appeared))
        try rig.watch(rig.store)
        let token = rig.token()
        try run("rm", [Word(rig.store)])
        #expect(try event(since: token, rig) == .reset(.vanished))
        #expect(try event(since: absent, rig) == nil)
    }

    @Test(arguments: [
        "", "file1", "file1-x", "file1-1.2.3", "file1-1.2.3.4.5.6.7.8.9", "file1-1.2.3.4.5.6.7.8.9.a.b.c", "e-12",
        "file1-1.2.3.4.5.6.7.8.9.a.", "file1-1.2.3.4.5.6.7.8.9.a.0", "file1-g.2.3.4.5.6.7.8.9.a",
    ])
    func refusesOtherTokens(_ text: String) { #expect(DirectToken(text) == nil) }
}
