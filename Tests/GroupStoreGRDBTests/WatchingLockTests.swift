import FoundationEssentials
import GRDB
import GroupStore
import SystemPackage
import TestSupport
import Testing

/// A process that closes any descriptor of a database loses its record locks on it. The changes of a store are watched
/// beside the app's own connections all the same.
@Suite(.timeLimit(.minutes(10))) struct WatchingLockTests {
    private static func isLocked(_ path: FilePath) throws -> Bool {
        let done = try run("sqlite3", [Word(path), "BEGIN IMMEDIATE; COMMIT"])
        return done.errors.contains("locked")
    }

    @Test(arguments: ["DELETE", "WAL"]) func watchingReleasesNoLockOfTheProcess(_ mode: String) async throws {
        let scratch = try TemporaryDirectory()
        let path = scratch.path.appending("Notes.sqlite")
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let queue = try DatabaseQueue(path: path.string, configuration: configuration)
        try await queue.writeWithoutTransaction { database in
            try database.execute(sql: "PRAGMA journal_mode = \(mode); CREATE TABLE note (text)")
            try database.execute(sql: "BEGIN IMMEDIATE; INSERT INTO note VALUES ('one')")
        }
        #expect(try Self.isLocked(path))
        for _ in 1...5 {
            var changes = StoreChanges(of: URL(filePath: path.string)).makeAsyncIterator()
            guard case .reset? = try await changes.next() else { throw Unexpected("no reset") }
            #expect(try Self.isLocked(path))
        }
        var changes = StoreChanges(of: URL(filePath: path.string)).makeAsyncIterator()
        _ = try await changes.next()
        try await queue.writeWithoutTransaction { try $0.execute(sql: "COMMIT") }
        guard case .changed? = try await changes.next() else { throw Unexpected("no change") }
        #expect(try !Self.isLocked(path))
        // Nor does it lose one while it works.
        try await queue.writeWithoutTransaction { database in
            try database.execute(sql: "BEGIN IMMEDIATE; INSERT INTO note VALUES ('two')")
        }
        #expect(try Self.isLocked(path))
        try await queue.writeWithoutTransaction { try $0.execute(sql: "COMMIT") }
        try queue.close()
    }
}
