import Foundation
import GRDB
import SystemPackage
import TestSupport
import Testing

@testable import SQLiteStore

/// Damaged files must cause a descriptive error.
@Suite struct DamageTests {
    private static let garbage: [UInt8] = {
        var generator = SeededGenerator(seed: 4096)
        return (0..<4096).map { _ in UInt8.random(in: 0...255, using: &generator) }
    }()

    private static let rows = """
        CREATE TABLE note(id INTEGER PRIMARY KEY, title TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO note SELECT i, hex(randomblob(40)) FROM n;
        """

    private func isCorrupt(_ error: any Error) -> Bool {
        if case StoreError.corrupt = error { true } else { false }
    }

    private func expectCorrupt(_ fixture: Fixture, sourceLocation: SourceLocation = #_sourceLocation) {
        do {
            _ = try fixture.describe()
            Issue.record("it was read", sourceLocation: sourceLocation)
        } catch {
            #expect(isCorrupt(error), "\(error)", sourceLocation: sourceLocation)
        }
    }

    @Test(arguments: ["DELETE", "WAL"]) func reportsATruncatedFile(mode: String) throws {
        let fixture = try Fixture()
        try fixture.make("PRAGMA journal_mode = \(mode);" + Self.rows)
        let bytes = try Data(contentsOf: fixture.url())
        try bytes.prefix(bytes.count / 2).write(to: fixture.url())
        expectCorrupt(fixture)
        try bytes.prefix(5000).write(to: fixture.url())
        expectCorrupt(fixture)
    }

    @Test func reportsAPageOfGarbage() throws {
        let fixture = try Fixture()
        try fixture.make(Self.rows)
        try fixture.change(at: 4096, to: Self.garbage)
        expectCorrupt(fixture)
    }

    @Test func reportsASchemaOfGarbage() throws {
        let fixture = try Fixture()
        try fixture.make(Self.rows)
        try fixture.change(at: 100, to: Array(Self.garbage.prefix(3996)))
        expectCorrupt(fixture)
    }

    @Test func reportsADamagedHeader() throws {
        let fixture = try Fixture()
        try fixture.make(Self.rows)
        try fixture.change(at: 16, to: [0xFF, 0xFF])
        #expect(throws: StoreError.foreign(.damagedSQLite3, fixture.location.path)) { try fixture.describe() }
    }

    /// Any changed bytes must lead to a description or a typed error, never a crash.
    @Test func survivesRandomDamage() throws {
        let fixture = try Fixture()
        try fixture.make(Self.rows)
        let whole = try Data(contentsOf: fixture.url())
        var random = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var damaged = whole
            for _ in 0..<Int.random(in: 1...20, using: &random) {
                damaged[Int.random(in: 0..<damaged.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            try damaged.write(to: fixture.url())
            do { try fixture.readAll() } catch { #expect(error is StoreError) }
        }
    }
}
