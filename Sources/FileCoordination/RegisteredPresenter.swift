import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization

/// A file presenter and its registration: carries messages to it, one after another, and its answers back.
package final class RegisteredPresenter: Sendable {
    private let presenter: any FilePresenter
    private let container: GroupContainer
    private let registry: any PresenterRegistry
    private let stream: AsyncStream<PresenterMessage>
    private let messages: AsyncStream<PresenterMessage>.Continuation
    private let previous: RegisteredPresenter?
    private let state: Mutex<State>

    private struct State {
        /// As the presenter was told.
        var item: ClaimedItem
        /// Where it was moved last.
        var movedItem: ClaimedItem?
        var number: UInt64?
        var registration = FilePresenterRegistration.waiting(reason: "it is being registered")
        var isRegistering = true
        /// Ends when the last message was handled.
        var worker: Task<Void, Never>?
        var hasLeft = false
        /// Claims for which it was asked something and has not answered, whatever it does now.
        var unanswered: Set<UInt64> = []
        /// What it is being asked, and for which claim.
        var asked: (claim: UInt64, task: Task<Reacquirer?, any Error>)?
        /// Claims that are over, which it has still to be told.
        var over: Set<UInt64> = []
        /// Claims that began before it was registered.
        var waitsFor: Set<UInt64> = []
        /// Those who wait until it is ready, by number, so that one can give up.
        var waiting: [UInt64: CheckedContinuation<Void, any Error>] = [:]
        var next: UInt64 = 0

        var isReady: Bool { !isRegistering && (hasLeft || waitsFor.isEmpty) }

        mutating func takeWaiting() -> [CheckedContinuation<Void, any Error>] {
            guard isReady else { return [] }
            defer { waiting = [:] }
            return Array(waiting.values)
        }
    }

    package var number: UInt64? { state.withLock { $0.number } }
    /// Somebody waits for its answer: its own coordinated accesses go before those in the line. Whoever waits got there
    /// first, and the presenter may not come to answer before the access that it makes in what it does now.
    package var isAwaited: Bool { state.withLock { !$0.unanswered.isEmpty } }
    package var item: ClaimedItem { state.withLock { $0.item } }
    /// Where the item is, though the presenter may still have to be told.
    package var latestItem: ClaimedItem { state.withLock { $0.movedItem ?? $0.item } }
    package var registration: FilePresenterRegistration { state.withLock { $0.registration } }

    package func isSeat(of other: any FilePresenter) -> Bool { presenter === other }

    /// What all coordinators of a presenter have as their purpose, unless they are given another one.
    package static func purpose(of presenter: any FilePresenter) -> String {
        "presenter-\(ProcessIdentity.current.pid)-\(process)-\(UInt(bitPattern: ObjectIdentifier(presenter).hashValue))"
    }

    private static let process = String(UInt64.random(in: 0...UInt64.max), radix: 36)

    /// `previous`: the presenter's last seat, whose messages go first.
    init(
        _ presenter: any FilePresenter, _ item: ClaimedItem, in container: GroupContainer,
        registry: any PresenterRegistry, after previous: RegisteredPresenter? = nil
    ) {
        self.presenter = presenter
        self.container = container
        self.registry = registry
        state = Mutex(State(item: item))
        self.previous = previous
        (stream, messages) = AsyncStream<PresenterMessage>.makeStream()
    }

    /// What the presenter has let go of, for which claims, and how it takes it back.
    private struct Given {
        var claims: [UInt64: PresenterRequest.Accessor] = [:]
        var reacquirers: [Reacquirer] = []

        /// Letting go for a writer is enough for all.
        func covers(_ accessor: PresenterRequest.Accessor) -> Bool {
            claims.values.contains { $0 == .writer || $0 == accessor }
        }
    }

    // MARK: Coming and going

    /// Registers it, on a thread that may block. Throws what the registry throws.
    func register() throws {
        do {
            let added = try registry.add(
                item, ProcessIdentity.current.holder, versions: presenter.openableModelVersions
            ) { [weak self] in self?.receive($0) }
            let (waiting, hasLeft) = state.withLock { state in
                state.number = added.presenter
                state.registration = added.registration
                state.waitsFor = Set(added.waitsFor).subtracting(state.over)
                state.isRegistering = false
                // Not before: what comes is answered with the number.
                state.worker = Task { await self.work() }
                return (state.takeWaiting(), state.hasLeft)
            }
            if hasLeft { registry.remove(added.presenter) }
            for continuation in waiting { continuation.resume() }
        } catch {
            leave()
            throw error
        }
    }

    /// Returns when no claim that began before it was registered is under way any more. Throws `CancellationError`.
    func untilReady() async throws {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    if state.isReady { return .success(()) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.waiting[number] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(throwing: CancellationError())
        }
    }

    /// It is asked and told nothing more; what it is being asked goes on.
    func leave() {
        let (number, waiting) = state.withLock { state in
            state.hasLeft = true
            defer { state.waiting = [:] }
            return (state.number, state.waiting.values)
        }
        if let number { registry.remove(number) }
        messages.finish()
        for continuation in waiting { continuation.resume() }
    }

    func untilFinished() async { await state.withLock { $0.worker }?.value }

    /// The presenter has moved its item itself, or others', and isn't told.
    func follow(_ moves: [ClaimState.Outcome.Move]) {
        state.withLock { state in
            for move in moves {
                guard let new = move.destination(of: state.movedItem ?? state.item) else { continue }
                (state.item, state.movedItem) = (new, new)
            }
        }
    }

    // MARK: Messages

    private func work() async {
        await previous?.untilFinished()
        var given = Given()
        for await message in stream { await handle(message, &given) }
        state.withLock { $0.worker = nil }
    }

    /// On any thread, in order. Who gave up is heard of at once: what the presenter does for that claim is cancelled.
    private func receive(_ message: PresenterMessage) {
        if case .request(let claim, _) = message { state.withLock { _ = $0.unanswered.insert(claim) } }
        if case .notice(let claim, .reacquire) = message {
            let (task, waiting) = state.withLock { state in
                state.over.insert(claim)
                state.unanswered.remove(claim)
                state.waitsFor.remove(claim)
                return (state.asked?.claim == claim ? state.asked?.task : nil, state.takeWaiting())
            }
            // Not here: registries call this under a lock, and what the presenter does about it is its own business.
            if let task { Task { task.cancel() } }
            for continuation in waiting { continuation.resume() }
        }
        // Whoever opens the item next opens it there, whatever the presenter is being told now.
        if case .notice(_, .didMove(let new, nil)) = message { state.withLock { $0.movedItem = new } }
        messages.yield(message)
    }

    private func handle(_ message: PresenterMessage, _ given: inout Given) async {
        switch message {
        case .request(let claim, let request):
            await answer(request, claim, &given)
        case .notice(let claim, .reacquire): await reacquire(claim, &given)
        case .notice(_, let notice):
            if !state.withLock({ $0.hasLeft }) { await tell(notice) }
        case .registration(let registration):
            let isNew = state.withLock { state in
                defer { state.registration = registration }
                return state.registration != registration && !state.hasLeft
            }
            if isNew { await presenter.presentedItemRegistrationDidChange(to: registration) }
        }
    }

    private func tell(_ notice: PresenterNotice) async {
        switch notice {
        case .reacquire: break
        case .didChange(nil): await presenter.presentedItemDidChange()
        case .didChange(let item?): await presenter.presentedSubitemDidChange(at: container.url(of: item))
        case .didMove(let new, nil):
            state.withLock { $0.item = new }
            await presenter.presentedItemDidMove(to: container.url(of: new))
        case .didMove(let new, let old?):
            await presenter.presentedSubitem(at: container.url(of: old), didMoveTo: container.url(of: new))
        }
    }

    private func answer(_ request: PresenterRequest, _ claim: UInt64, _ given: inout Given) async {
        let isCovered = if case .relinquish(let accessor) = request { given.covers(accessor) } else { false }
        let task = state.withLock { state -> Task<Reacquirer?, any Error>? in
            guard !state.hasLeft else { return nil }
            let task = Task { isCovered ? nil : try await self.perform(request) }
            state.asked = (claim, task)
            // Whoever asked gave up before it was heard of.
            if state.over.contains(claim) { task.cancel() }
            return task
        }
        guard let task else { return }
        var failure: String?
        do {
            if let reacquirer = try await task.value { given.reacquirers.append(reacquirer) }
            if case .relinquish(let accessor) = request { given.claims[claim] = accessor }
        } catch {
            failure = "\(error)"
        }
        state.withLock { state in
            state.asked = nil
            state.unanswered.remove(claim)
        }
        if let number { registry.answer(number, claim: claim, request, failure: failure) }
    }

    private func perform(_ request: PresenterRequest) async throws -> Reacquirer? {
        switch request {
        case .save: try await presenter.savePresentedItemChanges()
        case .relinquish(.reader): return try await presenter.relinquishPresentedItemToReader()
        case .relinquish(.writer): return try await presenter.relinquishPresentedItemToWriter()
        case .accommodateDeletion(nil): try await presenter.accommodatePresentedItemDeletion()
        case .accommodateDeletion(let item?):
            try await presenter.accommodatePresentedSubitemDeletion(at: container.url(of: item))
        }
        return nil
    }

    /// Only the last claim's end is the time to take the item again.
    private func reacquire(_ claim: UInt64, _ given: inout Given) async {
        given.claims[claim] = nil
        if given.claims.isEmpty {
            for reacquirer in given.reacquirers.reversed() { await reacquirer() }
            given.reacquirers = []
        }
        state.withLock { _ = $0.over.remove(claim) }
    }
}
