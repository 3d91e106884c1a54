import Foundation
import TestSupport
import Testing

@testable import PersistentHistory

/// Writes one store with history and one without by the same statements: each statement must end alike, whatever the
/// schema becomes. A third store has triggers that only write a row elsewhere. SQLite itself behaves differently as
/// soon as a table has triggers (for example in the order of an UPDATE's rows), and history may then behave like the
/// third store. `GROUPSTORE_HISTORY_STATEMENTS` sets the number of statements, `GROUPSTORE_HISTORY_SEED` the seed.
struct TwinHistoryTests {
    private static func number(_ name: String, _ standard: UInt64) -> UInt64 {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) } ?? standard
    }

    @Test func changesNothingForTheApp() throws {
        let statements = Self.number("GROUPSTORE_HISTORY_STATEMENTS", Tier.isSoak ? 3000 : 500)
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
