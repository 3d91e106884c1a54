import FileCoordination
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage

/// Carries out what a `PresentationState` says, one thing after another.
final class PresentationRunner: Sendable {
    private typealias Waiter = CheckedContinuation<Void, any Error>

    private struct Input {
        let event: PresentationState.Event
        /// What went wrong, where the event says that something did.
        var error: (any Error)?
    }

    /// What the app does. Let go of in the end: it may hold what holds the presentation.
    private struct Callbacks {
        let open: @Sendable (URL) async throws -> Void
        let close: @Sendable () async throws -> Void
        let failed: @Sendable (any Error) async -> Void
    }

    private struct State {
        var callbacks: Callbacks?
        var presentation = PresentationState()
        var inputs: [Input] = []
        /// Somebody is at work on the inputs, and takes what comes meanwhile.
        var isRunning = false
        var waiters: [PresentationState.Ticket: Waiter] = [:]
        var next: PresentationState.Ticket = 1
        var url: URL
        var lock: PresentedClaim?
        weak var presenter: StorePresentation?
        /// What is under way, and can be cancelled.
        var task: Task<Void, Never>?
        var locking: Cancellation?
        var nextPause = shortestPause
        /// The store was seen at its place: whoever opens it doesn't make it any more.
        var isMade = false
        /// `failed` is told one thing after another.
        var reporting: Task<Void, Never>?
    }

    private let store: SharedStore
    private let state: Mutex<State>

    /// How long one attempt waits for a relocation under way, and for those who claim the store.
    private static let patience = Duration.seconds(30)
    private static let shortestPause = Duration.milliseconds(20)
    private static let longestPause = Duration.seconds(2)

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

    /// Returns at once: `failed` may take its time, or wait for what whoever calls this has still to do.
    func report(refused reason: String) {
        _ = reporting(
            FileCoordinationError(
                .agent, reason, remedy: "others wait for this program without asking it; see the agent's log"))
    }

    /// Returns when `failed` does.
    func report(_ error: any Error) async { await reporting(error).value }

    /// In a task that nobody cancels: it is the app's.
    private func reporting(_ error: any Error) -> Task<Void, Never> {
        state.withLock { state in
            let task = Task { [failed = state.callbacks?.failed, previous = state.reporting] in
                await previous?.value
                await failed?(error)
            }
            state.reporting = task
            return task
        }
    }

    // MARK: What others want

    /// Throws what locking or opening the store throws, and `CancellationError`.
    func begin(_ presenter: StorePresentation) async throws {
        state.withLock { $0.presenter = presenter }
        try await withTaskCancellationHandler {
            try await wait { .begin($0) }
            // It may have come too late to be heard of there.
            try Task.checkCancellation()
        } onCancel: {
            // Nobody waits for this end: whoever began hears of it as a cancellation.
            send(.end(0))
        }
    }

    /// Returns when the store is closed. Throws what closing it throws; `CancellationError` when the task is cancelled.
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

    /// Throws what closing the store throws.
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
            // A cancellation before that found nothing to withdraw.
            if case .relinquish = event(ticket), Task.isCancelled { send(.withdraw(ticket)) }
        }
    }

    // MARK: One thing after another

    private func send(_ event: PresentationState.Event, _ error: (any Error)? = nil) {
        let isMine = state.withLock { state in
            state.inputs.append(Input(event: event, error: error))
            defer { state.isRunning = true }
            return !state.isRunning
        }
        guard isMine else { return }
        while let (effects, error) = step() {
            for effect in effects { perform(effect, error) }
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
        case .unlock: state.withLock { $0.lock.take() }?.leave()
        case .open: start(then: .opened, otherwise: .notOpened) { [self] in try await openStore() }
        case .close: start(then: .closed, otherwise: .notClosed) { [self] in try await closeStore() }
        case .cancelClosing, .cancelPause: state.withLock { $0.task }?.cancel()
        case .pause: pause(error)
        case .unpresent:
            // Outside the lock: what ends with them is the app's.
            _ = state.withLock { state in
                state.reporting = nil
                return state.callbacks.take()
            }
            if let presenter = state.withLock({ $0.presenter }) {
                FileCoordinator.removeFilePresenter(presenter, in: store.container)
            }
        case .succeed(let ticket): take(ticket)?.resume()
        case .fail(let ticket): take(ticket)?.resume(throwing: error ?? CancellationError())
        case .dismiss(let ticket): take(ticket)?.resume(throwing: CancellationError())
        }
    }

    private func take(_ ticket: PresentationState.Ticket) -> Waiter? {
        state.withLock { $0.waiters.removeValue(forKey: ticket) }
    }

    /// In a task of its own: nobody else's cancellation is its.
    private func start(
        then done: PresentationState.Event, otherwise failure: PresentationState.Event,
        _ body: @escaping @Sendable () async throws -> Void
    ) {
        let task = Task { [self] in
            do {
                try await body()
                if done == .opened { state.withLock { $0.nextPause = Self.shortestPause } }
                send(done)
            } catch {
                send(failure, error)
            }
        }
        state.withLock { $0.task = task }
    }

    /// A store that was there is never made anew: whoever took it away may bring it back, and it would be lost to those
    /// who look for it here.
    private func openStore() async throws {
        let (url, isMade, callbacks) = state.withLock { ($0.url, $0.isMade, $0.callbacks) }
        guard !isMade || Self.isThere(url) else {
            throw GroupStoreError(
                .noStore, "\(PrintablePath(FilePath(url.path))) isn't there any more",
                remedy: "bring it back, or end its presentation")
        }
        try await callbacks?.open(url)
        noteWhetherMade()
    }

    private func closeStore() async throws {
        noteWhetherMade()
        try await state.withLock { $0.callbacks }?.close()
        noteWhetherMade()
    }

    /// While the lock is held. Some make the file when they open the database, others with its first table.
    private func noteWhetherMade() {
        if Self.isThere(url) { state.withLock { $0.isMade = true } }
    }

    private static func isThere(_ url: URL) -> Bool { FileStatus(following: FilePath(url.path)) != nil }

    private func lock() {
        let cancellation = Cancellation()
        let presenter = state.withLock { state in
            state.locking = cancellation
            return state.presenter
        }
        guard let presenter else { return send(.notLocked, CancellationError()) }
        Task { [self] in
            do {
                let (url, lock) = try await SystemThread.run(name: "gs-find") { [store] in
                    try store.lockedURL(for: presenter, Deadline(after: Self.patience)) { cancellation.isRequested }
                }
                state.withLock { state in
                    // Whoever waits for the store goes on inside `open`, and may ask where it is.
                    state.url = url
                    state.lock = lock
                }
                send(.locked)
            } catch {
                send(.notLocked, GroupStoreError.visible(error))
            }
        }
    }

    /// An app that lost its store would be worse off than one that waits. It waits for `failed` too, unless somebody wants
    /// the pause to end: that may be what `failed` itself waits for.
    private func pause(_ error: (any Error)?) {
        let length = state.withLock { state in
            defer { state.nextPause = min(state.nextPause * 2, Self.longestPause) }
            return state.nextPause
        }
        let (told, telling) = AsyncStream<Void>.makeStream()
        let report = error.map { reporting($0) }
        Task {
            await report?.value
            telling.finish()
        }
        let task = Task { [self] in
            // Both end at once when the task is cancelled, which is no error here.
            for await _ in told {}
            try? await Task.sleep(for: length)
            send(.paused)
        }
        state.withLock { $0.task = task }
    }
}
