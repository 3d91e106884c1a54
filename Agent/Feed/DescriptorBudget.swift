import LinuxSystem
import Synchronization

/// How many files this process may have open, shared out before they are opened: a store that is followed can be followed
/// to its end, and what there is no room for is refused at once.
package final class DescriptorBudget: Sendable {
    package enum Use: Sendable {
        /// Its directory, its database, its log and the log's index.
        case store
        case connection

        var count: Int { self == .store ? 4 : 1 }
    }

    private let taken = Mutex<[Use: Int]>([:])
    /// Of this process.
    package let limit: Int

    package init(limit: Int = ResourceLimit.descriptors) { self.limit = limit }

    /// Without end, for tests.
    package static var unlimited: DescriptorBudget { DescriptorBudget(limit: 1 << 30) }

    /// For all else: the agent's own files, a relocation, the reading of a history.
    private var shared: Int { max(0, limit - min(128, max(32, limit / 8))) }

    /// False when there is no room for one more. Neither stores nor connections take all of it.
    func take(_ use: Use) -> Bool {
        taken.withLock { taken in
            let own = taken[use, default: 0] + use.count
            let all = taken.values.reduce(use.count, +)
            guard all <= shared, own <= shared / 4 * 3 else { return false }
            taken[use] = own
            return true
        }
    }

    func giveBack(_ use: Use) { taken.withLock { $0[use, default: 0] -= use.count } }

    /// What to say where there is no room.
    var shortage: String {
        "this process may have \(limit) files open, and there is no room for more (EMFILE); "
            + "raise LimitNOFILE= of the agent's unit, or ulimit -Hn before it is started"
    }
}
