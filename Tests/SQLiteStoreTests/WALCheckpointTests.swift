import Foundation
import LinuxSystem
import SystemPackage
import Testing

@testable import SQLiteStore

@Suite struct WALCheckpointTests {
    private static let log =
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE note (text); INSERT INTO note VALUES (1); "

    private func size(_ fixture: Fixture, _ suffix: String) throws -> Int64? {
        try fixture.location.directory.status(#require(FilePath.Component("Notes.sqlite" + suffix)))?.size
    }

    @Test func checkpointsACrashedProgramsWAL() throws {
        let fixture = try Fixture()
        try fixture.makeCrashed(Self.log, parts: ["", "-wal", "-shm"])
        try WALCheckpoint.perform(fixture.location)
        #expect(try size(fixture, "-wal") == 0)
        #expect(try fixture.read { try $0.integer("SELECT count(*) FROM note") } == 1)
    }

    /// With the store open in an idle connection, a reader's snapshot and a writer's transaction.
    @Test(arguments: ["SELECT count(*) FROM note", "BEGIN; SELECT count(*) FROM note", "BEGIN IMMEDIATE"])
    func refusesAWALThatAnotherProgramHasOpen(_ sql: String) throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run(Self.log + ";" + sql + ";")
        let before = try [size(fixture, ""), size(fixture, "-wal")]
        #expect(throws: (any Error).self) { try WALCheckpoint.perform(fixture.location) }
        #expect(try [size(fixture, ""), size(fixture, "-wal")] == before)
    }

    @Test func refusesAWALThatAReadOnlyProgramHasOpen() throws {
        let fixture = try Fixture()
        try fixture.makeCrashed(Self.log, parts: ["", "-wal", "-shm"])
        let shell = try SQLiteShell("file:\(fixture.path)?mode=ro")
        try shell.run("SELECT count(*) FROM note;")
        let before = try size(fixture, "-wal")
        #expect(throws: (any Error).self) { try WALCheckpoint.perform(fixture.location) }
        #expect(try size(fixture, "-wal") == before)
    }

    /// SQLite's own lock excludes programs that open the store meanwhile.
    @Test func anExclusiveConnectionLocksOthersOut() throws {
        let fixture = try Fixture()
        try fixture.makeCrashed(Self.log, parts: ["", "-wal", "-shm"])
        let exclusive = try StoreConnection(fixture.location, busyTimeout: .zero, locking: .exclusive)
        #expect(try exclusive.text("SELECT count(*) FROM note") == "1")
        let output = try Self.shell(fixture.path, "INSERT INTO note VALUES (2)")
        #expect(output.contains("locked"))
        #expect(try exclusive.text("SELECT count(*) FROM note") == "1")
    }

    private static func shell(_ path: String, _ sql: String) throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["sqlite3", "-batch", path, sql]
        let output = Pipe()
        (process.standardOutput, process.standardError) = (output, output)
        try process.run()
        let bytes = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return String(decoding: bytes, as: UTF8.self)
    }

    /// After a commit larger than SQLite's automatic checkpoint limit, and when the last connection is closed.
    @Test func connectionsDoNotCheckpointByThemselves() throws {
        let fixture = try Fixture()
        try fixture.make("PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        let before = try size(fixture, "")
        do {
            let connection = try StoreConnection(fixture.location, busyTimeout: .zero)
            try connection.execute("INSERT INTO note VALUES (zeroblob(8000000))")
            try connection.execute("INSERT INTO note VALUES (1)")
        }
        #expect(try size(fixture, "") == before)
        #expect(try size(fixture, "-wal") ?? 0 > 8_000_000)
        #expect(try fixture.read { try $0.integer("SELECT count(*) FROM note") } == 2)
    }

    @Test func reducesAnIdleStoreToOneFile() throws {
        let fixture = try Fixture()
        try fixture.make("PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        let unopened = try #require(TemporarySideFiles(fixture.location))
        do { try StoreConnection(fixture.location, busyTimeout: .zero).execute("INSERT INTO note VALUES (1)") }
        #expect(try size(fixture, "-wal") ?? 0 > 0)
        // Other tests start processes, which have all files of this one open until they run their program.
        let deadline = Deadline(after: .seconds(60))
        repeat {
            unopened.checkpointAndRemove()
        } while try fixture.location.directory.names().count > 1 && !deadline.hasPassed
        #expect(try fixture.location.directory.names().map(\.string) == ["Notes.sqlite"])
        #expect(try fixture.read { try $0.integer("SELECT count(*) FROM note") } == 1)
    }

    @Test func keepsTheWALOfAStoreThatIsOpenElsewhere() throws {
        let fixture = try Fixture()
        try fixture.make("PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        let unopened = try #require(TemporarySideFiles(fixture.location))
        let shell = try SQLiteShell(fixture.path)
        try shell.run("INSERT INTO note VALUES (1);")
        #expect(TemporarySideFiles(fixture.location).map { _ in true } == nil)
        let before = try size(fixture, "-wal")
        unopened.checkpointAndRemove()
        #expect(try size(fixture, "-wal") == before)
        try shell.run("INSERT INTO note VALUES (2);")
    }
}
