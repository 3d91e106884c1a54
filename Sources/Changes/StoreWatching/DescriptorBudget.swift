import LinuxSystem
import Synchronization

/// Divides this process's descriptors in advance: a store that is followed stays followable, and what exceeds the
/// budget is refused at once. A name without a store has none.
package final class DescriptorBudget: Sendable {
    package enum Use: Sendable {
        /// A store: its directory, its database, its log and the log's index.
        case store
        case connection
        /// A log, or a database and its journal, that a process has open after it lost its name.
        case branch

        var count: Int {
            switch self {
            case .store: 4
            case .branch: 2
            case .connection: 1
            }
        }
    }

    private let reserved = Mutex<[Use: Int]>([:])
    /// The process's limit on open files.
    package let limit: Int

    /// The remedy for a shortage.
    private let remedy: String

    package init(
        limit: Int = ResourceLimit.descriptors,
        remedy: String = "raise LimitNOFILE= of the agent's unit, or ulimit -Hn before it is started"
    ) {
        self.limit = limit
        self.remedy = remedy
    }

    /// A budget without a limit, for tests.
    package static var unlimited: DescriptorBudget { DescriptorBudget(limit: 1 << 30) }

    /// The descriptors for stores and connections. The rest is for the agent's own files, relocations and reading
    /// histories.
    private var shared: Int { max(0, limit - min(128, max(32, limit / 8))) }

    /// Reserves descriptors; false if there is no room. Neither stores nor connections can use up the whole budget.
    /// `mayExceed`: reserves them in any case, for a short time.
    package func reserve(_ use: Use, mayExceed: Bool = false) -> Bool {
        reserved.withLock { reserved in
            let own = reserved[use, default: 0] + use.count
            let all = reserved.values.reduce(use.count, +)
            guard mayExceed || (all <= shared && own <= shared / 4 * 3) else { return false }
            reserved[use] = own
            return true
        }
    }

    package func release(_ use: Use) { reserved.withLock { $0[use, default: 0] -= use.count } }

    /// The message for a use that is refused.
    package var shortage: String {
        "this process may have \(limit) files open, and keeps those for the stores and connections that it has; \(remedy)"
    }
}
