import Dispatch
import LinuxSystem
import Synchronization

/// The way of a claim: into the line, the presenters asked, the items entered.
package struct ClaimProcedure {
    package let claim: Claim
    package let intents: [ClaimIntent]
    package let registry: any PresenterRegistry
    /// The claimant's own presenter.
    package let own: UInt64?
    /// Whether somebody in the line waits for the claimant: its presenter was asked something, or it already has an
    /// access of the same purpose. This claim goes past the line then, be it after it has waited there for a while.
    package let passesLine: @Sendable () -> Bool

    package init(
        claim: Claim, intents: [ClaimIntent], registry: any PresenterRegistry, own: UInt64? = nil,
        passesLine: @escaping @Sendable () -> Bool = { false }
    ) {
        self.claim = claim
        self.intents = intents
        self.registry = registry
        self.own = own
        self.passesLine = passesLine
    }

    /// Returns the claim's number in the registry, for its end. Throws `FileCoordinationError`, `SystemError`; nothing
    /// is held then, and the presenters have been told to take their items back.
    package func run(_ wait: ClaimWait) throws -> UInt64 {
        do {
            try claim.standInLine(wait, unless: passesLine)
            let number = try askPresenters(wait)
            do {
                try claim.enter(wait.unless { registry.objection(to: number) != nil })
                registry.entered(number)
                return number
            } catch {
                let objection = error is ClaimWait.Cancelled ? registry.objection(to: number) : nil
                registry.end(number, ClaimState.Outcome(tookPlace: false))
                if let objection, !wait.isCancelledNow { try check(objection) }
                throw error
            }
        } catch {
            let obstacles = error is ClaimWait.TimedOut ? claim.obstacles() : []
            claim.leave()
            switch error {
            case is ClaimWait.TimedOut:
                throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: obstacles, presenters: [])
            case is ClaimWait.Cancelled: throw FileCoordinationError.cancelled
            default: throw error
            }
        }
    }

    private func askPresenters(_ wait: ClaimWait) throws -> UInt64 {
        let answers = Answers()
        let left = wait.deadline.remaining ?? .seconds(86_400)
        let number = try registry.begin(intents, own: own, deadline: left) { answers.settle($0) }
        do {
            try check(answers.wait(left < registry.answerTime ? wait.until(registry.answerTime) : wait))
            return number
        } catch {
            let (unanswered, silence) = (registry.unanswered(number), registry.silence(of: number))
            registry.end(number, ClaimState.Outcome(tookPlace: false))
            guard error is ClaimWait.TimedOut else { throw error }
            if let silence, unanswered.isEmpty {
                throw FileCoordinationError(
                    .busy, silence, remedy: "is it stopped? look at its log, or start it anew; nothing was done")
            }
            throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: [], presenters: unanswered)
        }
    }

    /// Throws where it isn't granted.
    private func check(_ settlement: ClaimSettlement) throws {
        switch settlement {
        case .granted: return
        case .refused(let refusal):
            throw FileCoordinationError(
                .presenterFailed, "\(refusal.presenter) can't let go: \(refusal.message)",
                remedy: "see what that program says, then try again", holders: [refusal.presenter])
        case .unanswered(let holders):
            throw FileCoordinationError.busy(intents.map(\.item.path), lockHolders: [], presenters: holders)
        case .failed(let reason):
            throw FileCoordinationError(.agent, reason, remedy: "see the agent's log, or groupstore doctor")
        }
    }
}

/// The end of the asking, as another thread tells it.
private final class Answers: Sendable {
    private let signal = DispatchSemaphore(value: 0)
    private let settlement = Mutex(ClaimSettlement.granted)

    func settle(_ found: ClaimSettlement) {
        settlement.withLock { $0 = found }
        signal.signal()
    }

    /// Throws `ClaimWait.TimedOut`, `ClaimWait.Cancelled`.
    func wait(_ wait: ClaimWait) throws -> ClaimSettlement {
        // In slices, since a cancellation comes without a signal.
        while true {
            let left = min(wait.deadline.remaining ?? .seconds(1), .milliseconds(20))
            if signal.wait(timeout: .now() + .nanoseconds(Int(left.nanoseconds))) == .success {
                return settlement.withLock { $0 }
            }
            if wait.isCancelledNow { throw ClaimWait.Cancelled() }
            if wait.deadline.hasPassed { throw ClaimWait.TimedOut() }
        }
    }
}
