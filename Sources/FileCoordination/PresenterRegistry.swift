import LinuxSystem
import Synchronization

/// What reaches a file presenter, in order.
package enum PresenterMessage: Sendable, Equatable {
    /// To be answered.
    case request(claim: UInt64, PresenterRequest)
    case notice(claim: UInt64, PresenterNotice)
    /// Who asks it from now on.
    case registration(FilePresenterRegistration)
}

/// Where a file presenter is known, and so who asks it.
public enum FilePresenterRegistration: Sendable, Hashable {
    /// All who coordinate are known here: it is asked by each of them.
    case registered
    /// Only this process asks it: no agent answers, or the agent doesn't serve the group. It is registered as soon as
    /// that is otherwise. `reason`: what was in the way.
    case waiting(reason: String)
    /// Only this process asks it: the agent refused. It is asked again when the agent's configuration has changed.
    case refused(reason: String)
}

/// What a registry answers to a presenter that comes.
package struct PresenterAdmission: Sendable {
    package let presenter: UInt64
    /// The claims under way: the item is not to be touched until each of them is told to be over (`reacquire`).
    package let waitsFor: [UInt64]
    package let registration: FilePresenterRegistration

    package init(presenter: UInt64, waitsFor: [UInt64], registration: FilePresenterRegistration) {
        self.presenter = presenter
        self.waitsFor = waitsFor
        self.registration = registration
    }
}

/// How the asking of a claim's presenters ended.
package enum ClaimSettlement: Sendable, Equatable {
    /// All have done what they were asked.
    case granted
    case refused(ClaimState.Refusal)
    /// These did not answer within the registry's deadline.
    case unanswered([FileHolder])
    /// They could not be asked.
    case failed(String)
}

/// A file presenter, as others see it.
package struct PresenterDescription: Sendable, Equatable {
    package let holder: FileHolder
    /// The versions of the model that it can open, each by its name, an identifier or its checksum; nil: it didn't say.
    package let versions: Set<String>?
}

/// Where file presenters are known. In the agent it holds those of all processes; in an app it speaks to the agent, or
/// knows the process's own where there is none.
package protocol PresenterRegistry: AnyObject, Sendable {
    /// `receive` gets what the presenter is asked and told, in order, on any thread, and must return at once.
    func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>?,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) throws -> PresenterAdmission
    func remove(_ presenter: UInt64)
    /// Those who present the item, as far as they are known here.
    func presenters(of item: ClaimedItem) -> [PresenterDescription]

    /// False when that was not asked of it, or is no longer.
    @discardableResult
    func answer(_ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?) -> Bool

    /// Asks the presenters concerned. `settled` is called at most once, on any thread. Each claim wants one `end`.
    func begin(
        _ intents: [ClaimIntent], own: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) throws -> UInt64
    /// Those who have not answered.
    func unanswered(_ claim: UInt64) -> [FileHolder]
    /// Why nothing was heard of the claim's presenters: a sentence; nil where it is they who are waited for.
    func silence(of claim: UInt64) -> String?
    /// A presenter that was first heard of while the claim waited for locks can't let go.
    func objection(to claim: UInt64) -> ClaimSettlement?
    /// The claim waits for nothing any more.
    func entered(_ claim: UInt64)
    /// How long the registry itself may take to answer, however short a claim's deadline is.
    var answerTime: Duration { get }
    func end(_ claim: UInt64, _ outcome: ClaimState.Outcome)
}

extension PresenterRegistry {
    package func silence(of claim: UInt64) -> String? { nil }
    package func objection(to claim: UInt64) -> ClaimSettlement? { nil }
    package func entered(_ claim: UInt64) {}
    package var answerTime: Duration { .zero }
}

/// The presenters of one process, or, in the agent, of all those that are connected.
package final class InProcessRegistry: PresenterRegistry {
    private struct State {
        var board = ClaimState()
        var receivers: [UInt64: @Sendable (PresenterMessage) -> Void] = [:]
        var versions: [UInt64: Set<String>] = [:]
        var claimants: [UInt64: @Sendable (ClaimSettlement) -> Void] = [:]
        var next: UInt64 = 1

        mutating func number() -> UInt64 {
            defer { next += 1 }
            return next
        }

        /// Under the lock, so that nobody is told things in another order; receivers return at once.
        mutating func perform(_ actions: [ClaimState.Action]) {
            for action in actions {
                switch action {
                case .ask(let presenter, let claim, let request):
                    receivers[presenter]?(.request(claim: claim, request))
                case .tell(let presenter, let claim, let notice):
                    receivers[presenter]?(.notice(claim: claim, notice))
                case .settled(let claim, let refusal):
                    claimants.removeValue(forKey: claim)?(refusal.map { .refused($0) } ?? .granted)
                }
            }
        }
    }

    private let state = Mutex(State())

    package init() {}

    package func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>? = nil,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) -> PresenterAdmission {
        add(item, holder, versions: versions, receive: receive, announce: { _, _ in })
    }

    /// `announce` is called with the result before anything is received.
    @discardableResult
    package func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>? = nil,
        receive: @escaping @Sendable (PresenterMessage) -> Void,
        announce: (_ presenter: UInt64, _ waitsFor: [UInt64]) -> Void
    ) -> PresenterAdmission {
        state.withLock { state in
            let number = state.number()
            state.receivers[number] = receive
            state.versions[number] = versions
            let waitsFor = state.board.add(number, item, holder)
            announce(number, waitsFor)
            return PresenterAdmission(presenter: number, waitsFor: waitsFor, registration: .registered)
        }
    }

    package func remove(_ presenter: UInt64) {
        state.withLock { state in
            state.receivers[presenter] = nil
            state.versions[presenter] = nil
            state.perform(state.board.remove(presenter))
        }
    }

    /// It presents another item from now on.
    package func move(_ presenter: UInt64, to item: ClaimedItem) {
        state.withLock { $0.board.move(presenter, to: item) }
    }

    package func item(of presenter: UInt64) -> ClaimedItem? { state.withLock { $0.board.item(of: presenter) } }

    package func holders(presenting item: ClaimedItem) -> [FileHolder] {
        state.withLock { $0.board.holders(presenting: item) }
    }

    package func presenters(of item: ClaimedItem) -> [PresenterDescription] {
        state.withLock { state in
            state.board.presenters(of: item).map {
                PresenterDescription(holder: $0.holder, versions: state.versions[$0.number])
            }
        }
    }

    /// What the presenter owes for the claim now; nil when nothing.
    package func owed(_ presenter: UInt64, claim: UInt64) -> PresenterRequest? {
        state.withLock { $0.board.owed(presenter, claim) }
    }

    @discardableResult
    package func answer(
        _ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?
    ) -> Bool {
        state.withLock { state in
            do throws(ClaimState.NotAsked) {
                state.perform(try state.board.answer(presenter, claim, request, failure: failure))
                return true
            } catch {
                return false
            }
        }
    }

    package func begin(
        _ intents: [ClaimIntent], own: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) -> UInt64 {
        begin(intents, own: own, announce: { _ in }, settled: { settled($1) })
    }

    /// `announce` is called with the claim's number before anybody is asked.
    @discardableResult
    package func begin(
        _ intents: [ClaimIntent], own: UInt64?, announce: (UInt64) -> Void,
        settled: @escaping @Sendable (UInt64, ClaimSettlement) -> Void
    ) -> UInt64 {
        state.withLock { state in
            let number = state.number()
            announce(number)
            state.claimants[number] = { settled(number, $0) }
            state.perform(state.board.begin(number, intents, own: own))
            return number
        }
    }

    package func unanswered(_ claim: UInt64) -> [FileHolder] { state.withLock { $0.board.unanswered(claim) } }

    package func end(_ claim: UInt64, _ outcome: ClaimState.Outcome) {
        state.withLock { state in
            state.claimants[claim] = nil
            state.perform(state.board.end(claim, outcome))
        }
    }
}
