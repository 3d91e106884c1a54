import GRDB
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import PersistentHistory

/// A temporary store for a test.
final class Fixture {
    let directory: TemporaryDirectory
    let location: StoreLocation

    init(
        _ sql: String = "CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT)", name: String = "a.sqlite",
        encoding: String = "UTF-8"
    ) throws {
        directory = try TemporaryDirectory()
        location = StoreLocation(
            directory: try Directory(directory.path),
            name: try #require(FilePath.Component(name).flatMap(StoreName.init)))
        if encoding != "UTF-8" {
            // GRDB reads the file as soon as it has opened it, which is too late for PRAGMA encoding. In a file without
            // text, the encoding is a single byte (https://sqlite.org/fileformat.html#text_encoding).
            try write("PRAGMA user_version = 1")
            let file = try FileDescriptor.open(location.path, .writeOnly)
            try file.closeAfter { _ = try file.writeAll(toAbsoluteOffset: 59, encoding == "UTF-16le" ? [2] : [3]) }
        }
        try write("PRAGMA journal_mode = WAL; \(sql)")
    }

    func write(_ sql: String) throws {
        let queue = try DatabaseQueue(path: location.path.string)
        defer { try? queue.close() }
        try queue.writeWithoutTransaction { try $0.execute(sql: "PRAGMA synchronous = OFF; \(sql)") }
    }

    func schema() throws -> [String] {
        let queue = try DatabaseQueue(path: location.path.string)
        defer { try? queue.close() }
        return try queue.read {
            try String.fetchAll($0, sql: "SELECT type || name || coalesce(sql, '') FROM sqlite_schema ORDER BY rowid")
        }
    }

    func enable() throws -> HistoryInstallation.Outcome { try HistoryInstallation(location).enable() }

    func read<Result>(_ body: (StoreHistory) throws -> Result) throws -> Result {
        try StoreReader.read(location) { try body(StoreHistory($0)) }
    }

    /// Returns the changes after the token, or all changes.
    func changes(after token: HistoryToken? = nil, filter: HistoryFilter = HistoryFilter()) throws -> [HistoryChange] {
        try read { try $0.changes(after: token ?? $0.start(), limit: 10_000, filter: filter).changes }
    }

    func current() throws -> HistoryToken { try read { try $0.current() } }

    /// Returns the discontinuity that `changes` throws.
    func discontinuity(after token: HistoryToken) throws -> StoreHistory.Discontinuity? {
        do {
            _ = try changes(after: token)
            return nil
        } catch let error as StoreHistory.Discontinuity {
            return error
        }
    }
}
