import LinuxSystem

/// Who presents what, which claims are under way, and who owes an answer: a pure value that says what to send. The
/// locks are not its business: they are the claiming process's own.
package struct ClaimState: Sendable {
    package typealias PresenterNumber = UInt64
    package typealias ClaimNumber = UInt64

    /// What is to be done, in this order.
    package enum Action: Equatable, Sendable {
        case ask(PresenterNumber, ClaimNumber, PresenterRequest)
        case tell(PresenterNumber, ClaimNumber, PresenterNotice)
        /// Every presenter has answered: the claimant may go on, or what one of them says must stop it.
        case settled(ClaimNumber, Refusal?)
    }

    /// A presenter that could not do what it was asked.
    package struct Refusal: Error, Equatable, Sendable {
        package let presenter: FileHolder
        package let message: String

        package init(presenter: FileHolder, message: String) {
            self.presenter = presenter
            self.message = message
        }
    }

    /// An answer that nobody asked for: the claim is over, or was never this presenter's.
    package struct NotAsked: Error, Equatable {}

    /// How a claim ended.
    package struct Outcome: Equatable, Sendable {
        package struct Move: Equatable, Sendable {
            package let from: ClaimedItem
            package let to: ClaimedItem

            package init(from: ClaimedItem, to: ClaimedItem) {
                self.from = from
                self.to = to
            }
        }

        /// False when nothing was done: it failed, timed out or was cancelled.
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
        /// The coordinator's own presenter is not asked.
        let own: PresenterNumber?
        /// What each presenter is still to be asked; the first was sent.
        var owed: [PresenterNumber: [PresenterRequest]] = [:]
        /// Who let go for it.
        var relinquished: Set<PresenterNumber> = []
        var isSettled = false
    }

    private var presenters: [PresenterNumber: Presenter] = [:]
    private var claims: [ClaimNumber: Claim] = [:]

    package init() {}
}

// MARK: - Presenters

extension ClaimState {
    /// A presenter that comes in the middle of a claim on its item counts as having let go for it: it is not to touch
    /// the item until it was told to reacquire for each of the claims that are returned.
    package mutating func add(_ number: PresenterNumber, _ item: ClaimedItem, _ holder: FileHolder) -> [ClaimNumber] {
        presenters[number] = Presenter(item: item, holder: holder)
        let concerned = claims.filter { claim in
            claim.value.own != number && claim.value.intents.contains { !$0.requests(for: item).isEmpty }
        }.keys.sorted()
        for claim in concerned { claims[claim]?.relinquished.insert(number) }
        return concerned
    }

    /// What it owed is not waited for any more.
    package mutating func remove(_ number: PresenterNumber) -> [Action] {
        presenters[number] = nil
        var actions: [Action] = []
        for claim in claims.keys.sorted() {
            claims[claim]?.owed[number] = nil
            claims[claim]?.relinquished.remove(number)
            actions += settle(claim)
        }
        return actions
    }

    /// It presents another item from now on.
    package mutating func move(_ number: PresenterNumber, to item: ClaimedItem) {
        guard let presenter = presenters[number] else { return }
        presenters[number] = Presenter(item: item, holder: presenter.holder)
    }

    package func item(of number: PresenterNumber) -> ClaimedItem? { presenters[number]?.item }

    /// Who presents the item itself.
    package func holders(presenting item: ClaimedItem) -> [FileHolder] {
        presenters(of: item).map(\.holder)
    }

    /// Those who present the item itself, in the order in which they came.
    package func presenters(of item: ClaimedItem) -> [(number: PresenterNumber, holder: FileHolder)] {
        presenters.sorted { $0.key < $1.key }.filter { $0.value.item == item }.map { ($0.key, $0.value.holder) }
    }

    /// What it was asked and has not answered; nil when nothing.
    package func owed(_ number: PresenterNumber, _ claim: ClaimNumber) -> PresenterRequest? {
        claims[claim]?.owed[number]?.first
    }

    package mutating func answer(
        _ number: PresenterNumber, _ claim: ClaimNumber, _ request: PresenterRequest, failure: String?
    ) throws(NotAsked) -> [Action] {
        guard var owed = claims[claim]?.owed[number], owed.first == request else { throw NotAsked() }
        if let failure {
            let holder = presenters[number]?.holder ?? FileHolder(pid: 0, program: "?")
            claims[claim]?.owed = [:]
            claims[claim]?.isSettled = true
            return [.settled(claim, Refusal(presenter: holder, message: failure))]
        }
        owed.removeFirst()
        claims[claim]?.owed[number] = owed.isEmpty ? nil : owed
        if let next = owed.first { return [.ask(number, claim, next)] }
        return settle(claim)
    }
}

// MARK: - Claims

extension ClaimState {
    /// Asks all presenters concerned but the claimant's own.
    package mutating func begin(
        _ number: ClaimNumber, _ intents: [ClaimIntent], own: PresenterNumber?
    ) -> [Action] {
        var claim = Claim(intents: intents, own: own)
        for (presenter, known) in presenters where presenter != own {
            let requests = intents.flatMap { $0.requests(for: known.item) }.withoutRepetitions
            guard !requests.isEmpty else { continue }
            claim.owed[presenter] = requests
            // From now on it may have let go, answered or not.
            if requests.contains(where: \.isRelinquishing) { claim.relinquished.insert(presenter) }
        }
        claims[number] = claim
        let asked = claim.owed.sorted { $0.key < $1.key }.compactMap { presenter, requests in
            requests.first.map { Action.ask(presenter, number, $0) }
        }
        return asked + settle(number)
    }

    /// Those who owe an answer.
    package func unanswered(_ number: ClaimNumber) -> [FileHolder] {
        (claims[number]?.owed.keys.sorted() ?? []).compactMap { presenters[$0]?.holder }
    }

    /// The claimant is done, or gives up. Moves are told before the presenters take their item back.
    package mutating func end(_ number: ClaimNumber, _ outcome: Outcome) -> [Action] {
        guard let claim = claims.removeValue(forKey: number) else { return [] }
        var actions: [Action] = []
        for (presenter, known) in presenters.sorted(by: { $0.key < $1.key }) where presenter != claim.own {
            if outcome.tookPlace {
                let notices = Self.notices(of: outcome.moves, claim.intents, to: known.item)
                actions += notices.map { .tell(presenter, number, $0) }
            }
            if claim.relinquished.contains(presenter) { actions.append(.tell(presenter, number, .reacquire)) }
        }
        for move in outcome.moves where outcome.tookPlace { follow(move) }
        return actions
    }

    private mutating func settle(_ number: ClaimNumber) -> [Action] {
        guard let claim = claims[number], claim.owed.isEmpty, !claim.isSettled else { return [] }
        claims[number]?.isSettled = true
        return [.settled(number, nil)]
    }

    /// What a presenter of `item` is told of a claim that took place, in this order. Moves follow on each other: two
    /// items that change places go by way of a third name.
    package static func notices(
        of moves: [Outcome.Move], _ intents: [ClaimIntent], to item: ClaimedItem
    ) -> [PresenterNotice] {
        var place = item
        let moved = moves.compactMap { move -> PresenterNotice? in
            if let new = move.destination(of: place) {
                place = new
                return .didMove(to: new, subitem: nil)
            }
            return move.from.isInside(place) ? .didMove(to: move.to, subitem: move.from) : nil
        }
        let changed = intents.filter(\.changesContent).compactMap { intent -> PresenterNotice? in
            if intent.item == item { return .didChange(nil) }
            return intent.item.isInside(item) ? .didChange(intent.item) : nil
        }
        return moved + changed
    }

    /// Presenters go with their item.
    private mutating func follow(_ move: Outcome.Move) {
        for (number, presenter) in presenters {
            guard let new = move.destination(of: presenter.item) else { continue }
            presenters[number] = Presenter(item: new, holder: presenter.holder)
        }
    }
}

extension ClaimState.Outcome.Move {
    /// Where an item is afterwards; nil when the move doesn't touch it.
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
    /// Several intents on one item ask for each thing once.
    fileprivate var withoutRepetitions: [PresenterRequest] {
        reduce(into: []) { result, request in if !result.contains(request) { result.append(request) } }
    }
}
