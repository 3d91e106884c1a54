import GroupContainers
import LinuxSystem

/// A lock that says: this item is open here. Whoever displaces the item's presenters waits until it is given back,
/// whether or not they could be asked; readers don't.
package final class PresentedClaim: Sendable {
    /// Nil where the process may not write in the group container, and nobody has claimed the item yet.
    private let claim: Claim?

    /// Waits until nobody is at work on the item who displaces its presenters. `presenter`: its coordinators' claims are
    /// not held up by this. Throws `FileCoordinationError`: `busy` with who holds it, `cancelled`.
    package init(
        _ item: ClaimedItem, in container: GroupContainer, of presenter: any FilePresenter, _ wait: ClaimWait
    ) throws(FileCoordinationError) {
        do {
            let claim = try Claim(
                presenting: item, in: container, purpose: RegisteredPresenter.purpose(of: presenter))
            do {
                try claim.standInLine(wait)
                try claim.enter(wait)
            } catch {
                let obstacles = claim.obstacles()
                claim.leave()
                switch error {
                case is ClaimWait.TimedOut:
                    throw FileCoordinationError.busy([item.path], lockHolders: obstacles, presenters: [])
                case is ClaimWait.Cancelled: throw FileCoordinationError.cancelled
                default: throw error
                }
            }
            claim.keepOnlyPresented()
            self.claim = claim
        } catch {
            let failure = FileCoordinationError(error)
            guard failure.code == .notWritable else { throw failure }
            claim = nil
        }
    }

    package func leave() { claim?.leave() }
}
