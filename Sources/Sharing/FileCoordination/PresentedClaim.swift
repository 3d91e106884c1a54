import GroupContainers
import LinuxSystem

/// A lock for as long as an item is open here. A process that displaces the item's presenters waits until it is
/// released, whether or not it could ask them. Readers don't wait.
package final class PresentedClaim: Sendable {
    /// Nil if the process may not write to the group container and nobody has claimed the item yet.
    private let claim: Claim?

    /// Waits until no process that displaces the item's presenters is accessing it. Claims of coordinators of
    /// `presenter` don't conflict with this one. Throws `FileCoordinationError`: `busy` with the holders, `cancelled`.
    package init(
        _ item: ClaimedItem, in container: GroupContainer, of presenter: any FilePresenter, _ wait: ClaimWait
    ) throws(FileCoordinationError) {
        do {
            let claim = try Claim(
                presenting: item, in: container, purpose: RegisteredPresenter.purpose(of: presenter))
            do {
                try claim.joinQueue(wait)
                try claim.acquire(wait)
            } catch {
                let blockers = claim.blockers()
                claim.release()
                switch error {
                case is ClaimWait.TimedOut:
                    throw FileCoordinationError.busy([item.path], lockHolders: blockers, presenters: [])
                case is ClaimWait.Cancelled: throw FileCoordinationError.cancelled
                default: throw error
                }
            }
            claim.keepOnlyPresentedLock()
            self.claim = claim
        } catch {
            let failure = FileCoordinationError(error)
            guard failure.code == .notWritable else { throw failure }
            claim = nil
        }
    }

    package func release() { claim?.release() }
}
