import ChangeFeed
import Foundation
import GRDB
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import RowShadow

/// Steps in rollback mode, from journals that were opened while they existed.
@Suite struct JournalStepTests {
    private static let note = "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 'a')"

    private struct Writer {
        let shadow: FollowedShadow
        let queue: DatabaseQueue

        /// Runs a transaction, whose journal is seen before it ends.
        func transaction(_ sql: String, end: String = "COMMIT") throws {
            try queue.writeWithoutTransaction { database in
                try database.execute(sql: "BEGIN; \(sql)")
                shadow.follower?.readJournalEvents()
                try database.execute(sql: end)
            }
        }

        func run(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
    }

    /// A store that is followed, after a first transaction.
    private static func writer(_ sql: String = note, mode: String = "delete") throws -> Writer {
        let shadow = try FollowedShadow(sql, mode: mode)
        let writer = Writer(shadow: shadow, queue: try DatabaseQueue(path: shadow.store.string))
        try writer.run("PRAGMA journal_mode = \(mode)")
        _ = try shadow.steps()
        return writer
    }

    @Test func eachTransactionIsAStep() throws {
        let writer = try Self.writer()
        try writer.transaction("UPDATE note SET text = 'b'")
        #expect(try writer.shadow.steps() == [.init(kind: .exact, rows: ["1: 1,'a' > 1,'b'"])])
        try writer.transaction("UPDATE note SET text = 'c'; INSERT INTO note VALUES (2, 'x')")
        try writer.transaction("UPDATE note SET text = 'y' WHERE id = 2", end: "ROLLBACK")
        try writer.transaction("UPDATE note SET text = 'd' WHERE id = 1")
        try writer.transaction("DELETE FROM note WHERE id = 2")
        #expect(
            try writer.shadow.steps() == [
                .init(kind: .exact, rows: ["1: 1,'b' > 1,'c'", "2: none > 2,'x'"]),
                .init(kind: .exact, rows: ["1: 1,'c' > 1,'d'"]), .init(kind: .exact, rows: ["2: 2,'x' > none"]),
            ])
        #expect(try writer.shadow.steps() == [])
    }

    /// A transaction that spills its cache has several parts in its journal, and may have written the database before
    /// it is rolled back.
    @Test(arguments: ["COMMIT", "ROLLBACK"]) func readsAJournalOfSeveralParts(_ end: String) throws {
        let writer = try Self.writer()
        try writer.run("PRAGMA cache_size = 5; PRAGMA cache_spill = 5")
        let fill = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
        try writer.transaction("INSERT INTO note SELECT i, hex(zeroblob(500)) FROM (\(fill) SELECT i FROM n)")
        let first = try writer.shadow.steps()
        #expect(first.map(\.kind) == [.exact])
        #expect(first.first?.rows.count == 299)
        try writer.transaction("UPDATE note SET text = 'z' || id", end: end)
        try writer.transaction("UPDATE note SET text = 'last' WHERE id = 300")
        let steps = try writer.shadow.steps()
        #expect(steps.map(\.kind) == Array(repeating: .exact, count: end == "COMMIT" ? 2 : 1))
        #expect(steps.last?.rows.count == 1)
    }

    /// A transaction that takes a free page doesn't write its former content into the journal.
    @Test func readsPagesThatWereFree() throws {
        let writer = try Self.writer(
            "CREATE TABLE kept (id INTEGER PRIMARY KEY, b); CREATE TABLE free (id INTEGER PRIMARY KEY, b);"
                + "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
                + "INSERT INTO free SELECT i, zeroblob(2000) FROM n")
        try writer.transaction("DELETE FROM free")
        #expect(try writer.shadow.steps().first?.rows.count == 60)
        for number in 1...20 {
            try writer.transaction("INSERT INTO kept VALUES (\(number), zeroblob(3000 + \(number)))")
            #expect(
                try writer.shadow.steps() == [
                    .init(kind: .exact, rows: ["\(number): none > \(number),x\(3000 + number)"])
                ])
        }
        // A page is freed by one transaction and taken by the next, whose writes stand in it before anybody looks.
        try writer.transaction("DELETE FROM kept WHERE id <= 10")
        try writer.transaction("INSERT INTO free VALUES (1, zeroblob(3500))")
        let rows = try writer.shadow.steps().flatMap(\.rows)
        #expect(rows.filter { $0.hasSuffix("> none") }.count == 10)
        #expect(rows.contains("1: none > 1,x3500"))
        #expect(rows.count == 11)
    }

    /// Of several transactions, one had no journal that could be held: the rows are told as one difference.
    @Test func aTransactionWithoutAJournalIsANetStep() throws {
        let writer = try Self.writer()
        try writer.transaction("UPDATE note SET text = 'b'")
        try writer.run("PRAGMA journal_mode = memory; INSERT INTO note VALUES (2, 'x'); PRAGMA journal_mode = delete")
        try writer.transaction("UPDATE note SET text = 'c' WHERE id = 1")
        #expect(try writer.shadow.steps() == [.init(kind: .net, rows: ["1: 1,'a' > 1,'c'", "2: none > 2,'x'"])])
        try writer.transaction("UPDATE note SET text = 'd' WHERE id = 1")
        #expect(try writer.shadow.steps() == [.init(kind: .exact, rows: ["1: 1,'c' > 1,'d'"])])
    }

    /// A journal that persists is no proof: the transaction that it belongs to commits without its removal.
    @Test(arguments: ["truncate", "persist", "memory", "off"]) func otherModesAreCompared(_ mode: String) throws {
        let writer = try Self.writer()
        try writer.transaction("UPDATE note SET text = 'b'")
        #expect(try writer.shadow.steps().map(\.kind) == [.exact])
        try writer.transaction("UPDATE note SET text = 'x'", end: "ROLLBACK")
        let other = try DatabaseQueue(path: writer.shadow.store.string)
        func write(_ sql: String) throws {
            try other.writeWithoutTransaction { database in
                try database.execute(sql: "PRAGMA journal_mode = \(mode); BEGIN; \(sql)")
                writer.shadow.follower?.readJournalEvents()
                try database.execute(sql: "COMMIT")
            }
        }
        try write("UPDATE note SET text = 'c'")
        #expect(try writer.shadow.steps() == [.init(kind: .net, rows: ["1: 1,'b' > 1,'c'"])])
        try write("INSERT INTO note VALUES (2, 'y')")
        try write("UPDATE note SET text = 'd' WHERE id = 1")
        #expect(try writer.shadow.steps() == [.init(kind: .net, rows: ["1: 1,'c' > 1,'d'", "2: none > 2,'y'"])])
    }

    /// Something that is no transaction writes the store between two.
    @Test func aCopyOverTheStoreIsANetStep() throws {
        let writer = try Self.writer()
        let saved = try Data(contentsOf: writer.shadow.store.url)
        try writer.transaction("UPDATE note SET text = 'b'")
        #expect(try writer.shadow.steps().map(\.kind) == [.exact])
        try writer.queue.close()
        try saved.write(to: writer.shadow.store.url)
        let again = Writer(shadow: writer.shadow, queue: try DatabaseQueue(path: writer.shadow.store.string))
        try again.transaction("INSERT INTO note VALUES (2, 'x')")
        #expect(try writer.shadow.steps() == [.init(kind: .net, rows: ["1: 1,'b' > 1,'a'", "2: none > 2,'x'"])])
    }

    /// Transactions are made while the store is compared.
    @Test func aComparisonReadsAgainWhatTransactionsChanged() throws {
        let writer = try Self.writer()
        let shadow = writer.shadow
        try writer.transaction("INSERT INTO note VALUES (2, zeroblob(60000))")
        _ = try shadow.steps()
        let follower = try #require(shadow.follower)
        let name = try #require(StoreName("s.db"))
        let files = try #require(try StoreFiles.current(shadow.directory.path, name, unless: nil))
        let count = follower.shadow.pages.pageCount
        follower.journals?.begin()
        let former = follower.shadow.stage(pageSize: 4096, pageCount: count)
        try former.finish()
        try writer.transaction("DELETE FROM note WHERE id = 2")
        try writer.transaction("INSERT INTO note VALUES (3, randomblob(90000))")
        #expect(try files.header()?.pageCount ?? count > count)
        let staged = try #require(try follower.stageAgain(former, files))
        let store = try Data(contentsOf: shadow.store.url)
        #expect(Int(staged.pageCount) * 4096 == store.count)
        for page in 1...staged.pageCount {
            let present = store[(Int(page) - 1) * 4096..<Int(page) * 4096]
            #expect(try staged.withPage(page) { Data($0) } == present, "page \(page)")
        }
    }

    /// SQLite cuts pages off after it has removed the journal.
    @Test func aTransactionThatShortensTheStoreIsANetStep() throws {
        let writer = try Self.writer("PRAGMA auto_vacuum = 1; VACUUM; \(Self.note)")
        try writer.transaction("INSERT INTO note VALUES (2, zeroblob(60000))")
        #expect(try writer.shadow.steps().map(\.kind) == [.exact])
        try writer.transaction("DELETE FROM note WHERE id = 2")
        #expect(try writer.shadow.steps() == [.init(kind: .net, rows: ["2: 2,x60000 > none"])])
        try writer.transaction("INSERT INTO note VALUES (3, 'c')")
        #expect(try writer.shadow.steps() == [.init(kind: .exact, rows: ["3: none > 3,'c'"])])
    }

    /// A file of the journal's name is no proof that a transaction wrote the store.
    @Test func anEmptyJournalProvesNoWrite() throws {
        let shadow = try FollowedShadow(Self.note, mode: "delete")
        let name = try #require(StoreName("s.db"))
        let watch = try JournalWatch(shadow.directory.path, name)
        let journal = shadow.directory.path.appending(name.journal)
        watch.begin()
        try Data().write(to: journal.url)
        watch.read()
        try FileManager.default.removeItem(at: journal.url)
        #expect(watch.finished?.count == 1)
        try Data().write(to: journal.url)
        watch.read()
        try Data(contentsOf: shadow.store.url).write(to: shadow.store.url)
        try FileManager.default.removeItem(at: journal.url)
        #expect(watch.finished == nil)
    }

    /// What was told, applied to what was known, is the store's content, whatever the transactions are.
    @Test(arguments: [1, 2, 3]) func replayedStepsAreTheStore(_ seed: UInt64) throws {
        var numbers = SeededGenerator(seed: seed)
        let writer = try Self.writer("CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        try writer.run("PRAGMA cache_size = \(seed == 1 ? 5 : 100); PRAGMA auto_vacuum = \(seed == 3 ? 2 : 0); VACUUM")
        _ = try writer.shadow.steps()
        var known: [String: String] = [:]
        var kinds: [LoggedStep.Kind] = []
        for round in 1...150 {
            let first = Int.random(in: 1...200, using: &numbers)
            let length = [3, 40, 900, 5000].randomElement(using: &numbers) ?? 3
            let some = "id BETWEEN \(first) AND \(first + Int.random(in: 0...60, using: &numbers))"
            let sql =
                [
                    "INSERT OR REPLACE INTO note VALUES (\(first), hex(zeroblob(\(length))) || \(round))",
                    "UPDATE note SET text = \(round) || hex(zeroblob(\(length))) WHERE \(some)",
                    "DELETE FROM note WHERE \(some)",
                    "INSERT OR REPLACE INTO note WITH RECURSIVE n(i) AS (SELECT \(first) UNION ALL SELECT i + 1 FROM n "
                        + "WHERE i < \(first + 50)) SELECT i, \(round) || hex(zeroblob(\(length))) FROM n",
                    "CREATE TABLE other\(round) AS SELECT * FROM note; DROP TABLE other\(round)",
                    "PRAGMA incremental_vacuum(5); DELETE FROM note WHERE id = \(first)",
                ].randomElement(using: &numbers) ?? ""
            let end = Int.random(in: 1...6, using: &numbers) == 1 ? "ROLLBACK" : "COMMIT"
            try writer.transaction(sql, end: end)
            guard Int.random(in: 1...2, using: &numbers) == 1 else { continue }
            for step in try writer.shadow.steps() {
                kinds.append(step.kind)
                for row in step.rows {
                    let sides = row.split(separator: ": ", maxSplits: 1)[1].components(separatedBy: " > ")
                    let id = String(row.prefix { $0 != ":" })
                    #expect(known[id] ?? "none" == sides[0])
                    known[id] = sides[1] == "none" ? nil : sides[1]
                }
            }
            let present = try writer.queue.read { database in
                try Row.fetchAll(database, sql: "SELECT id, text FROM note").map { row -> (String, String) in
                    let (id, text): (Int64, String) = (row[0], row[1])
                    return ("\(id)", "\(id),'\(text)'")
                }
            }
            #expect(known == Dictionary(uniqueKeysWithValues: present), "round \(round)")
        }
        #expect(kinds.filter { $0 == .exact }.count > kinds.count / 2)
    }
}
