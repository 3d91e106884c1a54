import Foundation
import GRDB
import LinuxSystem
import SQLiteFormat
import SystemPackage
import Testing

@testable import PersistentHistory

/// Stores with one schema: without history, with history, and with triggers that only write a row elsewhere.
final class Twins {
    struct Count: CustomStringConvertible {
        var (alike, failed, alterations, recorded, gaps, asTriggers) = (0, 0, 0, 0, 0, 0)

        mutating func add(_ other: Count) {
            alike += other.alike
            failed += other.failed
            alterations += other.alterations
            recorded += other.recorded
            gaps += other.gaps
            asTriggers += other.asTriggers
        }

        var description: String {
            "\(alike) done and \(failed) refused alike, \(alterations) changes of the schema, \(recorded) changes recorded, "
                + "\(gaps) gaps, \(asTriggers) as with any triggers"
        }
    }

    private var schema: TwinSchema
    private let queues: [DatabaseQueue]
    private let recorded: StoreLocation
    private(set) var count = Count()
    private var log: [String] = []
    private var comparesRowID = true
    /// True while the history may miss changes, until it is updated.
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
        queues = try ["plain.sqlite", "recorded.sqlite", "triggered.sqlite"].map {
            try DatabaseQueue(path: directory.appending($0).string, configuration: configuration)
        }
        recorded = StoreLocation(
            directory: try Directory(directory),
            name: try #require(StoreName("recorded.sqlite" as FilePath.Component)))
    }

    func perform(_ steps: Int) throws -> String? {
        try queues[0].writeWithoutTransaction { plain in
            try queues[1].writeWithoutTransaction { recorded in
                try queues[2].writeWithoutTransaction { triggered in
                    let stores = [plain, recorded, triggered]
                    defer { for store in stores { try? store.execute(sql: "ROLLBACK") } }
                    do {
                        return try run(steps, stores).map { "\($0)\n" + log.joined(separator: ";\n") }
                    } catch is AsWithTriggers {
                        count.asTriggers += 1
                        return nil
                    }
                }
            }
        }
    }

    /// The stores can't be compared any further.
    private struct AsWithTriggers: Error {}

    private func run(_ steps: Int, _ stores: [Database]) throws -> String? {
        let (plain, recorded) = (stores[0], stores[1])
        for statement in schema.creation() {
            if let problem = try all(statement, stores) { return problem }
        }
        for table in try Self.tables(plain) where schema.chance(60) {
            if let problem = try all(schema.index(on: table), stores) { return problem }
        }
        try update(stores)
        var oracle = try oracle(recorded)
        for _ in 0..<steps {
            let tables = try Self.tables(plain)
            guard !tables.isEmpty else { return nil }
            if schema.chance(12), !plain.isInsideTransaction {
                if let problem = try alter(tables, stores) { return problem }
                oracle = try self.oracle(recorded)
                continue
            }
            let (sql, wasInside) = (schema.write(tables), plain.isInsideTransaction)
            if let problem = try all(sql, stores) { return problem }
            if sql.hasPrefix("ROLLBACK") || wasInside && !plain.isInsideTransaction && sql != "COMMIT" {
                oracle = try self.oracle(recorded)
            }
            let known = (oracle.recorded, oracle.gaps)
            let problem = try oracle.disagreement(recorded, Self.tables(plain).map(\.asRandom))
            if let problem, !isStale { return problem }
            count.recorded += oracle.recorded - known.0
            count.gaps += oracle.gaps - known.1
        }
        return nil
    }

    private func alter(_ tables: [TwinSchema.Table], _ stores: [Database]) throws -> String? {
        let alteration = schema.alteration(tables, indexes: try Self.indexes(stores[0]))
        for statement in alteration.statements {
            if let problem = try all(statement, stores) { return problem }
        }
        count.alterations += 1
        if alteration.effect == .unknown { isStale = true }
        if alteration.effect == .breaks || schema.chance(40) { try update(stores) }
        return nil
    }

    private func oracle(_ database: Database) throws -> HistoryOracle {
        try HistoryOracle(
            database, Self.tables(database).map(\.asRandom), mayHaveGaps: true, checksColumns: false)
    }

    private func update(_ stores: [Database]) throws {
        log.append("-- history enable")
        _ = try HistoryInstallation(recorded).enable()
        isStale = false
        schema.renamed = []
        let former = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'other *'"
        for name in try String.fetchAll(stores[2], sql: former) {
            try stores[2].execute(sql: "DROP TRIGGER \"\(name)\"")
        }
        try stores[2].execute(sql: "CREATE TABLE IF NOT EXISTS GS_OTHER (x NOT NULL)")
        for (place, table) in try Self.tables(stores[2]).enumerated() {
            for event in ["INSERT", "UPDATE", "DELETE"] {
                try stores[2].execute(
                    sql: """
                        CREATE TRIGGER "other \(place) \(event)" AFTER \(event) ON \(schema.quoted(table.name)) \
                        BEGIN INSERT INTO GS_OTHER VALUES (1); SELECT RAISE(ABORT, '') WHERE 0; END
                        """)
            }
        }
    }

    /// Returns the difference between the stores after a statement.
    private func all(_ sql: String, _ stores: [Database]) throws -> String? {
        log.append(sql)
        // VACUUM counts the schema's entries as rows, and there are more with history.
        if sql == "VACUUM" { comparesRowID = false }
        let outcomes = try stores.map { store in
            try (end: outcome(sql, store), rows: Self.content(store))
        }
        log[log.count - 1] += " -- \(outcomes[0].end)"
        if outcomes[0].end.hasPrefix("error") { count.failed += 1 } else { count.alike += 1 }
        if outcomes[0] == outcomes[1], outcomes[0] == outcomes[2] { return nil }
        if outcomes[0] == outcomes[1] || outcomes[1] == outcomes[2] { throw AsWithTriggers() }
        return "without history: \(outcomes[0])\nwith: \(outcomes[1])"
    }

    /// Returns the outcome of a statement as an app can observe it.
    private func outcome(_ sql: String, _ database: Database) -> String {
        do {
            let rows = try Row.fetchAll(database, sql: sql).map { Array($0.databaseValues) }
            return "\(rows) \(database.changesCount) \(comparesRowID ? database.lastInsertedRowID : 0) "
                + "\(database.isInsideTransaction)"
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
