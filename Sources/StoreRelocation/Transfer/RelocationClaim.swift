import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization

/// The claim that a relocation holds on its store, until the store is at its new place or stays at the old one.
final class RelocationClaim {
    private let item: ClaimedItem
    private let claim: Claim
    private let registry: any PresenterRegistry
    private let number: UInt64
    private var isOver = false

    /// Waits until presenters have let go, and nobody else claims the store. Throws `FileCoordinationError`.
    init(
        _ item: ClaimedItem, in container: GroupContainer, _ registry: any PresenterRegistry, _ deadline: Deadline,
        isCancelled: @escaping @Sendable () -> Bool, report: @escaping ([FileHolder]) -> Void
    ) throws {
        self.item = item
        self.registry = registry
        let intents = [ClaimIntent(item, .write(.forMoving))]
        let claim = try Claim(intents, in: container)
        self.claim = claim
        let waiting = Mutex(Waiting())
        // The claim asks on this thread alone, and only until it is granted.
        nonisolated(unsafe) let report = report
        let wait = ClaimWait(
            deadline,
            isCancelled: {
                let holders = waiting.withLock {
                    $0.news { claim.obstacles() + registry.presenters(of: item).map(\.holder) }
                }
                if let holders { report(holders) }
                return isCancelled()
            })
        number = try ClaimProcedure(claim: claim, intents: intents, registry: registry).run(wait)
    }

    /// Who is waited for, told when they are others, and not while it takes no time.
    private struct Waiting {
        private var told: [FileHolder] = []
        private var next = ContinuousClock.now.advanced(by: .milliseconds(300))

        mutating func news(_ holders: () -> [FileHolder]) -> [FileHolder]? {
            guard next <= .now else { return nil }
            next = .now.advanced(by: .milliseconds(300))
            let found = holders()
            guard found != told, !found.isEmpty else { return nil }
            told = found
            return found
        }
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
