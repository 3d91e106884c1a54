import AgentProtocol
import FileCoordination
import LinuxSystem

/// A connected process with a claim, which waits for its answer or has been granted it.
struct Claimant {
    let connection: UInt64
    let id: JSONValue?
    let deadline: ContinuousClock.Instant
    /// True for a user who may not read what presenters say to the agent's own user.
    let isUntrusted: Bool
    let intents: [ClaimIntent]
    var isAnswered = false
    /// The moves that its earlier requests to release it reported.
    var moves: [ClaimState.Outcome.Move] = []

    /// The stores that the claimant may move or replace. The feed lets go of them until the claim ends: a lease
    /// that proves a store closed is refused while anybody has it open.
    var moved: [StoreAddress] {
        intents.compactMap { intent in
            guard case .write(let options) = intent.access, options.contains(.forMoving) else { return nil }
            return StoreAddress(intent.item)
        }
    }

    /// Returns true if the claim allows the item to be moved or deleted.
    func covers(_ item: ClaimedItem) -> Bool {
        intents.contains { $0.writes && ($0.item == item || item.isInside($0.item)) }
    }
}
