import AgentProtocol
import Dispatch
import LinuxSystem
import Synchronization
import SystemPackage

/// A connection to the agent that reconnects when it is lost. One thread reads; any thread may send requests.
final class AgentClient: Sendable {
    /// Receives a client's events in order, on the client's thread.
    protocol Listener: AnyObject, Sendable {
        func agentConnected(generation: UInt64)
        func agentSent(type: String, _ object: JSONObject, generation: UInt64)
        func agentDisconnected(generation: UInt64)
    }

    /// A reply, and the generation of the connection that it came on.
    struct Reply: Sendable {
        let object: JSONObject
        let generation: UInt64
    }

    typealias Completion = @Sendable (Result<Reply, AgentConnectionError>) -> Void

    private struct State {
        weak var listener: (any Listener)?
        /// True if the listener knows of the connection and it isn't known to be lost.
        var isUp = false
        /// Callers that wait for a connection, or for an attempt that began after they came.
        var waiting: [@Sendable () -> Void] = []
        var transport: AgentSocketConnection?
        /// A connection whose agent hasn't sent its greeting yet.
        var connectingTransport: AgentSocketConnection?
        var generation: UInt64 = 0
        var nextIdentifier: Int64 = 1
        var pending: [Int64: Completion] = [:]
        var isStarted = false
        var isStopped = false
    }

    private let socket: FilePath
    /// Returns the directory that this process takes for the group's.
    private let group: @Sendable () -> RelocateOperation.Identity?
    private let state = Mutex(State())
    private let wake = MonotonicSemaphore()

    /// The time that a live agent may take to send its greeting.
    private static let greetingTimeout = Duration.seconds(10)
    /// The time for which an agent that doesn't read may hold up a sender.
    private static let sendTimeout = Duration.seconds(1)
    private static let minimumRetryDelay = Duration.milliseconds(20)
    private static let maximumRetryDelay = Duration.seconds(2)

    init(_ socket: FilePath, in group: @escaping @Sendable () -> RelocateOperation.Identity? = { nil }) {
        self.socket = socket
        self.group = group
    }

    func listen(_ listener: any Listener) { state.withLock { $0.listener = listener } }

    /// The number of the current connection; nil if there is none.
    var generation: UInt64? { state.withLock { $0.transport == nil ? nil : $0.generation } }

    /// Starts to connect in the background. Returns at once.
    func start() {
        let isFirst = state.withLock { state in
            defer { state.isStarted = true }
            return !state.isStarted
        }
        guard isFirst else { return }
        do {
            _ = try SystemThread(name: "gs-client") { [self] in run() }
        } catch {
            let waiting = state.withLock { state in
                state.isStarted = false
                defer { state.waiting = [] }
                return state.waiting
            }
            for body in waiting { body() }
        }
    }

    /// Calls `body` once, now or on the client's thread: as soon as there is a connection, or as soon as an attempt
    /// that began after this call finds no agent. An earlier failed attempt says nothing about now. An agent that
    /// accepts but doesn't reply is waited for: it may know presenters that must be asked.
    func afterConnectionAttempt(_ body: @escaping @Sendable () -> Void) {
        let isSettled = state.withLock { state in
            // Without a thread nobody tries to connect.
            guard !state.isUp, state.isStarted else { return true }
            state.waiting.append(body)
            return false
        }
        if isSettled { return body() }
        wake.signal()
    }

    func stop() {
        state.withLock { state in
            state.isStopped = true
            state.transport?.end()
            state.connectingTransport?.end()
        }
        wake.signal()
    }

    /// Sends a request and calls `completion` once, on the client's thread or on this one.
    ///
    /// - Parameter generation: The connection that the request is meant for, because another agent assigns its own
    ///   numbers to presenters and claims; nil for any connection.
    /// - Returns: False if that connection is gone; nothing is sent then.
    @discardableResult
    func request(
        _ operation: AgentRequest.Operation, on generation: UInt64? = nil, completion: @escaping Completion = { _ in }
    ) -> Bool {
        let (transport, id) = state.withLock { state -> (AgentSocketConnection?, Int64) in
            defer { state.nextIdentifier += 1 }
            guard let transport = state.transport, generation ?? state.generation == state.generation else {
                return (nil, state.nextIdentifier)
            }
            state.pending[state.nextIdentifier] = completion
            return (transport, state.nextIdentifier)
        }
        guard let transport else {
            completion(.failure(.lost(socket)))
            return false
        }
        do {
            let request = AgentRequest(id: .integer(id), operation, groupIdentity: group())
            try transport.send(request, Deadline(after: Self.sendTimeout))
        } catch .tooLong {
            state.withLock { $0.pending.removeValue(forKey: id) }?(.failure(.tooLong))
        } catch {
            transport.end()
            state.withLock { state in
                // The client's thread doesn't know yet. The next caller waits for what that thread finds.
                if state.transport === transport { state.isUp = false }
                return state.pending.removeValue(forKey: id)
            }?(.failure(error))
        }
        return true
    }

    // MARK: The client's thread

    private func run() {
        var backoff = Backoff(first: Self.minimumRetryDelay, longest: Self.maximumRetryDelay)
        while !state.withLock({ $0.isStopped }) {
            // Callers that come from now on need another attempt.
            let waiting = state.withLock { state in
                defer { state.waiting = [] }
                return state.waiting
            }
            do throws(AgentConnectionError) {
                let connection = try AgentConnection(
                    socket, deadline: Deadline(after: Self.greetingTimeout), greeting: hold)
                backoff.reset()
                serve(connection, waiting)
                // An agent that ends each connection must not keep a processor busy, however many callers wait.
                pause(Self.minimumRetryDelay)
                continue
            } catch {
                state.withLock { $0.connectingTransport = nil }
                if case .timedOut = error {
                    state.withLock { $0.waiting.insert(contentsOf: waiting, at: 0) }
                } else {
                    for body in waiting { body() }
                }
            }
            // A caller that comes soon after has a better chance to find an agent.
            if wake.wait(within: backoff.next()) {
                backoff.reset()
            }
        }
    }

    /// Keeps the transport so that `stop` can end it before the agent's greeting.
    private func hold(_ transport: AgentSocketConnection) {
        let isStopped = state.withLock { state in
            state.connectingTransport = transport
            return state.isStopped
        }
        if isStopped { transport.end() }
    }

    /// Handles messages until the connection is lost.
    ///
    /// - Parameter waiting: The callers that came before it was connected.
    private func serve(_ connection: AgentConnection, _ waiting: [@Sendable () -> Void]) {
        let generation = state.withLock { state -> UInt64? in
            guard !state.isStopped else { return nil }
            state.generation += 1
            (state.transport, state.connectingTransport) = (connection.transport, nil)
            return state.generation
        }
        guard let generation else { return }
        // What the listener sends comes before the requests of waiting callers. The listener is retained only for this
        // call.
        state.withLock { $0.listener }?.agentConnected(generation: generation)
        let later = state.withLock { state in
            state.isUp = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for body in waiting + later { body() }
        while let message = try? connection.receive(.none) { dispatch(message, generation) }
        let pending = state.withLock { state in
            state.transport = nil
            state.isUp = false
            defer { state.pending = [:] }
            return state.pending
        }
        for (_, completion) in pending.sorted(by: { $0.key < $1.key }) { completion(.failure(.lost(socket))) }
        state.withLock { $0.listener }?.agentDisconnected(generation: generation)
    }

    private func dispatch(_ message: AgentMessage, _ generation: UInt64) {
        switch message {
        case .reply(.integer(let id)?, let object):
            removeCompletion(id)?(.success(Reply(object: object, generation: generation)))
        case .failure(.integer(let id)?, let error): removeCompletion(id)?(.failure(.refused(error)))
        case .event(let type, let object):
            state.withLock { $0.listener }?.agentSent(type: type, object, generation: generation)
        case .hello, .reply, .failure: break
        }
    }

    private func removeCompletion(_ id: Int64) -> Completion? { state.withLock { $0.pending.removeValue(forKey: id) } }
}
