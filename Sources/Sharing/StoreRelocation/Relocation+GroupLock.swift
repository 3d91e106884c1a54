import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat

/// The group's lock, and the wait for programs that keep a store open.
extension Relocation {
    /// Runs `body` under the group's lock, once interrupted transfers of `stores` are finished or undone. If a program
    /// keeps one of `stores` open, releases the lock, so that the group's other stores can be moved, waits for that
    /// program, and runs `body` again.
    func withGroupLock<Result>(
        _ container: GroupContainer, afterRecovering stores: [StoreLocation], _ body: () throws -> Result
    ) throws -> Result {
        var observations = HolderObservations()
        return try retries.run(
            .run, of: request.source,
            willWait: { reason, _ in try awaitRelease(of: stores, after: reason, &observations) }
        ) {
            try withGroupLock(container) {
                try Recovery(container: container, report: report).run(before: stores)
                return try body()
            }
        }
    }

    /// Runs `body` under the group's lock. First completes what earlier runs had to leave: archives that a killed purge
    /// has withdrawn get their names back, and stores their write-ahead logging.
    func withGroupLock<Result>(_ container: GroupContainer, _ body: () throws -> Result) throws -> Result {
        let reportTime = ContinuousClock.now.advanced(by: .milliseconds(300))
        var isReported = false
        let lock: OpenFileLock
        do {
            lock = try retries.run(
                .lock, of: request.source,
                willWait: { _, _ in
                    guard !isReported, reportTime <= .now else { return }
                    isReported = true
                    report(.note("waiting for another relocation in this group (process \(container.lockHolder()))"))
                }
            ) {
                guard let lock = try container.lock() else { throw RetryPolicy.GroupLockHeld() }
                return lock
            }
        } catch is RetryPolicy.GroupLockHeld {
            throw RelocationFailure.lockHeld(by: container.lockHolder(), container)
        }
        _ = try container.sign(lock)
        return try withExtendedLifetime(lock) { _ in
            try container.returnWithdrawnArchives()
            try PendingWriteAhead(container: container).retry(relinquishedBy: opener)
            return try body()
        }
    }

    /// Waits until the store that `reason` names seems to be closed. Throws `reason` at the deadline.
    private func awaitRelease(
        of stores: [StoreLocation], after reason: any Error, _ observations: inout HolderObservations
    ) throws {
        guard case StoreTransfer.RetryReason.held(let identity) = reason,
            let store = try stores.first(where: { try $0.directory.identity($0.name.database) == identity })
        else { return }
        var probe: FileProbe?
        // Each attempt wakes the other process that probes it.
        var probeBackoff = Backoff(first: .milliseconds(10), longest: .seconds(2))
        var nextProbe = ContinuousClock.now
        do {
            try retries.run(
                .release, of: request.source,
                willWait: { _, delay in
                    guard delay >= .milliseconds(20) else { return }
                    let holders = FileHolder.of(identity)
                    if observations.shouldReport(holders) { report(.waiting(for: holders)) }
                }
            ) {
                // The other process that probes it, an agent perhaps, may relocate it.
                guard (try? store.directory.identity(store.name.database)) == identity else { return }
                if probe == nil, nextProbe <= .now {
                    nextProbe = .now.advanced(by: probeBackoff.next())
                    do { probe = try FileProbe(store.name.database, in: store.directory) } catch { return }
                }
                // Without leases in the file system, the transfer reports that.
                guard let probe, !probe.isOpenElsewhere else { throw RetryPolicy.StoreOpen() }
            }
        } catch is RetryPolicy.StoreOpen {
            throw reason
        }
    }
}
