import GroupContainer
import Logging
import LinuxSystem
import StoreRelocation

/// What earlier runs left half done is brought to its end before anything else. The scheduler's thread only.
struct UnfinishedRelocations {
    let logger: Logger
    /// When to try again what could not be brought to its end; nil when there is nothing.
    private(set) var dueAt: ContinuousClock.Instant?
    private var backoff = Backoff()

    init(logger: Logger) { self.logger = logger }

    var isDue: Bool { dueAt.map { $0 <= .now } ?? false }

    mutating func bringToEnd(_ configuration: Configuration) {
        let failures = configuration.groups.map(recover).filter { !$0 }
        if failures.isEmpty { backoff = Backoff() }
        dueAt = failures.isEmpty ? nil : backoff.next()
    }

    /// False when it is to be tried again.
    private func recover(_ group: Configuration.Group) -> Bool {
        do {
            guard let container = try? GroupContainer(group.directory), try container.journal() != nil else {
                return true
            }
            // Whoever holds the lock brings it to its end; unless they are killed.
            guard let lock = try container.lock() else { return false }
            try withExtendedLifetime(lock) { _ in
                try Recovery(container: container) { event in
                    if case .recovered(let text) = event { logger.notice("\(text)") }
                    if case .note(let text) = event { logger.notice("\(text)") }
                }.run()
            }
            return true
        } catch {
            logger.error(
                "what an interrupted relocation may have left in \(PrintablePath(group.directory)) stays: \(error)")
            return false
        }
    }
}
