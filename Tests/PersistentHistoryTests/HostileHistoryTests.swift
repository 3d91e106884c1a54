import Foundation
import SQLiteStore
import TestSupport
import Testing

@testable import PersistentHistory

/// Tests history tables with content that groupstore would never write: any program that may write to a store can put
/// it there.
@Suite struct HostileHistoryTests {
    static let values = [
        "9223372036854775807", "-9223372036854775808", "0", "-1", "x'ff00'", "x''", "'abc'", "''", "NULL", "9e999",
        "-1e300",
        "'[[[['", "'[1,2'", "randomblob(70000)",
    ]

    private static let columns = [
        "GS_CHANGE.number", "GS_CHANGE.nonce", "GS_CHANGE.table_id", "GS_CHANGE.operation", "GS_CHANGE.key",
        "GS_CHANGE.columns", "GS_CHANGE.author", "GS_CHANGE.time", "GS_TABLE.id", "GS_TABLE.name",
        "GS_TABLE.key_columns",
        "GS_TABLE.columns", "GS_TABLE.installed", "GS_HISTORY.identifier", "GS_HISTORY.version",
        "GS_HISTORY.schema_version", "GS_HISTORY.trimmed", "GS_HISTORY.trimmed_nonce", "GS_SUBSCRIBER.name",
        "GS_SUBSCRIBER.number", "GS_SUBSCRIBER.nonce", "GS_SUBSCRIBER.time", "GS_AUTHOR.name",
    ]

    /// Each call returns or throws; a trap would end the tests.
    @Test(arguments: Tier.cases(columns, quick: ["GS_TABLE.columns", "GS_HISTORY.version", "GS_SUBSCRIBER.number"]))
    func survivesAnyContent(_ column: String) throws {
        let parts = column.split(separator: ".")
        for value in Self.values {
            let store = try Fixture(
                "CREATE TABLE note (id INTEGER PRIMARY KEY, t); CREATE TABLE k (a TEXT, b, PRIMARY KEY (a, b)) WITHOUT ROWID"
            )
            _ = try HistoryInstallation(store.location).enable(images: true)
            try store.write("INSERT INTO note (t) VALUES ('a'); UPDATE note SET t = 'b'; INSERT INTO k VALUES ('x', 1)")
            let token = try store.current()
            try HistoryMaintenance(store.location).acknowledge(token, by: "s")
            // A value that the column's constraints reject can't be there.
            guard (try? store.write("UPDATE \(parts[0]) SET \(parts[1]) = \(value)")) != nil else { continue }
            for last in [1, 20] { _ = try? store.read { (try $0.summary(), try $0.latest(last)) } }
            _ = try? store.changes()
            _ = try? store.changes(after: token)
            let start = HistoryToken(history: token.history, number: 0, nonce: 0)
            for since in [start, token] {
                _ = try? StoreReader.read(store.location) { try ChangeBatch($0).page(after: since) }
            }
            _ = try? store.enable()
            _ = try? HistoryMaintenance(store.location).acknowledge(token, by: "s")
            for purge in [{ $0.age = 0 }, { $0.count = 1 }, { $0.acknowledged = true }]
                as [(inout HistoryMaintenance.Purge) -> Void]
            {
                var options = HistoryMaintenance.Purge()
                purge(&options)
                _ = try? HistoryMaintenance(store.location).purge(options)
            }
            _ = try? HistoryInstallation(store.location).disable()
        }
    }

    @Test func findsTheLastChangesWithAnyNumbers() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("INSERT INTO note (title) VALUES ('a'), ('b'), ('c')")
        try store.write("UPDATE GS_CHANGE SET number = 9223372036854775807 WHERE number = 3")
        try store.write("UPDATE GS_CHANGE SET number = -9223372036854775808 WHERE number = 1")
        #expect(try store.read { try $0.latest(2) }.map(\.number) == [2, .max])
        #expect(try store.read { try $0.latest(20) }.map(\.number) == [.min, 2, .max])
    }

    /// A page is bounded in bytes too, and nothing is left out for it.
    @Test func splitsLongChangesIntoPages() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("UPDATE GS_AUTHOR SET name = hex(zeroblob(500000))")
        try store.write(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
            INSERT INTO note (title) SELECT i FROM n
            """)
        var numbers: [Int64] = []
        var pages = 0
        var token = try store.read { try $0.start() }
        while true {
            let page = try store.read { try $0.changes(after: token, limit: 1000) }
            #expect(page.changes.reduce(0) { $0 + $1.size } <= StoreHistory.pageBytes + 2_000_000)
            numbers += page.changes.map(\.number)
            (token, pages) = (page.token, pages + 1)
            if page.isLast { break }
        }
        #expect(numbers == Array(1...30) && pages > 5)
        // A change that is longer than a page gets its own page.
        try store.write(
            "UPDATE GS_AUTHOR SET name = hex(zeroblob(4000000)); INSERT INTO note (title) VALUES ('x'), ('y')")
        let page = try store.read { try $0.changes(after: token, limit: 1000) }
        #expect(page.changes.count == 1 && !page.isLast)
    }

    /// A malformed history causes an error that names the store.
    @Test func failsWithoutTheHistoryRow() throws {
        let store = try Fixture()
        _ = try store.enable()
        try store.write("DELETE FROM GS_HISTORY")
        #expect(throws: HistoryError.self) { try store.enable() }
    }
}
