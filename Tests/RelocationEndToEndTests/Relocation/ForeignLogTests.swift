import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A write-ahead log of another database that lies beside a store: a killed program left it, and the file was replaced.
@Suite(.ownThreads) struct ForeignLogTests {
    /// Makes a store of one row with a log that another database of that name has left.
    private func make(_ store: FilePath, row: String) throws -> [UInt8] {
        let scratch = try TemporaryDirectory()
        let former = scratch.path.appending("former")
        let shell = try sqliteShell(former)
        try shell.execute(
            "PRAGMA journal_mode = WAL; CREATE TABLE other (x); INSERT INTO other SELECT hex(randomblob(9000))")
        let log = FilePath(store.string + "-wal")
        try run("cp", [Word(FilePath(former.string + "-wal")), Word(log)])
        try run("cp", [Word(FilePath(former.string + "-shm")), Word(FilePath(store.string + "-shm"))])
        try shell.killAtOnce()
        let new = scratch.path.appending("new")
        try sqlite(
            new, "PRAGMA journal_mode = WAL; CREATE TABLE note (id PRIMARY KEY); INSERT INTO note VALUES (\(row))")
        try run("cp", [Word(new), Word(store)])
        return try bytes(log)
    }

    /// Gives the root page of a tree a kind that no page has.
    private func damage(_ store: FilePath) throws {
        let descriptor = try Descriptor(opening: store, flags: O_WRONLY)
        try descriptor.write([99], at: 4096)
    }

    private func bytes(_ path: FilePath) throws -> [UInt8] {
        let descriptor = try Descriptor(opening: path, flags: 0)
        return try descriptor.read(count: Int(descriptor.status().size), at: 0)
    }

    /// Returns the archived log.
    private func archivedLog(_ places: Places) throws -> [UInt8]? {
        let archive = places.group.appending(".groupstore/archive")
        for name in try Directory(archive).names() {
            let log = archive.appending(name).appending("Notes.sqlite-wal")
            if FileStatus(following: log) != nil { return try bytes(log) }
        }
        return nil
    }

    @Test(arguments: Places.FileSystem.allCases) func keepsTheLogAside(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let store = places.legacy.appending("Notes.sqlite")
        let log = try make(store, row: "1")
        let before = try DirectorySnapshot(places.legacy)
        let planned = try groupstore("relocate", Word(store), Word(places.group), "--dry-run", "--json")
        #expect(planned.summary.text.contains("is the write-ahead log of another database"), "\(planned.output)")
        #expect(try DirectorySnapshot(places.legacy) == before)

        let done = try groupstore("relocate", Word(store), Word(places.group), "--json")
        #expect(done.summary.string("outcome") == "relocated", "\(done.output)\(done.errors)")
        #expect(done.summary.text.contains("is the write-ahead log of another database"))
        #expect(try sqlite(places.group.appending("Notes.sqlite"), "SELECT id FROM note") == "1\n")
        #expect(try archivedLog(places) == log)
        #expect(try holdsLinkAlone(places.legacy, to: places.group.appending("Notes.sqlite")))
    }

    @Test(arguments: [true, false]) func mergesTheStoresAlone(atGroup: Bool) throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        let group = places.group.appending("Notes.sqlite")
        let log = try make(atGroup ? group : store, row: "1")
        try sqlite(
            atGroup ? store : group,
            "PRAGMA journal_mode = WAL; CREATE TABLE note (id PRIMARY KEY); INSERT INTO note VALUES (2)")
        let done = try groupstore(
            "relocate", Word(store), Word(places.group), "--on-conflict", "merge", "--json")
        #expect(done.summary.string("outcome") == "merged", "\(done.output)\(done.errors)")
        #expect(try sqlite(group, "SELECT group_concat(id) FROM (SELECT id FROM note ORDER BY id)") == "1,2\n")
        #expect(try archivedLog(places) == log)
    }

    /// The database relies on the log that was replaced, so that neither is a whole store.
    @Test func refusesADatabaseThatIsDamagedWithoutItsLog() throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        _ = try make(store, row: "1")
        try damage(store)
        let before = try DirectorySnapshot(places.legacy)
        for options: [Word] in [["--dry-run"], []] {
            let refused = try groupstore("relocate", Word(store), Word(places.group), "--json", options: options)
            #expect(refused.status == 65, "\(refused.output)")
            #expect(refused.summary.object("error")?.string("code") == "foreign_log", "\(refused.output)")
            #expect(try DirectorySnapshot(places.legacy) == before)
        }
    }

    @Test func inspectSaysThatItIsNotRead() throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        _ = try make(store, row: "1")
        let found = try groupstore("inspect", Word(store))
        #expect(found.status == 0)
        #expect(found.output.contains("is the write-ahead log of another database"), "\(found.output)")
        #expect(found.output.contains("note"))
    }

    @Test func aHistoryIsNotEnabledBesideIt() throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        _ = try make(store, row: "1")
        let refused = try groupstore("history", "enable", Word(store), "--json")
        #expect(refused.status == 65)
        #expect(refused.summary.object("error")?.string("code") == "foreign_log", "\(refused.output)")
    }
}
