import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization

/// A file presenter with its registration. Delivers messages to the presenter one at a time, and returns its answers.
package final class RegisteredPresenter: Sendable {
    private let presenter: any FilePresenter
    private let container: GroupContainer
    private let registry: any PresenterRegistry
    private let stream: AsyncStream<PresenterMessage>
    private let messages: AsyncStream<PresenterMessage>.Continuation
    private let previous: RegisteredPresenter?
    /// Threads that wait for the item must not keep its presenter from reacquiring it.
    private let executor = QueueExecutor("gs-presenter")
    private let state: Mutex<State>

    private struct State {
        /// The item, as the presenter last learned.
        var item: ClaimedItem
        /// The item's latest location, if it has moved.
        var movedItem: ClaimedItem?
        var number: UInt64?
        var registration = FilePresenterRegistration.waiting(reason: "registration is in progress")
        var isRegistering = true
        /// Handles the messages. Ends after the last one.
        var worker: Task<Void, Never>?
        var isUnregistered = false
        /// The claims whose requests the presenter has not answered, including those that it hasn't started on.
        var unanswered: Set<UInt64> = []
        /// The request that the presenter is carrying out, and its claim.
        var current: (claim: UInt64, task: Task<Reacquirer?, any Error>)?
        /// Claims that have ended and of which the presenter has not been notified yet.
        var endedClaims: Set<UInt64> = []
        /// Claims that began before the presenter was registered.
        var earlierClaims: Set<UInt64> = []
        /// The callers of `waitUntilReady`, by number, so that each can be cancelled.
        var waiters: [UInt64: CheckedContinuation<Void, any Error>] = [:]
        var nextWaiter: UInt64 = 0

        var isReady: Bool { !isRegistering && (isUnregistered || earlierClaims.isEmpty) }

        mutating func removeReadyWaiters() -> [CheckedContinuation<Void, any Error>] {
            guard isReady else { return [] }
            defer { waiters = [:] }
            return Array(waiters.values)
        }
    }

    package var number: UInt64? { state.withLock { $0.number } }
    /// True while a claim waits for the presenter's answer. The presenter's own coordinated accesses then bypass the
    /// queue: the waiting claim is ahead in it, and the presenter may be unable to answer before the access that it
    /// makes in its current method.
    package var owesAnswer: Bool { state.withLock { !$0.unanswered.isEmpty } }
    package var item: ClaimedItem { state.withLock { $0.item } }
    /// The item's current location, even if the presenter hasn't been notified of it yet.
    package var latestItem: ClaimedItem { state.withLock { $0.movedItem ?? $0.item } }
    package var registration: FilePresenterRegistration { state.withLock { $0.registration } }

    package func isRegistration(of other: any FilePresenter) -> Bool { presenter === other }

    /// Returns the purpose that all coordinators of a presenter share unless one is set.
    package static func purpose(of presenter: any FilePresenter) -> String {
        "presenter-\(ProcessIdentity.current.pid)-\(process)-\(UInt(bitPattern: ObjectIdentifier(presenter).hashValue))"
    }

    private static let process = String(UInt64.random(in: 0...UInt64.max), radix: 36)

    /// Creates a registration. The messages of `previous`, the presenter's last registration, are handled first.
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

    /// The claims for which the presenter has relinquished its item, and the closures that reacquire it.
    private struct RelinquishedItem {
        var claims: [UInt64: PresenterRequest.Accessor] = [:]
        var reacquirers: [Reacquirer] = []

        /// Returns true if the presenter need not be asked: relinquishing to a writer covers readers too.
        func covers(_ accessor: PresenterRequest.Accessor) -> Bool {
            claims.values.contains { $0 == .writer || $0 == accessor }
        }
    }

    // MARK: Registration

    /// Adds the presenter to the registry. Must run on a thread that may block. Throws what the registry throws.
    func register() throws {
        do {
            let admission = try registry.add(
                item, ProcessIdentity.current.holder, versions: presenter.openableModelVersions
            ) { [weak self] in self?.receive($0) }
            let (waiters, isUnregistered) = state.withLock { state in
                state.number = admission.presenter
                state.registration = admission.registration
                state.earlierClaims = Set(admission.pendingClaims).subtracting(state.endedClaims)
                state.isRegistering = false
                // Not before: answers need the number.
                state.worker = Task(executorPreference: executor) { await self.handleMessages() }
                return (state.removeReadyWaiters(), state.isUnregistered)
            }
            if isUnregistered { registry.remove(admission.presenter) }
            for continuation in waiters { continuation.resume() }
        } catch {
            unregister()
            throw error
        }
    }

    /// Returns when all claims that began before the registration have ended. Throws `CancellationError`.
    func waitUntilReady() async throws {
        let number = state.withLock { state in
            defer { state.nextWaiter += 1 }
            return state.nextWaiter
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    if state.isReady { return .success(()) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.waiters[number] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.waiters.removeValue(forKey: number) }?.resume(throwing: CancellationError())
        }
    }

    /// Ends the registration. The presenter gets no further messages; a request in progress continues.
    func unregister() {
        let (number, waiters) = state.withLock { state in
            state.isUnregistered = true
            defer { state.waiters = [:] }
            return (state.number, state.waiters.values)
        }
        if let number { registry.remove(number) }
        messages.finish()
        for continuation in waiters { continuation.resume() }
    }

    func waitUntilFinished() async { await state.withLock { $0.worker }?.value }

    /// Applies moves that the presenter made itself, and of which it isn't notified.
    func apply(_ moves: [ClaimState.Outcome.Move]) {
        state.withLock { state in
            for move in moves {
                guard let new = move.destination(of: state.movedItem ?? state.item) else { continue }
                (state.item, state.movedItem) = (new, new)
            }
        }
    }

    // MARK: Messages

    private func handleMessages() async {
        await previous?.waitUntilFinished()
        var relinquished = RelinquishedItem()
        for await message in stream { await handle(message, &relinquished) }
        state.withLock { $0.worker = nil }
    }

    /// Receives a message, on any thread, in order. If its claim has ended, cancels the request in progress at once.
    private func receive(_ message: PresenterMessage) {
        if case .request(let claim, _) = message { state.withLock { _ = $0.unanswered.insert(claim) } }
        if case .notice(let claim, .reacquire) = message {
            let (task, waiters) = state.withLock { state in
                state.endedClaims.insert(claim)
                state.unanswered.remove(claim)
                state.earlierClaims.remove(claim)
                return (state.current?.claim == claim ? state.current?.task : nil, state.removeReadyWaiters())
            }
            // Not inline: registries call this under a lock, and a cancellation handler runs the presenter's code. Not
            // on the executor: the presenter's method may block it.
            if let task { QueueExecutor.run { task.cancel() } }
            for continuation in waiters { continuation.resume() }
        }
        // The next open must use the new location, even before the presenter is notified.
        if case .notice(_, .didMove(let new, nil)) = message { state.withLock { $0.movedItem = new } }
        messages.yield(message)
    }

    private func handle(_ message: PresenterMessage, _ relinquished: inout RelinquishedItem) async {
        switch message {
        case .request(let claim, let request):
            await answer(request, for: claim, &relinquished)
        case .notice(let claim, .reacquire): await reacquire(claim, &relinquished)
        case .notice(_, let notice):
            if !state.withLock({ $0.isUnregistered }) { await notify(notice) }
        case .registration(let registration):
            let hasChanged = state.withLock { state in
                defer { state.registration = registration }
                return state.registration != registration && !state.isUnregistered
            }
            if hasChanged { await presenter.presentedItemRegistrationDidChange(to: registration) }
        }
    }

    private func notify(_ notice: PresenterNotice) async {
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

    private func answer(_ request: PresenterRequest, for claim: UInt64, _ relinquished: inout RelinquishedItem) async {
        let isCovered = if case .relinquish(let accessor) = request { relinquished.covers(accessor) } else { false }
        let task = state.withLock { state -> Task<Reacquirer?, any Error>? in
            guard !state.isUnregistered else { return nil }
            let task = Task(executorPreference: executor) { isCovered ? nil : try await self.perform(request) }
            state.current = (claim, task)
            // The claim ended before the presenter got to this request.
            if state.endedClaims.contains(claim) { task.cancel() }
            return task
        }
        guard let task else { return }
        var failure: String?
        do {
            if let reacquirer = try await task.value { relinquished.reacquirers.append(reacquirer) }
            if case .relinquish(let accessor) = request { relinquished.claims[claim] = accessor }
        } catch {
            failure = "\(error)"
        }
        state.withLock { state in
            state.current = nil
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

    /// Reacquires the item when the last of its claims has ended.
    private func reacquire(_ claim: UInt64, _ relinquished: inout RelinquishedItem) async {
        relinquished.claims[claim] = nil
        if relinquished.claims.isEmpty {
            for reacquirer in relinquished.reacquirers.reversed() { await reacquirer() }
            relinquished.reacquirers = []
        }
        state.withLock { _ = $0.endedClaims.remove(claim) }
    }
}
