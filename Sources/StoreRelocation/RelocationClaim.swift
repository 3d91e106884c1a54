import FileCoordination
import GroupContainer

/// The claim that a relocation holds on its store, until the store is at its new place or stays at the old one.
final class RelocationClaim {
    private let item: ClaimedItem
    private let claim: Claim
    private let registry: any PresenterRegistry
    private let number: UInt64
    private var isOver = false

    /// Waits until presenters have let go, and nobody else claims the store. Throws `FileCoordinationError`.
    init(
        _ item: ClaimedItem, in container: GroupContainer, _ registry: any PresenterRegistry, _ wait: ClaimWait
    ) throws {
        self.item = item
        self.registry = registry
        let intents = [ClaimIntent(item, .write(.forMoving))]
        claim = try Claim(intents, in: container)
        number = try ClaimProcedure(claim: claim, intents: intents, registry: registry).run(wait)
    }

    /// Its presenters take the store again. Nothing the second time.
    func end(published: Bool) {
        guard !isOver else { return }
        isOver = true
        claim.leave()
        // It has the name that presenters know it by; now it is there too.
        registry.end(
            number, .init(tookPlace: published, moves: published ? [.init(from: item, to: item)] : []))
    }
}
