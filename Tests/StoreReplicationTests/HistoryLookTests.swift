import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreReplication

/// Another store's content may be written over a home's file, by `cat` or as a backup.
struct HistoryLookTests {
    private let pair: ReplicatedPair
    private let other: StoreLocation

    init() throws {
        pair = try ReplicatedPair("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        other = try ReplicatedPair.location(pair.directory.path.appending("other.sqlite"))
        let writer = try StoreWriter(other.path, creating: true)
        for number in 0..<20 { try writer.execute("CREATE TABLE t\(number) (a)") }
    }

    private func look(_ store: StoreLocation) throws -> HistoryLook {
        try StoreReader.read(store) { try HistoryLook($0) }
    }

    private func enable(_ store: StoreLocation, adding row: Bool) throws {
        #expect(try HistoryInstallation(store).enable().kind == .enabled)
        if row { try ReplicatedPair.write("INSERT INTO t0 VALUES (1)", store) }
    }

    @Test func aHistoryThatIsDisabledAndEnabledIsTheSameStores() throws {
        let before = try look(pair.home)
        #expect(try HistoryInstallation(pair.home).disable().kind == .disabled)
        #expect(try HistoryInstallation(pair.home).enable().kind == .enabled)
        #expect(try !before.isContradicted(by: look(pair.home)))
        try pair.write("INSERT INTO t VALUES (2)")
        let after = try look(pair.home)
        #expect(after.token.history != before.token.history && !before.isContradicted(by: after))
        #expect(!after.isContradicted(by: after))
    }

    /// SQLite raises the version of the schema by one.
    @Test func aRestoredBackupOfAnotherStoreIsAnotherHistory() throws {
        try enable(other, adding: false)
        let before = try look(pair.home)
        let target = try ReplicaConnection(pair.home, busyTimeout: .seconds(1))
        try ContentReplacement(of: target, by: StoreWriter(other.path)).finish()
        #expect(try before.isContradicted(by: look(pair.home)))
    }

    /// Its schema has changed more often, and its oldest change is older.
    @Test func anOlderStoreIsAnotherHistory() throws {
        try enable(other, adding: true)
        let before = try look(pair.home)
        let after = try look(other)
        #expect(after.schemaVersion > before.schemaVersion + 12)
        #expect(before.isContradicted(by: after))
    }
}
