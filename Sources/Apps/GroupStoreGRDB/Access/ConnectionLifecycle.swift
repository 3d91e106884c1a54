import GRDB
import LinuxSystem
import Synchronization

/// The state machine of a database that is closed and opened again while it is used: which connection is open, which
/// accesses are under way, and who waits.
///
/// An access is admitted while the connection is open and nobody wants it closed. Closing waits until no access is
/// under way. So an access that is nested in another one is admitted even then: the closing caller waits for both.
final class ConnectionLifecycle<Connection: SharedDatabaseConnection>: Sendable {
    typealias Unavailable = SharedDatabaseUnavailable
    typealias Session = AccessSession<Connection>

    private struct State {
        var connection: Connection?
        /// The error of the last attempt to open the database.
        var openingError: (any Error)?
        /// The accesses under way.
        var accesses: Set<ObjectIdentifier> = []
        var isClosing = false
        var isEnded = false
        var nextNumber: UInt64 = 0
        /// Wakes the callers that wait for the connection, by number, so that each can give up.
        var waiting: [UInt64: @Sendable () -> Void] = [:]
        /// The accesses that wait without a caller, in the order in which they were requested.
        var queue: [QueuedAccess] = []
        /// True while a thread starts the queued accesses. Those that come meanwhile join the queue.
        var isStartingQueue = false
        /// The caller that closes the connection once nobody uses it. The presentation makes sure that there is only
        /// one at a time.
        var closer: CheckedContinuation<Void, any Error>?
        var observers: [UInt64: ObserverEntry] = [:]

        var isAvailableOrEnded: Bool { isEnded || connection != nil && !isClosing }

        mutating func number() -> UInt64 {
            defer { nextNumber += 1 }
            return nextNumber
        }

        mutating func takeWaiting() -> [@Sendable () -> Void] {
            defer { waiting = [:] }
            return waiting.sorted { $0.key < $1.key }.map(\.value)
        }
    }

    private struct QueuedAccess {
        let number: UInt64
        let access: Access
        let scope: [Access]
        let start: @Sendable (Result<Session, Unavailable>) -> Void
    }

    private struct ObserverEntry {
        let observer: any ReopeningObserver
        /// True if the observer was begun on the current connection.
        var isRunning: Bool
    }

    private let store: String
    private let patience: Duration
    private let state = Mutex(State())

    init(store: String, patience: Duration) {
        self.store = store
        // The clock can't count longer durations, and nobody waits that long.
        self.patience = min(patience, .seconds(100 * 365 * 86_400))
    }

    /// True while the database is closed.
    var isClosed: Bool { state.withLock { $0.connection == nil } }

    /// True while new accesses wait because another process wants the database closed.
    var isClosing: Bool { state.withLock { $0.isClosing } }

    /// True once the database was closed for good.
    var isEnded: Bool { state.withLock { $0.isEnded } }

    // MARK: Opening and closing

    /// Takes a connection that was opened. Observers continue on it, then whoever waits does.
    func opened(_ connection: Connection) {
        // An access that doesn't wait may come as soon as the connection is there.
        for observer in idleObservers { observer.attach(to: connection) }
        state.withLock { state in
            state.connection = connection
            state.openingError = nil
            state.isClosing = false
        }
        beginIdleObservers(on: connection)
        wake()
    }

    func openingFailed(_ error: any Error) {
        state.withLock { if $0.connection == nil { $0.openingError = error } }
    }

    /// Closes the connection once the accesses under way have ended. If that fails or is cancelled, it stays open, and
    /// whoever waits continues. Throws `CancellationError` and GRDB's errors.
    func close() async throws {
        do {
            try await waitUntilUnused()
            let (connection, observers) = state.withLock { state in
                for number in state.observers.keys { state.observers[number]?.isRunning = false }
                return (state.connection, state.observers.values.map(\.observer))
            }
            for observer in observers { observer.pause() }
            try connection?.closeWithoutLog()
            state.withLock { $0.connection = nil }
        } catch {
            // Whoever wanted the store may have given up. Only this caller closes the connection.
            if let connection = state.withLock({ $0.connection }) { beginIdleObservers(on: connection) }
            state.withLock { $0.isClosing = false }
            wake()
            throw error
        }
    }

    /// Blocks new accesses, and returns when none is under way. Throws `CancellationError`.
    private func waitUntilUnused() async throws {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    state.isClosing = true
                    if state.accesses.isEmpty { return .success(()) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.closer = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.closer.take() }?.resume(throwing: CancellationError())
        }
    }

    /// Fails the accesses that wait, and all later ones.
    func end() {
        state.withLock { $0.isEnded = true }
        wake()
    }

    /// Ends the observers after the database was closed for good.
    func endObservers() {
        let observers = state.withLock { state in
            defer { state.observers = [:] }
            return state.observers.sorted { $0.key < $1.key }.map(\.value.observer)
        }
        for observer in observers { observer.end() }
    }

    private func wake() {
        for resume in state.withLock({ $0.takeWaiting() }) { resume() }
        startQueue()
    }

    // MARK: Admission

    private enum Admission {
        case session(Session)
        case refused(Unavailable)
        case wait(error: (any Error)?)
    }

    private func admit(_ access: Access, in scope: [Access]? = nil) -> Admission {
        state.withLock { state in
            // The closing caller waits for the outer access, and so for this one.
            let isNested = (scope ?? AccessScope.current).contains { state.accesses.contains(ObjectIdentifier($0)) }
            if let connection = state.connection, isNested || !state.isClosing && !state.isEnded {
                state.accesses.insert(ObjectIdentifier(access))
                return .session(Session(connection, access, self))
            }
            return state.isEnded ? .refused(unavailable(.closed)) : .wait(error: state.openingError)
        }
    }

    private func unavailable(_ reason: Unavailable.Reason) -> Unavailable { Unavailable(store: store, reason: reason) }

    private func late(_ error: (any Error)?) -> Unavailable { unavailable(error.map { .notOpened($0) } ?? .away) }

    /// True if the current code runs inside an access that is still under way.
    var isInsideAccess: Bool {
        let scope = AccessScope.current
        return state.withLock { state in scope.contains { state.accesses.contains(ObjectIdentifier($0)) } }
    }

    func release(_ access: Access) {
        state.withLock { state in
            state.accesses.remove(ObjectIdentifier(access))
            return state.accesses.isEmpty ? state.closer.take() : nil
        }?.resume()
    }

    // MARK: Accesses that suspend the task

    /// Waits for the connection. Throws `SharedDatabaseUnavailable` and `CancellationError`.
    func session() async throws -> Session {
        let deadline = ContinuousClock.now.advanced(by: patience)
        let access = Access()
        while true {
            try Task.checkCancellation()
            switch admit(access) {
            case .session(let session): return session
            case .refused(let error): throw error
            case .wait(let error):
                guard ContinuousClock.now < deadline else { throw late(error) }
                await waitUntilAvailable(deadline)
            }
        }
    }

    /// Returns when the connection was opened, the database was closed for good, or the deadline has passed.
    private func waitUntilAvailable(_ deadline: ContinuousClock.Instant) async {
        let number = state.withLock { $0.number() }
        let timeout = Task { [self] in
            try? await Task.sleep(until: deadline, clock: .continuous)
            state.withLock { $0.waiting.removeValue(forKey: number) }?()
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = state.withLock { state in
                    let isOver =
                        state.isAvailableOrEnded || Task.isCancelled || ContinuousClock.now >= deadline
                    if !isOver { state.waiting[number] = { continuation.resume() } }
                    return isOver
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?()
        }
        timeout.cancel()
    }

    // MARK: Accesses that block the thread

    /// Waits for the connection on the calling thread.
    func blockingSession() -> Result<Session, Unavailable> {
        let deadline = Deadline(after: patience)
        let access = Access()
        while true {
            switch admit(access) {
            case .session(let session): return .success(session)
            case .refused(let error): return .failure(error)
            case .wait(let error):
                guard let remaining = deadline.remaining, remaining > .zero else { return .failure(late(error)) }
                let signal = MonotonicSemaphore()
                let number = state.withLock { state -> UInt64? in
                    guard !state.isAvailableOrEnded else { return nil }
                    let number = state.number()
                    state.waiting[number] = { signal.signal() }
                    return number
                }
                guard let number else { continue }
                signal.wait(within: remaining)
                state.withLock { _ = $0.waiting.removeValue(forKey: number) }
            }
        }
    }

    // MARK: Accesses that return at once

    /// Calls `start` with the connection, now or when it is open, in the order of the calls.
    func queuedSession(_ start: @escaping @Sendable (Result<Session, Unavailable>) -> Void) {
        let (access, scope) = (Access(), AccessScope.current)
        let isFirst = state.withLock { state in
            // A nested access can't wait behind one that waits for it.
            state.queue.isEmpty && !state.isStartingQueue
                || scope.contains { state.accesses.contains(ObjectIdentifier($0)) }
        }
        if isFirst {
            switch admit(access, in: scope) {
            case .session(let session): return start(.success(session))
            case .refused(let error): return start(.failure(error))
            case .wait: break
            }
        }
        let number = state.withLock { state in
            let number = state.number()
            state.queue.append(QueuedAccess(number: number, access: access, scope: scope, start: start))
            return number
        }
        // Not a task: the callers may block all threads that tasks run on until this access is done.
        QueueExecutor.run(after: patience) { [weak self] in self?.expire(number) }
        // The connection may have been opened since.
        startQueue()
    }

    /// Fails a queued access that has waited long enough.
    private func expire(_ number: UInt64) {
        let (late, error) = state.withLock { state -> (QueuedAccess?, (any Error)?) in
            guard let index = state.queue.firstIndex(where: { $0.number == number }) else { return (nil, nil) }
            return (state.queue.remove(at: index), state.openingError)
        }
        late?.start(.failure(self.late(error)))
    }

    /// Starts the queued accesses, in order, as long as there is a connection. One thread does at a time.
    private func startQueue() {
        let isFree = state.withLock { state in
            defer { state.isStartingQueue = true }
            return !state.isStartingQueue
        }
        guard isFree else { return }
        while let (queued, result) = nextQueued() { queued.start(result) }
    }

    private func nextQueued() -> (QueuedAccess, Result<Session, Unavailable>)? {
        state.withLock { state in
            guard let first = state.queue.first, state.isAvailableOrEnded else {
                state.isStartingQueue = false
                return nil
            }
            state.queue.removeFirst()
            guard let connection = state.connection, !state.isEnded else {
                return (first, .failure(unavailable(.closed)))
            }
            state.accesses.insert(ObjectIdentifier(first.access))
            let session = AccessScope.$current.withValue(first.scope) { Session(connection, first.access, self) }
            return (first, .success(session))
        }
    }

    /// Returns a session if the connection is open and can't be closed before the session is counted; nil otherwise.
    /// For calls that concern the accesses under way, so they don't wait behind a caller that closes.
    func currentSession() -> Session? {
        let access = Access()
        return state.withLock { state in
            guard let connection = state.connection, !state.isClosing || !state.accesses.isEmpty else { return nil }
            state.accesses.insert(ObjectIdentifier(access))
            return Session(connection, access, self)
        }
    }

    // MARK: Observers

    /// Adds an observer, and begins it if the connection is open; otherwise it is begun when it is. Returns nil when
    /// the database is closed for good.
    func add(_ observer: some ReopeningObserver) -> UInt64? {
        let access = Access()
        let (number, session) = state.withLock { state -> (UInt64?, Session?) in
            guard !state.isEnded else { return (nil, nil) }
            let number = state.number()
            guard let connection = state.connection, !state.isClosing else {
                state.observers[number] = ObserverEntry(observer: observer, isRunning: false)
                return (number, nil)
            }
            state.observers[number] = ObserverEntry(observer: observer, isRunning: true)
            // The access keeps the connection open while the observer begins.
            state.accesses.insert(ObjectIdentifier(access))
            return (number, Session(connection, access, self))
        }
        if let session {
            observer.begin(on: session.connection)
            session.end()
        }
        return number
    }

    /// Adds an observer that begins within a session of the caller's. Returns nil when the database is closed for good.
    func add(_ observer: some ReopeningObserver, begunIn session: Session) -> UInt64? {
        let number = state.withLock { state -> UInt64? in
            guard !state.isEnded else { return nil }
            let number = state.number()
            state.observers[number] = ObserverEntry(observer: observer, isRunning: true)
            return number
        }
        if number != nil { observer.begin(on: session.connection) }
        return number
    }

    func removeObserver(_ number: UInt64) {
        state.withLock { $0.observers.removeValue(forKey: number)?.observer }?.pause()
    }

    /// Begins all observers again. If the database is closed, they begin when it is opened.
    func restartObservers() {
        guard let session = currentSession() else { return }
        let observers = state.withLock { $0.observers.values.filter(\.isRunning).map(\.observer) }
        for observer in observers { observer.begin(on: session.connection) }
        session.end()
    }

    /// The observers that aren't running, in the order in which they were added.
    private var idleObservers: [any ReopeningObserver] {
        state.withLock { $0.observers.filter { !$0.value.isRunning }.sorted { $0.key < $1.key }.map(\.value.observer) }
    }

    /// Begins the observers that aren't running. The caller makes sure that nobody closes the connection meanwhile.
    private func beginIdleObservers(on connection: Connection) {
        let observers = state.withLock { state in
            let idle = state.observers.filter { !$0.value.isRunning }.sorted { $0.key < $1.key }
            for number in idle.map(\.key) { state.observers[number]?.isRunning = true }
            return idle.map(\.value.observer)
        }
        for observer in observers { observer.begin(on: connection) }
    }
}
