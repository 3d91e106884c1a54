import LinuxSystem
import Synchronization

/// A message to a file presenter. Messages are delivered in order.
package enum PresenterMessage: Sendable, Equatable {
    /// A request that needs an answer.
    case request(claim: UInt64, PresenterRequest)
    case notice(claim: UInt64, PresenterNotice)
    /// The presenter's new registration.
    case registration(FilePresenterRegistration)
}

/// The processes that ask a file presenter.
public enum FilePresenterRegistration: Sendable, Hashable, CustomStringConvertible {
    /// The agent knows the presenter: every process that coordinates asks it.
    case registered
    /// Only this process asks the presenter: no agent answers, or the agent doesn't serve the group. The presenter is
    /// registered as soon as one does, unless the environment tells no place of an agent's socket. `reason` says what
    /// prevented it.
    case waiting(reason: String)
    /// Only this process asks the presenter: the agent refused. Registration is retried when the agent's configuration
    /// has changed. `reason` is the agent's message.
    case refused(reason: String)

    /// One sentence for people, with the reason.
    public var description: String {
        switch self {
        case .registered: "every process that coordinates asks the presenter"
        case .waiting(let reason): "only this process asks the presenter until an agent does: \(reason)"
        case .refused(let reason): "only this process asks the presenter: the agent refused it: \(reason)"
        }
    }
}

/// A registry's answer to a new presenter.
package struct PresenterAdmission: Sendable {
    package let presenter: UInt64
    /// The claims in progress on the item. The presenter must not touch it before it gets `reacquire` for each of them.
    package let pendingClaims: [UInt64]
    package let registration: FilePresenterRegistration

    package init(presenter: UInt64, pendingClaims: [UInt64], registration: FilePresenterRegistration) {
        self.presenter = presenter
        self.pendingClaims = pendingClaims
        self.registration = registration
    }
}

/// The result of asking a claim's presenters.
package enum ClaimSettlement: Sendable, Equatable {
    /// All presenters have done what they were asked.
    case granted
    case refused(ClaimState.Refusal)
    /// These presenters did not answer within the registry's deadline.
    case unanswered([FileHolder])
    /// The presenters could not be asked, for this reason.
    case failed(String)
}

/// A file presenter, as other processes see it.
package struct PresenterDescription: Sendable, Equatable {
    package let holder: FileHolder
    /// The model versions that the presenter can open, each by its name, an identifier or its checksum; nil if it
    /// doesn't restrict them.
    package let versions: Set<String>?
}

/// The known file presenters. In the agent it holds those of all processes. In an app it talks to the agent or, without
/// one, holds the process's own.
package protocol PresenterRegistry: AnyObject, Sendable {
    /// Adds a presenter. The registry calls `receive` with each request and notification, in order, on any thread;
    /// `receive` must return at once.
    func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>?,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) throws -> PresenterAdmission
    func remove(_ presenter: UInt64)
    /// Returns the known presenters of the item.
    func presenters(of item: ClaimedItem) -> [PresenterDescription]

    /// Delivers a presenter's answer. Returns false if the request is not pending.
    @discardableResult
    func answer(_ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?) -> Bool

    /// Begins a claim: asks the presenters of its items, except `excluded`. Calls `settled` at most once, on any
    /// thread. Returns the claim's number; the caller must call `end` with it exactly once.
    func begin(
        _ intents: [ClaimIntent], excluding excluded: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) throws -> UInt64
    /// Returns the presenters that have not answered.
    func unanswered(_ claim: UInt64) -> [FileHolder]
    /// Returns one sentence on why nothing was received about the claim's presenters, or nil if the presenters
    /// themselves are being waited for.
    func unresponsiveReason(for claim: UInt64) -> String?
    /// Returns the refusal of a presenter that became known while the claim waited for locks, or nil if there is none.
    func lateRefusal(of claim: UInt64) -> ClaimSettlement?
    /// Reports that the claim has acquired its items and waits for nothing more.
    func didAcquire(_ claim: UInt64)
    /// The time that the registry itself may take to answer, even if a claim's deadline is shorter.
    var responseTime: Duration { get }
    func end(_ claim: UInt64, _ outcome: ClaimState.Outcome)
}

extension PresenterRegistry {
    package func unresponsiveReason(for claim: UInt64) -> String? { nil }
    package func lateRefusal(of claim: UInt64) -> ClaimSettlement? { nil }
    package func didAcquire(_ claim: UInt64) {}
    package var responseTime: Duration { .zero }
}

/// The presenters of one process or, in the agent, of all connected processes.
package final class InProcessRegistry: PresenterRegistry {
    private struct State {
        var claimState = ClaimState()
        var receivers: [UInt64: @Sendable (PresenterMessage) -> Void] = [:]
        var versions: [UInt64: Set<String>] = [:]
        var settlementHandlers: [UInt64: @Sendable (ClaimSettlement) -> Void] = [:]
        var nextNumber: UInt64 = 1

        mutating func number() -> UInt64 {
            defer { nextNumber += 1 }
            return nextNumber
        }

        /// Runs under the lock, so that all receivers get messages in the same order. Receivers return at once.
        mutating func perform(_ actions: [ClaimState.Action]) {
            for action in actions {
                switch action {
                case .request(let presenter, let claim, let request):
                    receivers[presenter]?(.request(claim: claim, request))
                case .notify(let presenter, let claim, let notice):
                    receivers[presenter]?(.notice(claim: claim, notice))
                case .settled(let claim, let refusal):
                    settlementHandlers.removeValue(forKey: claim)?(refusal.map { .refused($0) } ?? .granted)
                }
            }
        }
    }

    private let state = Mutex(State())
    private let registration: FilePresenterRegistration

    /// - Parameter registration: What a new presenter is told.
    package init(registration: FilePresenterRegistration = .registered) { self.registration = registration }

    package func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>? = nil,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) -> PresenterAdmission {
        add(item, holder, versions: versions, receive: receive, announce: { _, _ in })
    }

    /// Adds a presenter. Calls `announce` with the result before `receive` gets anything.
    @discardableResult
    package func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>? = nil,
        receive: @escaping @Sendable (PresenterMessage) -> Void,
        announce: (_ presenter: UInt64, _ pendingClaims: [UInt64]) -> Void
    ) -> PresenterAdmission {
        state.withLock { state in
            let number = state.number()
            state.receivers[number] = receive
            state.versions[number] = versions
            let pendingClaims = state.claimState.add(number, presenting: item, holder: holder)
            announce(number, pendingClaims)
            return PresenterAdmission(presenter: number, pendingClaims: pendingClaims, registration: registration)
        }
    }

    package func remove(_ presenter: UInt64) { remove(presenter, failure: nil) }

    /// Removes a presenter whose process can't be asked any more. See `ClaimState.remove`.
    package func remove(_ presenter: UInt64, failure: String?) {
        state.withLock { state in
            state.receivers[presenter] = nil
            state.versions[presenter] = nil
            state.perform(state.claimState.remove(presenter, failure: failure))
        }
    }

    /// Changes the item that the presenter presents.
    package func move(_ presenter: UInt64, to item: ClaimedItem) {
        state.withLock { $0.claimState.move(presenter, to: item) }
    }

    package func item(of presenter: UInt64) -> ClaimedItem? { state.withLock { $0.claimState.item(of: presenter) } }

    package func holder(of presenter: UInt64) -> FileHolder? {
        state.withLock { $0.claimState.holder(of: presenter) }
    }

    package func holders(presenting item: ClaimedItem) -> [FileHolder] {
        state.withLock { $0.claimState.holders(presenting: item) }
    }

    package func presenters(of item: ClaimedItem) -> [PresenterDescription] {
        state.withLock { state in
            state.claimState.presenters(of: item).map {
                PresenterDescription(holder: $0.holder, versions: state.versions[$0.number])
            }
        }
    }

    /// Returns the presenter's pending request for the claim, or nil if there is none.
    package func pendingRequest(of presenter: UInt64, for claim: UInt64) -> PresenterRequest? {
        state.withLock { $0.claimState.pendingRequest(of: presenter, for: claim) }
    }

    @discardableResult
    package func answer(
        _ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?
    ) -> Bool {
        state.withLock { state in
            do throws(ClaimState.UnexpectedAnswer) {
                state.perform(try state.claimState.answer(presenter, claim: claim, request, failure: failure))
                return true
            } catch {
                return false
            }
        }
    }

    package func begin(
        _ intents: [ClaimIntent], excluding excluded: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) -> UInt64 {
        begin(intents, excluding: excluded, announce: { _ in }, settled: { settled($1) })
    }

    /// Begins a claim. Calls `announce` with the claim's number before any presenter is asked.
    @discardableResult
    package func begin(
        _ intents: [ClaimIntent], excluding excluded: UInt64?, announce: (UInt64) -> Void,
        settled: @escaping @Sendable (UInt64, ClaimSettlement) -> Void
    ) -> UInt64 {
        state.withLock { state in
            let number = state.number()
            announce(number)
            state.settlementHandlers[number] = { settled(number, $0) }
            state.perform(state.claimState.begin(number, intents, excluding: excluded))
            return number
        }
    }

    package func unanswered(_ claim: UInt64) -> [FileHolder] { state.withLock { $0.claimState.unanswered(claim) } }

    package func end(_ claim: UInt64, _ outcome: ClaimState.Outcome) {
        state.withLock { state in
            state.settlementHandlers[claim] = nil
            state.perform(state.claimState.end(claim, outcome))
        }
    }
}
