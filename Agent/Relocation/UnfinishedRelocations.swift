import AppRelocation
import GroupContainers
import LinuxSystem
import Logging
import StoreRelocation
import Synchronization
import SystemPackage

/// Finishes or undoes the relocations that earlier runs left unfinished: at the start, with each configuration, and,
/// after a failure, from time to time. Only the scheduler's thread uses it, except for `recover`.
struct UnfinishedRelocations: Sendable {
    /// Each group's last logged failure, which is not logged twice.
    private final class LoggedFailures: Sendable {
        let messages = Mutex<[FilePath: String]>([:])
    }

    private let logger: Logger
    private let logged = LoggedFailures()
    /// The time of the next retry after a failure; nil if there is nothing to retry.
    private(set) var dueAt: ContinuousClock.Instant?
    private var backoff = Backoff(first: .seconds(1), longest: .seconds(300))
    private var runningCount = 0
    private var hasFailed = false

    init(logger: Logger) { self.logger = logger }

    var isDue: Bool { dueAt.map { $0 <= .now } ?? false }

    var isIdle: Bool { runningCount == 0 }

    /// Returns the groups with unfinished relocations. Call `recover` for each, then `ended`.
    mutating func begin(_ configuration: Configuration) -> [FilePath] {
        guard isIdle else {
            // The running recovery uses another configuration: once more, soon.
            hasFailed = true
            return []
        }
        let groups = configuration.groups.map(\.directory).filter { group in
            guard let container = try? GroupContainer(group) else { return false }
            // A journal that can't be read counts as one.
            return (try? container.journals().isEmpty) != true || RemovalRecord.isUnfinished(in: container.directory)
                || isAppUnfinished(container)
        }
        (dueAt, hasFailed, runningCount) = (nil, false, groups.count)
        return groups
    }

    mutating func ended(_ isDone: Bool) {
        runningCount -= 1
        if !isDone { hasFailed = true }
        guard isIdle else { return }
        if !hasFailed { backoff.reset() }
        dueAt = hasFailed ? .now.advanced(by: backoff.next()) : nil
    }

    /// Recovers one group. Returns false if it must be retried.
    func recover(_ group: FilePath) -> Bool {
        do {
            let container = try GroupContainer(group)
            // The holder of the lock recovers the group, unless it is killed.
            guard let failures = try recoverStores(container) else { return false }
            try endAppMove(container)
            logFailure(failures.map { "\($0)" }.joined(separator: "; "), of: group)
            return failures.isEmpty
        } catch {
            logFailure("\(error)", of: group)
            return false
        }
    }

    /// Returns what failed, or nil if another process has the group's lock.
    private func recoverStores(_ container: GroupContainer) throws -> [any Error]? {
        guard let lock = try container.lock() else { return nil }
        return try withExtendedLifetime(lock) { _ in
            try RemovalRecord.removeUnfinished(in: container.directory)
            return try Recovery(container: container) { event in
                if case .recovered(let text) = event { logger.notice("\(text)") }
                if case .note(let text) = event { logger.notice("\(text)") }
            }.runAll()
        }
    }

    /// True if a killed move has left its directory without a name, or programs that it has stopped. A copy that isn't
    /// complete waits for the next run of that move.
    private func isAppUnfinished(_ container: GroupContainer) -> Bool {
        do {
            guard let journal = try container.appJournal(), journal.state != .copying else {
                return try container.stoppedPrograms() != nil
            }
            return true
        } catch {
            // A record that can't be read counts as one.
            return true
        }
    }

    /// Finishes a killed move, or gives the directory its name back, and starts what the move has stopped. A copy that
    /// isn't complete stays for the next run of that move.
    private func endAppMove(_ container: GroupContainer) throws {
        guard isAppUnfinished(container) else { return }
        var request = AppMoveRequest(source: container.directory.path, destination: container.directory.path)
        request.deadline = .zero
        let apps = AppRelocation(
            request,
            report: { event in
                switch event {
                case .started(let programs):
                    logger.notice("started \(programs.list), which an interrupted move had stopped")
                case .note(let text): logger.notice("\(text)")
                default: break
                }
            })
        guard let ended = try apps.recover(keepingCopy: true) else { return }
        let (from, to) = (PrintablePath(ended.from), ended.to.map { " to \(PrintablePath($0))" } ?? "")
        logger.notice(
            ended.remedy == .finish
                ? "finished the interrupted move of \(from)\(to)"
                : "took back the interrupted move of \(from)\(to)")
    }

    private func logFailure(_ text: String, of group: FilePath) {
        guard logged.messages.withLock({ $0.updateValue(text, forKey: group) }) != text, !text.isEmpty else { return }
        logger.error("can't clean up after an interrupted relocation in \(PrintablePath(group)): \(text)")
    }
}
