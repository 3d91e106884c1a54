import Foundation
import TestSupport
import Testing

@testable import PersistentHistory

/// One store with history and one without, written by the same statements: each must end alike, whatever the schema
/// becomes. A third store has triggers that only write a row elsewhere: where SQLite itself does otherwise as soon as a table has triggers
/// (the order of an UPDATE's rows, for one), history may do as that one does. `GROUPSTORE_HISTORY_STATEMENTS` makes it longer, `GROUPSTORE_HISTORY_SEED` another one.
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
