import GroupContainers
import LinuxSystem
import Logging
import StoreRelocation
import Synchronization
import SystemPackage

/// What earlier runs left half done is brought to its end: at the start, with each configuration, and, where that failed,
/// from time to time. The scheduler's thread only, except for `recover`.
struct UnfinishedRelocations: Sendable {
    /// What was said of a group's last failure: it is not said twice.
    private final class Said: Sendable {
        let words = Mutex<[FilePath: String]>([:])
    }

    private let logger: Logger
    private let said = Said()
    /// When to try again what could not be brought to its end; nil when there is nothing.
    private(set) var dueAt: ContinuousClock.Instant?
    private var backoff = Backoff()
    private var underWay = 0
    private var hasFailed = false

    init(logger: Logger) { self.logger = logger }

    var isDue: Bool { dueAt.map { $0 <= .now } ?? false }

    var isOver: Bool { underWay == 0 }

    /// The groups in which there is something to bring to its end; `recover` is to be called for each, then `ended`.
    mutating func begin(_ configuration: Configuration) -> [FilePath] {
        guard isOver else {
            // What is under way goes by another configuration: once more, soon.
            hasFailed = true
            return []
        }
        let groups = configuration.groups.map(\.directory).filter { group in
            guard let container = try? GroupContainer(group) else { return false }
            // One that can't be read is one, too.
            return (try? container.journals().isEmpty) != true
        }
        (dueAt, hasFailed, underWay) = (nil, false, groups.count)
        return groups
    }

    mutating func ended(_ isDone: Bool) {
        underWay -= 1
        if !isDone { hasFailed = true }
        guard isOver else { return }
        if !hasFailed { backoff = Backoff() }
        dueAt = hasFailed ? backoff.next() : nil
    }

    /// False when it is to be tried again.
    func recover(_ group: FilePath) -> Bool {
        do {
            let container = try GroupContainer(group)
            // Whoever holds the lock brings it to its end; unless they are killed.
            guard let lock = try container.lock() else { return false }
            let failures = try withExtendedLifetime(lock) { _ in
                try Recovery(container: container) { event in
                    if case .recovered(let text) = event { logger.notice("\(text)") }
                    if case .note(let text) = event { logger.notice("\(text)") }
                }.runAll()
            }
            say(failures.map { "\($0)" }.joined(separator: "; "), of: group)
            return failures.isEmpty
        } catch {
            say("\(error)", of: group)
            return false
        }
    }

    private func say(_ text: String, of group: FilePath) {
        guard said.words.withLock({ $0.updateValue(text, forKey: group) }) != text, !text.isEmpty else { return }
        logger.error("what an interrupted relocation may have left in \(PrintablePath(group)) stays: \(text)")
    }
}
