import Foundation
import GRDB
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import PersistentHistory

/// Compares history with the tables' content for random schemas and statements. `GROUPSTORE_HISTORY_STATEMENTS` sets
/// the number of statements, `GROUPSTORE_HISTORY_SEED` the seed.
struct RandomHistoryTests {
    private static func number(_ name: String, _ standard: UInt64) -> UInt64 {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } ?? standard
    }

    @Test func recordsWhatHappened() throws {
        let statements = Self.number("GROUPSTORE_HISTORY_STATEMENTS", Tier.isSoak ? 3000 : 500)
        let seed = Self.number("GROUPSTORE_HISTORY_SEED", 1)
        let directory = try TemporaryDirectory()
        var done: UInt64 = 0
        var round = seed
        var (changed, recorded) = (0, 0)
        while done < statements {
            let run = try RandomRun(seed: round, in: directory.path)
            let problem = try run.perform(100)
            if let problem {
                Issue.record("seed \(round): \(problem)")
                return
            }
            changed += run.changed
            recorded += run.recorded
            done += 100
            round += 1
        }
        print("history: \(done) statements, \(changed) rows changed, \(recorded) changes recorded, all agree")
        #expect(changed > Int(statements) / 8)
    }
}

/// One schema with statements on it.
private final class RandomRun {
    private let seed: UInt64
    private let location: StoreLocation
    private var schema: RandomSchema
    private var random: SeededGenerator
    private(set) var changed = 0
    private(set) var recorded = 0

    init(seed: UInt64, in directory: FilePath) throws {
        self.seed = seed
        schema = RandomSchema(seed: seed)
        random = SeededGenerator(seed: seed &+ 77)
        let name = try #require(FilePath.Component("store\(seed).sqlite").flatMap(StoreName.init))
        location = StoreLocation(directory: try Directory(directory), name: name)
    }

    func perform(_ count: Int) throws -> String? {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = seed % 3 != 0
        let (recursive, trusted) = (seed % 2 == 0, seed % 5 == 0)
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA synchronous = OFF; PRAGMA recursive_triggers = \(recursive)")
            try database.execute(sql: "PRAGMA trusted_schema = \(trusted)")
        }
        let queue = try DatabaseQueue(path: location.path.string, configuration: configuration)
        try queue.writeWithoutTransaction { database in
            for statement in schema.statements { try database.execute(sql: statement) }
        }
        let before = try queue.read { try Self.schema($0) }
        let installed = try HistoryInstallation(location).enable()
        guard installed.kind == .enabled, installed.unrecorded.isEmpty else { return "\(installed)" }
        var oracle = try queue.read { try HistoryOracle($0, schema.tables) }
        for step in 0..<count {
            if step % 25 == 24, let alteration = schema.randomAlteration() {
                try? queue.writeWithoutTransaction { try $0.execute(sql: alteration) }
                let outcome = try HistoryInstallation(location).enable()
                if !alteration.contains(" RENAME TO "),
                    outcome.gaps.contains(where: { name in
                        schema.tables.contains { $0.name == name && !Self.isUnstable($0) }
                    })
                {
                    return "\(alteration): a gap in \(outcome.gaps)"
                }
                oracle = try queue.read { try HistoryOracle($0, schema.tables) }
            }
            let statement = schema.randomStatement()
            // Many statements run into a conflict, and some leave part of their work behind.
            try? queue.writeWithoutTransaction { try $0.execute(sql: statement) }
            let problem = try queue.read { try oracle.disagreement($0, schema.tables) }
            if let problem {
                let text = schema.statements.joined(separator: ";\n")
                let notes = try queue.read { database in
                    try [
                        "SELECT * FROM GS_REPLACED",
                        "SELECT * FROM (SELECT * FROM GS_CHANGE ORDER BY number DESC LIMIT 12)",
                    ]
                    .flatMap { try Row.fetchAll(database, sql: $0) }.map { "\($0)" }.joined(separator: "\n")
                }
                return "step \(step): \(problem)\n\(statement)\n\(text)\n\(notes)"
            }
        }
        (changed, recorded) = (oracle.changed, oracle.recorded)
        _ = try HistoryInstallation(location).disable()
        let after = try queue.read { try Self.schema($0) }
        try queue.close()
        return after.contains { $0.contains("GS_") } || after.count != before.count ? "traces are left" : nil
    }

    private static func isUnstable(_ table: RandomSchema.Table) -> Bool {
        table.isRowid && !table.columns.contains("id")
    }

    private static func schema(_ database: Database) throws -> [String] {
        try String.fetchAll(database, sql: "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema")
    }
}
