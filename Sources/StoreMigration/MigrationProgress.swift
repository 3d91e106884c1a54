/// What a migration may do.
public struct MigrationOptions: Equatable, Sendable {
    /// Lets persistent history lose the changes of entities that are removed, as
    /// `NSPersistentHistoryAllowPartialHistoryMigration` does; otherwise such a migration is refused.
    public var allowsPartialHistory: Bool

    public init(allowsPartialHistory: Bool = false) { self.allowsPartialHistory = allowsPartialHistory }
}

/// How far a migration is, for a progress bar: from 0 to 1, and what is being done.
final class MigrationProgress {
    private let report: (Double, String) -> Void
    private let total: Int64
    private var done: Int64 = 0
    private var current: Int64 = 0
    private var ticks: Int64 = 0
    private var doing = ""
    private var told = -1.0

    /// SQLite's instructions between two ticks, and about what a row takes of them.
    private static let rowsPerTick: Int64 = 500

    /// - Parameter total: Rows in all steps.
    init(total: Int64, _ report: @escaping (Double, String) -> Void) {
        self.total = max(total, 1)
        self.report = report
    }

    /// What was done is done, and this begins.
    func step(_ doing: String, rows: Int64 = 0) {
        done += current
        current = rows
        ticks = 0
        self.doing = doing
        tell()
    }

    /// Called now and then while a statement runs: how far it is isn't known, only that it goes on.
    func tick() {
        ticks += 1
        tell()
    }

    func finish() {
        done = total
        current = 0
        doing = "migrated"
        tell()
    }

    private func tell() {
        let within = min(current, ticks * Self.rowsPerTick)
        let fraction = min(1, Double(done + within) / Double(total))
        // A line for each percent at most, and one for each thing done.
        guard fraction >= told + 0.01 || ticks == 0 else { return }
        told = max(told, fraction)
        report(told, doing)
    }
}
