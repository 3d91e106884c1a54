import Foundation
import GRDB
import LinuxSystem
import PersistentStore
import SystemPackage
import TestSupport
import Testing

@testable import PersistentHistory

/// One store with history and one without, written by the same statements: each must end alike, whatever the schema
/// becomes. `GROUPSTORE_HISTORY_STATEMENTS` makes it longer, `GROUPSTORE_HISTORY_SEED` another one.
struct TwinHistoryTests {
    private static func number(_ name: String, _ standard: UInt64) -> UInt64 {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } ?? standard
    }

    @Test func historyChangesNothingForTheApp() throws {
        let statements = Self.number("GROUPSTORE_HISTORY_STATEMENTS", 3000)
        var seed = Self.number("GROUPSTORE_HISTORY_SEED", 1)
        var done = 0
        var total = Twins.Count()
        while done < statements {
            let directory = try TemporaryDirectory()
            let twins = try Twins(seed: seed, in: directory.path)
            if let problem = try twins.perform(100) {
                Issue.record("seed \(seed): \(problem)")
                return
            }
            total.add(twins.count)
            done += 100
            seed += 1
        }
        print("history, twins: \(done) statements, \(total)")
        #expect(total.alike > done / 4 && total.recorded > done / 4 && total.alterations > done / 50)
    }
}

/// Two stores with one schema.
private final class Twins {
    struct Count: CustomStringConvertible {
        var (alike, failed, alterations, recorded, gaps) = (0, 0, 0, 0, 0)

        mutating func add(_ other: Count) {
            alike += other.alike
            failed += other.failed
            alterations += other.alterations
            recorded += other.recorded
            gaps += other.gaps
        }

        var description: String {
            "\(alike) done and \(failed) refused alike, \(alterations) changes of the schema, \(recorded) changes recorded, "
                + "\(gaps) gaps"
        }
    }

    private var schema: TwinSchema
    private let queues: [DatabaseQueue]
    private let recorded: StoreLocation
    private(set) var count = Count()
    private var log: [String] = []
    /// Whether the history may miss changes, until it is brought up to date.
    private var isStale = false

    init(seed: UInt64, in directory: FilePath) throws {
        schema = TwinSchema(seed: seed)
        var configuration = Configuration()
        configuration.foreignKeysEnabled = seed % 3 != 0
        configuration.allowsUnsafeTransactions = true
        let (recursive, trusted) = (seed % 2 == 0, seed % 5 == 0)
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA synchronous = OFF; PRAGMA recursive_triggers = \(recursive)")
            try database.execute(sql: "PRAGMA trusted_schema = \(trusted)")
        }
        queues = try ["plain.sqlite", "recorded.sqlite"].map {
            try DatabaseQueue(path: directory.appending($0).string, configuration: configuration)
        }
        recorded = StoreLocation(
            directory: try Directory(directory),
            name: try #require(StoreName("recorded.sqlite" as FilePath.Component)))
    }

    func perform(_ steps: Int) throws -> String? {
        try queues[0].writeWithoutTransaction { plain in
            try queues[1].writeWithoutTransaction { recorded in
                defer { for database in [plain, recorded] { try? database.execute(sql: "ROLLBACK") } }
                return try run(steps, plain, recorded).map { "\($0)\n" + log.joined(separator: ";\n") }
            }
        }
    }

    private func run(_ steps: Int, _ plain: Database, _ recorded: Database) throws -> String? {
        for statement in schema.creation() {
            if let problem = try both(statement, plain, recorded) { return problem }
        }
        for table in try Self.tables(plain) where schema.chance(60) {
            if let problem = try both(schema.index(on: table), plain, recorded) { return problem }
        }
        try update()
        var oracle = try oracle(recorded)
        for _ in 0..<steps {
            let tables = try Self.tables(plain)
            guard !tables.isEmpty else { return nil }
            if schema.chance(12), !plain.isInsideTransaction {
                let alteration = schema.alteration(tables, indexes: try Self.indexes(plain))
                for statement in alteration.statements {
                    if let problem = try both(statement, plain, recorded) { return problem }
                }
                count.alterations += 1
                if alteration.effect == .unknown { isStale = true }
                if alteration.effect == .breaks || schema.chance(40) { try update() }
                oracle = try self.oracle(recorded)
            } else {
                if let problem = try both(schema.write(tables), plain, recorded) { return problem }
                let now = try Self.tables(plain).map(\.asRandom)
                let problem = try oracle.disagreement(recorded, now)
                if let problem, !isStale { return problem }
            }
            if try Self.content(plain) != Self.content(recorded) { return "other rows" }
        }
        count.recorded += oracle.recorded
        count.gaps += oracle.gaps
        return nil
    }

    private func oracle(_ database: Database) throws -> HistoryOracle {
        try HistoryOracle(
            database, Self.tables(database).map(\.asRandom), mayHaveGaps: true, checksColumns: false)
    }

    private func update() throws {
        log.append("-- history enable")
        _ = try HistoryInstallation(recorded).enable()
        isStale = false
        schema.renamed = []
    }

    /// What differs between the two stores after a statement.
    private func both(_ sql: String, _ plain: Database, _ recorded: Database) throws -> String? {
        log.append(sql)
        let outcomes = [plain, recorded].map { Self.outcome(sql, $0) }
        log[log.count - 1] += " -- \(outcomes[0])"
        if outcomes[0].hasPrefix("error") { count.failed += 1 } else { count.alike += 1 }
        return outcomes[0] == outcomes[1] ? nil : "without history: \(outcomes[0])\nwith: \(outcomes[1])"
    }

    /// What an app can see of a statement's end.
    private static func outcome(_ sql: String, _ database: Database) -> String {
        do {
            let rows = try Row.fetchAll(database, sql: sql).map { Array($0.databaseValues) }
            return "\(rows) \(database.changesCount) \(database.lastInsertedRowID) \(database.isInsideTransaction)"
        } catch let error as DatabaseError {
            return "error \(error.extendedResultCode.rawValue) \(error.message ?? "") \(database.isInsideTransaction)"
        } catch {
            return "error \(error)"
        }
    }

    // MARK: What is there

    private static func tables(_ database: Database) throws -> [TwinSchema.Table] {
        try Row.fetchAll(
            database,
            sql: """
                SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'
                AND name NOT LIKE 'GS\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
                """
        ).map { row in
            let name = (row["name"] as String?) ?? ""
            let columns = try Row.fetchAll(
                database, sql: "SELECT name, hidden, pk FROM pragma_table_xinfo(?)", arguments: [name])
            let named = { (rows: [Row]) in rows.map { ($0["name"] as String?) ?? "" } }
            return TwinSchema.Table(
                name: name, columns: named(columns.filter { ($0["hidden"] as Int?) == 0 }),
                generated: named(columns.filter { ($0["hidden"] as Int?) != 0 }), isRowid: (row["wr"] as Int?) == 0,
                primaryKey: named(
                    columns.filter { ($0["pk"] as Int? ?? 0) > 0 }
                        .sorted { ($0["pk"] as Int? ?? 0) < ($1["pk"] as Int? ?? 0) }))
        }
    }

    private static func indexes(_ database: Database) throws -> [String] {
        try String.fetchAll(database, sql: "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql NOT NULL")
    }

    private static func content(_ database: Database) throws -> HistoryOracle.Content {
        try HistoryOracle.content(database, tables(database).map(\.asRandom))
    }
}

extension TwinSchema.Table {
    fileprivate var asRandom: RandomSchema.Table {
        RandomSchema.Table(
            name: name, columns: columns, isRowid: isRowid,
            primaryKey: primaryKey.map { "\"" + $0.replacing("\"", with: "\"\"") + "\"" })
    }
}
