import FileCoordination
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage

/// Performs the effects that a `PresentationState` returns, one after another.
final class PresentationRunner: Sendable {
    private typealias Waiter = CheckedContinuation<Void, any Error>

    private struct Input {
        let event: PresentationState.Event
        /// The error, if the event reports a failure.
        var error: (any Error)?
    }

    /// The app's closures. They are released at the end, because they may retain the object that retains the
    /// presentation.
    private struct Callbacks {
        let open: @Sendable (URL) async throws -> Void
        let close: @Sendable () async throws -> Void
        let failed: @Sendable (any Error) async -> Void
    }

    private struct State {
        var callbacks: Callbacks?
        var presentation = PresentationState()
        var inputs: [Input] = []
        /// True while a thread handles the inputs; it also handles those that come meanwhile.
        var isRunning = false
        var waiters: [PresentationState.Ticket: Waiter] = [:]
        var next: PresentationState.Ticket = 1
        var url: URL
        var lock: PresentedClaim?
        weak var presenter: StorePresentation?
        /// The current work, which can be cancelled.
        var task: Task<Void, Never>?
        var locking: Cancellation?
        var pauses = Backoff(first: .milliseconds(20), longest: .seconds(2))
        /// True once the store was seen at its URL. From then on, opening must not create it.
        var hasExisted = false
        /// Calls `failed` with one error after another.
        var reporting: Task<Void, Never>?
        /// Called once the store is open, or no longer presented.
        var openingHandlers: [@Sendable () -> Void] = []
    }

    private let store: SharedStore
    private let state: Mutex<State>
    /// Threads that wait for the store must not keep it from being opened.
    private let executor = QueueExecutor("gs-presentation")
    /// Runs `failed`, which may block its thread.
    private let reportExecutor = QueueExecutor("gs-report")

    /// The time for which one attempt waits for a relocation and for other claims.
    private static let attemptTimeout = Duration.seconds(30)

    init(
        _ store: SharedStore, open: @escaping @Sendable (URL) async throws -> Void,
        close: @escaping @Sendable () async throws -> Void, failed: @escaping @Sendable (any Error) async -> Void
    ) {
        self.store = store
        let callbacks = Callbacks(open: open, close: close, failed: failed)
        state = Mutex(State(callbacks: callbacks, url: store.url))
    }

    var url: URL { state.withLock { $0.url } }

    var isOpen: Bool {
        state.withLock { state in
            switch state.presentation.phase {
            case .open, .closing: true
            case .closed, .locking, .opening, .pausing, .ended: false
            }
        }
    }

    /// Reports that the agent refused the registration. Returns at once: `failed` may take its time, or wait for
    /// something that this caller has yet to do.
    func report(refused reason: String) {
        _ = scheduleReport(
            FileCoordinationError(
                .agent, reason, remedy: "others will wait for this program without asking it; see the agent's log"))
    }

    /// Reports an error, and returns when `failed` does.
    func report(_ error: any Error) async { await scheduleReport(error).value }

    /// Calls `failed` in a task that nobody cancels, because the closure is the app's.
    private func scheduleReport(_ error: any Error) -> Task<Void, Never> {
        state.withLock { state in
            let task = Task(executorPreference: reportExecutor) {
                [failed = state.callbacks?.failed, previous = state.reporting] in
                await previous?.value
                await failed?(error)
            }
            state.reporting = task
            return task
        }
    }

    // MARK: Requests

    /// Locks and opens the store. Throws the error of either, and `CancellationError`.
    func begin(_ presenter: StorePresentation) async throws {
        state.withLock { $0.presenter = presenter }
        try await withTaskCancellationHandler {
            try await wait { .begin($0) }
            // A cancellation may have come too late to be noticed there.
            try Task.checkCancellation()
        } onCancel: {
            // Nobody waits for this end: the caller of `begin` receives a cancellation.
            send(.end(0))
        }
    }

    /// Returns when the store is closed. Throws the error of closing it, and `CancellationError`.
    func relinquish() async throws {
        try Task.checkCancellation()
        let ticket = ticket()
        try await withTaskCancellationHandler {
            try await wait(ticket) { .relinquish($0) }
        } onCancel: {
            send(.withdraw(ticket))
        }
    }

    func reacquire() { send(.reacquire) }

    /// Throws the error of closing the store.
    func end() async throws { try await wait { .end($0) } }

    private func ticket() -> PresentationState.Ticket {
        state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
    }

    private func wait(
        _ ticket: PresentationState.Ticket? = nil,
        _ event: (PresentationState.Ticket) -> PresentationState.Event
    ) async throws {
        let ticket = ticket ?? self.ticket()
        try await withCheckedThrowingContinuation { (continuation: Waiter) in
            state.withLock { $0.waiters[ticket] = continuation }
            send(event(ticket))
            // A cancellation before this point found nothing to withdraw.
            if case .relinquish = event(ticket), Task.isCancelled { send(.withdraw(ticket)) }
        }
    }

    // MARK: Events and effects

    private func send(_ event: PresentationState.Event, _ error: (any Error)? = nil) {
        let mustRun = state.withLock { state in
            state.inputs.append(Input(event: event, error: error))
            defer { state.isRunning = true }
            return !state.isRunning
        }
        guard mustRun else { return }
        while let (effects, error) = step() {
            for effect in effects { perform(effect, error) }
            for handler in takeOpeningHandlers() { handler() }
        }
    }

    /// Calls `body` once, now or on another thread: when the store is open or no longer presented.
    func whenOpened(_ body: @escaping @Sendable () -> Void) {
        state.withLock { $0.openingHandlers.append(body) }
        for handler in takeOpeningHandlers() { handler() }
    }

    private func takeOpeningHandlers() -> [@Sendable () -> Void] {
        state.withLock { state in
            switch state.presentation.phase {
            case .open, .closing, .ended:
                defer { state.openingHandlers = [] }
                return state.openingHandlers
            case .closed, .locking, .opening, .pausing: return []
            }
        }
    }

    private func step() -> ([PresentationState.Effect], (any Error)?)? {
        state.withLock { state in
            guard !state.inputs.isEmpty else {
                state.isRunning = false
                return nil
            }
            let input = state.inputs.removeFirst()
            return (state.presentation.handle(input.event), input.error)
        }
    }

    private func perform(_ effect: PresentationState.Effect, _ error: (any Error)?) {
        switch effect {
        case .lock: lock()
        case .cancelLocking: state.withLock { $0.locking }?.request()
        case .unlock: state.withLock { $0.lock.take() }?.release()
        case .open: start(then: .opened, otherwise: .notOpened) { [self] in try await openStore() }
        case .close: start(then: .closed, otherwise: .notClosed) { [self] in try await closeStore() }
        case .cancelClosing, .cancelPause: state.withLock { $0.task }?.cancel()
        case .pause: pause(error)
        case .unpresent:
            // Released outside the lock: deinitializers that run then are the app's.
            _ = state.withLock { state in
                state.reporting = nil
                return state.callbacks.take()
            }
            if let presenter = state.withLock({ $0.presenter }) {
                PresentedStores.remove(presenter)
                FileCoordinator.removeFilePresenter(presenter, in: store.container)
            }
        case .succeed(let ticket): removeWaiter(ticket)?.resume()
        case .fail(let ticket): removeWaiter(ticket)?.resume(throwing: error ?? CancellationError())
        case .dismiss(let ticket): removeWaiter(ticket)?.resume(throwing: CancellationError())
        }
    }

    private func removeWaiter(_ ticket: PresentationState.Ticket) -> Waiter? {
        state.withLock { $0.waiters.removeValue(forKey: ticket) }
    }

    /// Runs work in its own task, which no caller's cancellation reaches.
    private func start(
        then done: PresentationState.Event, otherwise failure: PresentationState.Event,
        _ body: @escaping @Sendable () async throws -> Void
    ) {
        let task = Task(executorPreference: executor) { [self] in
            do {
                try await body()
                if done == .opened { state.withLock { $0.pauses.reset() } }
                send(done)
            } catch {
                send(failure, error)
            }
        }
        state.withLock { $0.task = task }
    }

    /// Opens the store. A store that existed is never created again: the program that took it away may bring it back,
    /// and a new store would hide it.
    private func openStore() async throws {
        let (url, hasExisted, callbacks) = state.withLock { ($0.url, $0.hasExisted, $0.callbacks) }
        guard !hasExisted || Self.exists(url) else {
            throw GroupStoreError(
                .noStore, "\(PrintablePath(FilePath(url.path))) is gone",
                remedy: "bring it back, or end its presentation")
        }
        try await callbacks?.open(url)
        recordExistence()
    }

    private func closeStore() async throws {
        recordExistence()
        try await state.withLock { $0.callbacks }?.close()
        recordExistence()
    }

    /// Records whether the store exists, while the lock is held. Some programs create the file when they open the
    /// database, others with its first table.
    private func recordExistence() {
        if Self.exists(url) { state.withLock { $0.hasExisted = true } }
    }

    private static func exists(_ url: URL) -> Bool { FileStatus(following: FilePath(url.path)) != nil }

    private func lock() {
        let cancellation = Cancellation()
        let presenter = state.withLock { state in
            state.locking = cancellation
            return state.presenter
        }
        guard let presenter else { return send(.notLocked, CancellationError()) }
        Task(executorPreference: executor) { [self] in
            do {
                let (url, lock) = try await SystemThread.run(name: "gs-find") { [store] in
                    try store.lockedURL(for: presenter, Deadline(after: Self.attemptTimeout)) {
                        cancellation.isRequested
                    }
                }
                let hasMoved = state.withLock { state in
                    // A caller that waits for the store continues inside `open`, and may ask for its URL.
                    defer { (state.url, state.lock) = (url, lock) }
                    return state.url != url
                }
                if hasMoved { PresentedStores.placesChanged() }
                send(.locked)
            } catch {
                send(.notLocked, GroupStoreError.visible(error))
            }
        }
    }

    /// Waits before the next attempt, rather than giving up: an app without its store would be worse off. Also waits
    /// for `failed`, unless a request ends the pause: `failed` itself may wait for that request.
    private func pause(_ error: (any Error)?) {
        let length = state.withLock { $0.pauses.next() }
        let (reported, reportedContinuation) = AsyncStream<Void>.makeStream()
        let report = error.map { scheduleReport($0) }
        Task(executorPreference: executor) {
            await report?.value
            reportedContinuation.finish()
        }
        let task = Task(executorPreference: executor) { [self] in
            // Both end at once when the task is cancelled, which isn't an error here.
            for await _ in reported {}
            await QueueExecutor.sleep(for: length)
            send(.paused)
        }
        state.withLock { $0.task = task }
    }
}
