/// The permissions of a migration.
///
///     let options = MigrationOptions(allowsPartialHistory: true)
public struct MigrationOptions: Equatable, Sendable {
    /// True if persistent history may lose the changes of removed entities, as with
    /// `NSPersistentHistoryAllowPartialHistoryMigration`. If false, such a migration is refused.
    public var allowsPartialHistory: Bool
    /// The check of the objects by the newest model's validation rules after the migration.
    public var validation: MigrationValidation

    /// Creates options.
    public init(allowsPartialHistory: Bool = false, validation: MigrationValidation = .none) {
        self.allowsPartialHistory = allowsPartialHistory
        self.validation = validation
    }
}

/// The check of migrated objects: limits, lengths, patterns and predicates of attributes, mandatory properties, numbers
/// of related objects, and delete rules that deny what a migration drops. Core Data itself checks limits and patterns
/// only when an object is saved, and no delete rule.
public enum MigrationValidation: String, Sendable, CaseIterable {
    /// No check but the one that every migration makes.
    case none
    /// Migrates, and reports the faults.
    case report
    /// Refuses the migration if there is a fault. The store is unchanged then.
    case refuse
}

/// Reports a migration's progress for a progress bar: a fraction from 0 to 1 and the current activity.
final class MigrationProgress {
    private let report: (Double, String) -> Void
    private let total: Int64
    /// The rows of finished activities.
    private var done: Int64 = 0
    /// The rows of the current activity.
    private var current: Int64 = 0
    private var ticks: Int64 = 0
    private var doing = ""
    private var reported = -1.0

    /// The estimated rows that SQLite processes between two ticks.
    private static let rowsPerTick: Int64 = 500

    /// - Parameter total: The rows in all steps.
    init(total: Int64, _ report: @escaping (Double, String) -> Void) {
        self.total = max(total, 1)
        self.report = report
    }

    /// Finishes the current activity and begins the next one.
    func step(_ doing: String, rows: Int64 = 0) {
        done += current
        current = rows
        ticks = 0
        self.doing = doing
        reportIfAdvanced()
    }

    /// Records a sign of life from a running statement, whose actual progress is unknown. SQLite calls it periodically.
    func tick() {
        ticks += 1
        reportIfAdvanced()
    }

    func finish() {
        done = total
        current = 0
        doing = "migrated"
        reportIfAdvanced()
    }

    private func reportIfAdvanced() {
        let within = min(current, ticks * Self.rowsPerTick)
        let fraction = min(1, Double(done + within) / Double(total))
        // At most one report for each percent, plus one for each activity.
        guard fraction >= reported + 0.01 || ticks == 0 else { return }
        reported = max(reported, fraction)
        report(reported, doing)
    }
}
