import LinuxSystem
import Synchronization

/// The steps of a claim: it joins the queue, asks the presenters, and acquires the items.
package struct ClaimProcedure {
    package let claim: Claim
    package let intents: [ClaimIntent]
    package let registry: any PresenterRegistry
    /// The claimant's own presenter. It is not asked.
    package let ownPresenter: UInt64?
    /// Returns true if a queued claim waits for the claimant: the claimant's presenter owes it an answer, or the
    /// claimant already has an access of the same purpose. The claim then bypasses the queue, even if it has waited in
    /// it.
    package let bypassesQueue: @Sendable () -> Bool

    package init(
        claim: Claim, intents: [ClaimIntent], registry: any PresenterRegistry, ownPresenter: UInt64? = nil,
        bypassesQueue: @escaping @Sendable () -> Bool = { false }
    ) {
        self.claim = claim
        self.intents = intents
        self.registry = registry
        self.ownPresenter = ownPresenter
        self.bypassesQueue = bypassesQueue
    }

    /// Runs the claim and returns its number in the registry, which `end` needs. Throws `FileCoordinationError` and
    /// `SystemError`; the claim then holds nothing, and the presenters have been notified to reacquire their items.
    package func run(_ wait: ClaimWait) throws -> UInt64 {
        do {
            try claim.joinQueue(wait, unless: bypassesQueue)
            let number = try askPresenters(wait)
            do {
                try claim.acquire(wait.cancelled { registry.lateRefusal(of: number) != nil })
                registry.didAcquire(number)
                return number
            } catch {
                let refusal = error is ClaimWait.Cancelled ? registry.lateRefusal(of: number) : nil
                registry.end(number, ClaimState.Outcome(tookPlace: false))
                if let refusal, !wait.isCancelledNow { try check(refusal) }
                throw error
            }
        } catch {
            let blockers = error is ClaimWait.TimedOut ? claim.blockers() : []
            claim.release()
            switch error {
            case is ClaimWait.TimedOut:
                throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: blockers, presenters: [])
            case is ClaimWait.Cancelled: throw FileCoordinationError.cancelled
            default: throw error
            }
        }
    }

    private func askPresenters(_ wait: ClaimWait) throws -> UInt64 {
        let settlement = SettlementWait()
        let remaining = wait.deadline.remaining ?? .seconds(86_400)
        let number = try registry.begin(intents, excluding: ownPresenter, deadline: remaining) { settlement.settle($0) }
        do {
            try check(
                settlement.wait(
                    remaining < registry.responseTime ? wait.withDeadline(after: registry.responseTime) : wait))
            return number
        } catch {
            let (unanswered, reason) = (registry.unanswered(number), registry.unresponsiveReason(for: number))
            registry.end(number, ClaimState.Outcome(tookPlace: false))
            guard error is ClaimWait.TimedOut else { throw error }
            if let reason, unanswered.isEmpty {
                throw FileCoordinationError(
                    .busy, reason, remedy: "is it stopped? look at its log, or restart it; nothing was done")
            }
            throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: [], presenters: unanswered)
        }
    }

    /// Throws `FileCoordinationError` unless the claim is granted.
    private func check(_ settlement: ClaimSettlement) throws {
        switch settlement {
        case .granted: return
        case .refused(let refusal):
            let reason = refusal.message.isEmpty ? "" : ": \(refusal.message)"
            throw FileCoordinationError(
                .presenterFailed, "\(refusal.presenter) can't let go\(reason)",
                remedy: "see what that program says, then try again", holders: [refusal.presenter])
        case .unanswered(let holders):
            throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: [], presenters: holders)
        case .failed(let reason):
            throw FileCoordinationError(.agent, reason, remedy: "see the agent's log, or groupstore doctor")
        }
    }
}

/// Passes the settlement from the thread that reports it to the one that waits.
private final class SettlementWait: Sendable {
    private let signal = MonotonicSemaphore()
    private let settlement = Mutex(ClaimSettlement.granted)

    func settle(_ result: ClaimSettlement) {
        settlement.withLock { $0 = result }
        signal.signal()
    }

    /// Waits for the settlement. Throws `ClaimWait.TimedOut` and `ClaimWait.Cancelled`.
    func wait(_ wait: ClaimWait) throws -> ClaimSettlement {
        // Wait in slices of 20 ms: a cancellation doesn't signal the semaphore.
        while true {
            let remaining = min(wait.deadline.remaining ?? .seconds(1), .milliseconds(20))
            if signal.wait(within: remaining) {
                return settlement.withLock { $0 }
            }
            if wait.isCancelledNow { throw ClaimWait.Cancelled() }
            if wait.deadline.hasPassed { throw ClaimWait.TimedOut() }
        }
    }
}
