import LinuxSystem

/// The presenters, the claims in progress and the answers that are due: a pure value that returns the actions to
/// perform. Locks are not part of it; they belong to the claiming process.
package struct ClaimState: Sendable {
    package typealias PresenterNumber = UInt64
    package typealias ClaimNumber = UInt64

    /// An action that the caller performs. Actions are performed in the order of the array.
    package enum Action: Equatable, Sendable {
        case request(PresenterNumber, ClaimNumber, PresenterRequest)
        case notify(PresenterNumber, ClaimNumber, PresenterNotice)
        /// All presenters have answered and the claim may proceed, or one of them refused and the claim must stop.
        case settled(ClaimNumber, Refusal?)
    }

    /// The answer of a presenter that could not do what it was asked.
    package struct Refusal: Error, Equatable, Sendable {
        package let presenter: FileHolder
        package let message: String

        package init(presenter: FileHolder, message: String) {
            self.presenter = presenter
            self.message = message
        }
    }

    /// An answer without a pending request: the claim has ended, or the presenter was never asked for it.
    package struct UnexpectedAnswer: Error, Equatable {}

    /// The end of a claim.
    package struct Outcome: Equatable, Sendable {
        package struct Move: Equatable, Sendable {
            package let from: ClaimedItem
            package let to: ClaimedItem

            package init(from: ClaimedItem, to: ClaimedItem) {
                self.from = from
                self.to = to
            }
        }

        /// False if the access did not happen: the claim failed, timed out or was cancelled.
        package var tookPlace: Bool
        package var moves: [Move]

        package init(tookPlace: Bool, moves: [Move] = []) {
            self.tookPlace = tookPlace
            self.moves = moves
        }
    }

    private struct Presenter {
        let item: ClaimedItem
        let holder: FileHolder
    }

    private struct Claim {
        let intents: [ClaimIntent]
        /// The coordinator's own presenter, which is not asked.
        let ownPresenter: PresenterNumber?
        /// The remaining requests to each presenter. The first one was sent.
        var pending: [PresenterNumber: [PresenterRequest]] = [:]
        /// The presenters that have relinquished their item for the claim.
        var relinquished: Set<PresenterNumber> = []
        var isSettled = false
    }

    private var presenters: [PresenterNumber: Presenter] = [:]
    private var claims: [ClaimNumber: Claim] = [:]

    package init() {}
}

// MARK: - Presenters

extension ClaimState {
    /// Adds a presenter and returns the claims in progress on its item. The presenter counts as having relinquished for
    /// each of them: it must not touch the item before it gets `reacquire` for all.
    package mutating func add(_ number: PresenterNumber, presenting item: ClaimedItem, holder: FileHolder)
        -> [ClaimNumber]
    {
        presenters[number] = Presenter(item: item, holder: holder)
        let claimsInProgress = claims.filter { claim in
            claim.value.ownPresenter != number && claim.value.intents.contains { !$0.requests(for: item).isEmpty }
        }.keys.sorted()
        for claim in claimsInProgress { claims[claim]?.relinquished.insert(number) }
        return claimsInProgress
    }

    /// Removes a presenter. Claims no longer wait for its answers: without a `failure` because nobody presents the item
    /// any more; with one, which says why the presenter can't answer although it may have the item open, because the
    /// claims that await it are refused.
    package mutating func remove(_ number: PresenterNumber, failure: String? = nil) -> [Action] {
        let holder = presenters.removeValue(forKey: number)?.holder
        var actions: [Action] = []
        for claim in claims.keys.sorted() {
            let isAwaited = claims[claim]?.pending.removeValue(forKey: number) != nil
            claims[claim]?.relinquished.remove(number)
            guard isAwaited, let failure, claims[claim]?.isSettled == false else {
                actions += settleIfAnswered(claim)
                continue
            }
            actions.append(refuse(claim, by: holder, failure))
        }
        return actions
    }

    private mutating func refuse(_ claim: ClaimNumber, by holder: FileHolder?, _ failure: String) -> Action {
        claims[claim]?.pending = [:]
        claims[claim]?.isSettled = true
        return .settled(claim, Refusal(presenter: holder ?? FileHolder(pid: 0, program: "?"), message: failure))
    }

    /// Changes the item that the presenter presents.
    package mutating func move(_ number: PresenterNumber, to item: ClaimedItem) {
        guard let presenter = presenters[number] else { return }
        presenters[number] = Presenter(item: item, holder: presenter.holder)
    }

    package func item(of number: PresenterNumber) -> ClaimedItem? { presenters[number]?.item }

    package func holder(of number: PresenterNumber) -> FileHolder? { presenters[number]?.holder }

    /// Returns the processes that present the item itself.
    package func holders(presenting item: ClaimedItem) -> [FileHolder] {
        presenters(of: item).map(\.holder)
    }

    /// Returns the presenters of the item itself, in the order in which they were added.
    package func presenters(of item: ClaimedItem) -> [(number: PresenterNumber, holder: FileHolder)] {
        presenters.sorted { $0.key < $1.key }.filter { $0.value.item == item }.map { ($0.key, $0.value.holder) }
    }

    /// Returns the request that the presenter has not answered yet, or nil if there is none.
    package func pendingRequest(of number: PresenterNumber, for claim: ClaimNumber) -> PresenterRequest? {
        claims[claim]?.pending[number]?.first
    }

    package mutating func answer(
        _ number: PresenterNumber, claim: ClaimNumber, _ request: PresenterRequest, failure: String?
    ) throws(UnexpectedAnswer) -> [Action] {
        guard var pending = claims[claim]?.pending[number], pending.first == request else { throw UnexpectedAnswer() }
        if let failure { return [refuse(claim, by: presenters[number]?.holder, failure)] }
        pending.removeFirst()
        claims[claim]?.pending[number] = pending.isEmpty ? nil : pending
        if let next = pending.first { return [.request(number, claim, next)] }
        return settleIfAnswered(claim)
    }
}

// MARK: - Claims

extension ClaimState {
    /// Begins a claim: asks all presenters of its items except the claimant's own.
    package mutating func begin(
        _ number: ClaimNumber, _ intents: [ClaimIntent], excluding own: PresenterNumber?
    ) -> [Action] {
        var claim = Claim(intents: intents, ownPresenter: own)
        for (presenter, known) in presenters where presenter != own {
            let requests = intents.flatMap { $0.requests(for: known.item) }.withoutDuplicates
            guard !requests.isEmpty else { continue }
            claim.pending[presenter] = requests
            // From now on the presenter may have relinquished, whether or not it answers.
            if requests.contains(where: \.isRelinquishing) { claim.relinquished.insert(presenter) }
        }
        claims[number] = claim
        let asked = claim.pending.sorted { $0.key < $1.key }.compactMap { presenter, requests in
            requests.first.map { Action.request(presenter, number, $0) }
        }
        return asked + settleIfAnswered(number)
    }

    /// Returns the processes whose answers are due.
    package func unanswered(_ number: ClaimNumber) -> [FileHolder] {
        (claims[number]?.pending.keys.sorted() ?? []).compactMap { presenters[$0]?.holder }
    }

    /// Ends a claim that has completed or was given up. Presenters are notified of moves before they reacquire their
    /// items.
    package mutating func end(_ number: ClaimNumber, _ outcome: Outcome) -> [Action] {
        guard let claim = claims.removeValue(forKey: number) else { return [] }
        var actions: [Action] = []
        for (presenter, known) in presenters.sorted(by: { $0.key < $1.key }) where presenter != claim.ownPresenter {
            if outcome.tookPlace {
                let notices = Self.notices(of: outcome.moves, claim.intents, to: known.item)
                actions += notices.map { .notify(presenter, number, $0) }
            }
            if claim.relinquished.contains(presenter) { actions.append(.notify(presenter, number, .reacquire)) }
        }
        for move in outcome.moves where outcome.tookPlace { apply(move) }
        return actions
    }

    private mutating func settleIfAnswered(_ number: ClaimNumber) -> [Action] {
        guard let claim = claims[number], claim.pending.isEmpty, !claim.isSettled else { return [] }
        claims[number]?.isSettled = true
        return [.settled(number, nil)]
    }

    /// Returns the notifications to a presenter of `item` about a completed claim, in order. Moves chain: two items
    /// swap their names by way of a third.
    package static func notices(
        of moves: [Outcome.Move], _ intents: [ClaimIntent], to item: ClaimedItem
    ) -> [PresenterNotice] {
        var location = item
        let moved = moves.compactMap { move -> PresenterNotice? in
            if let new = move.destination(of: location) {
                location = new
                return .didMove(to: new, subitem: nil)
            }
            return move.from.isInside(location) ? .didMove(to: move.to, subitem: move.from) : nil
        }
        let changed = intents.filter(\.changesContent).compactMap { intent -> PresenterNotice? in
            if intent.item == item { return .didChange(nil) }
            let subitem = moves.reduce(intent.item) { moved, move in move.destination(of: moved) ?? moved }
            return subitem.isInside(location) ? .didChange(subitem) : nil
        }
        return moved + changed
    }

    /// Presenters follow their item.
    private mutating func apply(_ move: Outcome.Move) {
        for (number, presenter) in presenters {
            guard let new = move.destination(of: presenter.item) else { continue }
            presenters[number] = Presenter(item: new, holder: presenter.holder)
        }
    }
}

extension ClaimState.Outcome.Move {
    /// Returns the item's location after the move, or nil if the move doesn't affect it.
    package func destination(of item: ClaimedItem) -> ClaimedItem? {
        if item == from { return to }
        guard item.isInside(from) else { return nil }
        var path = to.path
        path.append(item.path.components.dropFirst(from.path.components.count))
        return ClaimedItem(container: to.container, path: path)
    }
}

extension PresenterRequest {
    fileprivate var isRelinquishing: Bool { if case .relinquish = self { true } else { false } }
}

extension [PresenterRequest] {
    /// The requests without duplicates: several intents on one item ask for each thing once.
    fileprivate var withoutDuplicates: [PresenterRequest] {
        reduce(into: []) { result, request in if !result.contains(request) { result.append(request) } }
    }
}
