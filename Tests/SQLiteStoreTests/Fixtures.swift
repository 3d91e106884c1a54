import Foundation
import GRDB
import LinuxSystem
import SystemPackage
import TestSupport

@testable import SQLiteFormat
@testable import SQLiteStore

/// A store in a temporary directory, in any state in which a program may leave it.
struct Fixture {
    let temporary: TemporaryDirectory
    let location: StoreLocation

    init(_ name: String = "Notes.sqlite") throws { try self.init(FilePath.Component(bytes: Array(name.utf8))) }

    init(_ name: FilePath.Component?) throws {
        temporary = try TemporaryDirectory()
        guard let name, let store = StoreName(name) else { throw FixtureError.badName }
        location = StoreLocation(directory: try Directory(temporary.path), name: store)
    }

    var path: String { temporary.path.string + "/" + location.name.database.string }

    /// Runs SQL and closes the connection.
    func make(_ sql: String) throws {
        let queue = try DatabaseQueue(path: path)
        try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        try queue.close()
    }

    /// Runs SQL on a connection in another directory, and copies the files with these suffixes while it is open. The
    /// store is in the state after a crash.
    func makeCrashed(_ sql: String, parts: [String]) throws {
        let other = try TemporaryDirectory()
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let queue = try DatabaseQueue(path: other.path.string + "/store", configuration: configuration)
        try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        for part in parts { try Data(contentsOf: Self.url(other.path, "store" + part)).write(to: url(part)) }
        try queue.writeWithoutTransaction { if $0.isInsideTransaction { try $0.execute(sql: "ROLLBACK") } }
        try queue.close()
    }

    func url(_ suffix: String = "") -> URL { URL(fileURLWithPath: path + suffix) }

    private static func url(_ directory: FilePath, _ name: String) -> URL {
        URL(fileURLWithPath: directory.string + "/" + name)
    }

    func change(at offset: Int, to bytes: [UInt8]) throws {
        let handle = try FileHandle(forUpdating: url())
        try handle.seek(toOffset: UInt64(offset))
        try handle.write(contentsOf: Data(bytes))
        try handle.close()
    }

    func describe() throws -> StoreDescription { try StoreDescription(location, busyTimeout: .zero) }

    func read<Result>(_ body: (StoreReader) throws -> Result) throws -> Result {
        try StoreReader.read(location, busyTimeout: .zero, body)
    }

    func difference(from other: Fixture) throws -> ContentDifference? {
        try read { mine in
            try other.read { try StoreContent(mine).difference(from: StoreContent($0)) }
        }
    }

    /// Reads each value of each row.
    func readAll() throws { _ = try difference(from: self) }

    func isEmptyOrSchemaOnly() throws -> Bool { try read { try StoreContent($0).isEmptyOrSchemaOnly() } }
}

enum FixtureError: Error {
    case badName, ended
}

/// The content of a directory: each name with its times, mode and bytes, and the directory's own times, which reveal
/// names that came and went.
struct Snapshot: Equatable {
    private var entries: [[UInt8]: Entry] = [:]
    private let directory: FileStatus

    private struct Entry: Equatable {
        let status: FileStatus
        let bytes: [UInt8]?
    }

    init(_ path: FilePath) throws {
        let directory = try Directory(path)
        for name in try directory.names() {
            guard let status = try directory.status(name) else { continue }
            let bytes =
                status.kind == .regular ? try DurableFile.read(name, in: directory, limit: Int(status.size)) : nil
            entries[name.bytes] = Entry(status: status, bytes: bytes)
        }
        self.directory = try directory.status()
    }

    /// Names and bytes only. As root, SQLite gives a live `-shm` to the database's owner each time it opens it, which
    /// changes its change time.
    var content: [[UInt8]: [UInt8]?] { entries.mapValues(\.bytes) }
}

/// A `sqlite3` shell in a separate process.
final class SQLiteShell {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()

    init(_ path: String) throws {
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["sqlite3", "-batch", path]
        process.standardInput = input
        process.standardOutput = output
        try process.run()
    }

    /// Runs SQL and waits until the shell has finished it.
    func run(_ sql: String) throws {
        try input.fileHandleForWriting.write(contentsOf: Data("\(sql)\n.print done\n".utf8))
        var received = Data()
        while received.range(of: Data("done\n".utf8)) == nil {
            guard let more = try output.fileHandleForReading.read(upToCount: 1), !more.isEmpty else {
                throw FixtureError.ended
            }
            received += more
        }
    }

    deinit {
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
    }
}
