import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization

/// The claim that a relocation holds on its store, until the store has arrived at its destination or stays at its old
/// place.
final class RelocationClaim {
    private let item: ClaimedItem
    private let claim: Claim
    private let registry: any PresenterRegistry
    private let number: UInt64
    private var hasEnded = false

    /// Waits until presenters have relinquished the store and no other claim conflicts. Throws `FileCoordinationError`.
    init(
        _ item: ClaimedItem, in container: GroupContainer, registry: any PresenterRegistry, deadline: Deadline,
        isCancelled: @escaping @Sendable () -> Bool, report: @escaping ([FileHolder]) -> Void
    ) throws {
        self.item = item
        self.registry = registry
        let intents = [ClaimIntent(item, .write(.forMoving))]
        let claim = try Claim(intents, in: container)
        self.claim = claim
        let waitReport = Mutex(WaitReport())
        // Called on this thread only, and only until the claim is granted.
        nonisolated(unsafe) let report = report
        let wait = ClaimWait(
            deadline,
            isCancelled: {
                let holders = waitReport.withLock {
                    $0.newHolders { claim.blockers() + registry.presenters(of: item).map(\.holder) }
                }
                if let holders { report(holders) }
                return isCancelled()
            })
        number = try ClaimProcedure(claim: claim, intents: intents, registry: registry).run(wait)
    }

    /// The holders that are waited for. Reports them when they change, and not before 300 ms.
    private struct WaitReport {
        private var reported: [FileHolder] = []
        private var next = ContinuousClock.now.advanced(by: .milliseconds(300))

        mutating func newHolders(_ holders: () -> [FileHolder]) -> [FileHolder]? {
            guard next <= .now else { return nil }
            next = .now.advanced(by: .milliseconds(300))
            let found = holders()
            guard found != reported, !found.isEmpty else { return nil }
            reported = found
            return found
        }
    }

    /// Ends the claim: presenters reacquire the store. Does nothing when called again.
    func end(published: Bool) {
        guard !hasEnded else { return }
        hasEnded = true
        claim.release()
        // Presenters know the store by this name already; now it is there.
        registry.end(
            number, .init(tookPlace: published, moves: published ? [.init(from: item, to: item)] : []))
    }
}
