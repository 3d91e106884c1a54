import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreReplication

/// A home and its replica, for a test.
final class ReplicatedPair {
    let directory: TemporaryDirectory
    let home: StoreLocation
    let copy: StoreLocation
    private var made = 0

    init(_ sql: String, encoding: String = "UTF-8") throws {
        directory = try TemporaryDirectory()
        home = try Self.location(directory.path.appending("home.sqlite"))
        copy = try Self.location(directory.path.appending("replica.sqlite"))
        let writer = try StoreWriter(home.path, creating: true)
        try writer.execute("PRAGMA encoding = '\(encoding)'")
        try writer.execute("PRAGMA journal_mode = WAL")
        try writer.execute(script: sql)
        let kind = try HistoryInstallation(home).enable().kind
        try #require(kind == .enabled)
    }

    static func location(_ path: FilePath) throws -> StoreLocation {
        StoreLocation(
            directory: try Directory(path.removingLastComponent()),
            name: try #require(path.lastComponent.flatMap(StoreName.init)))
    }

    /// Runs statements at home, as an app does.
    func write(_ sql: String) throws { try Self.write(sql, home) }

    static func write(_ sql: String, _ store: StoreLocation) throws {
        let writer = try StoreWriter(store.path)
        try writer.execute("PRAGMA synchronous = OFF")
        try writer.execute("PRAGMA foreign_keys = ON")
        try writer.execute(script: sql)
    }

    func snapshot() throws -> Snapshot {
        made += 1
        return try Snapshot.make(of: home, at: directory.path.appending("snapshot\(made)"))
    }

    func replica() throws -> Replica { try Replica.create(copy, from: snapshot(), stream: "test") }

    /// Returns a batch's parts.
    func parts(after token: HistoryToken, size: Int = BatchPart.maxBodySize) throws -> [BatchPart] {
        var parts: [BatchPart] = []
        _ = try ReplicationSource(home).batch(after: token, maxPartSize: size) { parts.append($0) }
        return parts
    }

    /// Brings the replica up to date by one batch, and returns the last outcome.
    @discardableResult func update(_ replica: Replica, size: Int = BatchPart.maxBodySize) throws -> Replica.Outcome {
        var last = Replica.Outcome.skipped
        for part in try parts(after: replica.position, size: size) { last = try replica.apply(part) }
        return last
    }

    /// Compares all that SQL shows of the two stores, the follower's own tables aside.
    func isEqual() throws -> Bool { try Self.content(home) == Self.content(copy) }

    /// Reads all through a connection like an app's: a `StoreReader` would drop the locks of the replica's own.
    ///
    /// - Parameter history: False for a store that may keep none.
    static func content(_ store: StoreLocation, history: Bool = true) throws -> [String: [[StoredValue]]] {
        let database = try StoreWriter(store.path)
        let encoding = try TextEncoding(database)
        var found: [String: [[StoredValue]]] = [:]
        func read(_ name: String, _ sql: String) throws {
            let row = try database.prepare(sql)
            var rows: [[StoredValue]] = []
            while try row.step() { rows.append((0..<row.columnCount).map { row.storedValue($0, encoding: encoding) }) }
            found[name] = rows
        }
        try read("tables", "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY 1")
        let ownOnly = ["GS_HISTORY", "GS_REPLICA", "GS_SUBSCRIBER", "GS_REPLACED"]
        let tables = found.removeValue(forKey: "tables") ?? []
        for case (.text(let name), .integer(let isKeyed)) in tables.map({ ($0[0], $0[1]) })
        where !ownOnly.contains(name) && !name.hasPrefix("sqlite_schema") {
            let rowid = isKeyed == 0 ? "rowid, " : ""
            try read(name, "SELECT \(rowid)* FROM \(name.sqlName) ORDER BY 1, 2")
        }
        if history { try read("history", "SELECT identifier, version, trimmed, trimmed_nonce FROM GS_HISTORY") }
        for pragma in ["user_version", "application_id", "encoding"] { try read(pragma, "PRAGMA \(pragma)") }
        return found
    }
}
