import AgentProtocol
import Dispatch
import LinuxSystem
import Synchronization
import SystemPackage

/// A connection to the agent that is kept up: lost, it is made anew. One thread reads; any thread asks.
final class AgentClient: Sendable {
    /// What the owner of a link is told, on the link's thread, in order.
    protocol Listener: AnyObject, Sendable {
        func linkConnected(generation: UInt64)
        func linkReceived(type: String, _ object: JSONObject, generation: UInt64)
        func linkLost(generation: UInt64)
    }

    /// An answer, and the connection that it came on.
    struct Reply: Sendable {
        let object: JSONObject
        let generation: UInt64
    }

    typealias Completion = @Sendable (Result<Reply, AgentConnectionError>) -> Void

    private struct State {
        weak var listener: (any Listener)?
        /// The listener knows of the connection, and it is not known to be lost.
        var isUp = false
        /// Those who wait for an agent, or for there being none when they had come.
        var waiting: [@Sendable () -> Void] = []
        var wire: AgentSocketConnection?
        /// Its agent has still to greet.
        var newWire: AgentSocketConnection?
        var generation: UInt64 = 0
        var nextIdentifier: Int64 = 1
        var pending: [Int64: Completion] = [:]
        var isStarted = false
        var isStopped = false
    }

    private let socket: FilePath
    private let state = Mutex(State())
    private let wake = DispatchSemaphore(value: 0)

    /// What an agent that lives takes to greet, at most.
    private static let greetingTime = Duration.seconds(10)
    /// Longer than that nobody who asks is held up by an agent that reads nothing.
    private static let sendingTime = Duration.seconds(1)
    private static let shortestWait = Duration.milliseconds(20)
    private static let longestWait = Duration.seconds(2)

    init(_ socket: FilePath) { self.socket = socket }

    func listen(_ listener: any Listener) { state.withLock { $0.listener = listener } }

    /// Of the connection that is up; nil when none is.
    var generation: UInt64? { state.withLock { $0.wire == nil ? nil : $0.generation } }

    /// Begins to keep the connection up, and returns at once.
    func start() {
        let isFirst = state.withLock { state in
            defer { state.isStarted = true }
            return !state.isStarted
        }
        guard isFirst else { return }
        do {
            _ = try SystemThread(name: "gs-link") { [self] in run() }
        } catch {
            let waiting = state.withLock { state in
                state.isStarted = false
                defer { state.waiting = [] }
                return state.waiting
            }
            for body in waiting { body() }
        }
    }

    /// Calls `body` once, now or on the link's thread, when there is a connection, or when a try that began after this call
    /// has found no agent: that there was none a moment ago says nothing about now. An agent that is there and doesn't
    /// answer is waited for: it may know presenters that must be asked.
    func whenDecided(_ body: @escaping @Sendable () -> Void) {
        let isDecided = state.withLock { state in
            // Without a thread nobody looks for an agent.
            guard !state.isUp, state.isStarted else { return true }
            state.waiting.append(body)
            return false
        }
        if isDecided { return body() }
        wake.signal()
    }

    func stop() {
        state.withLock { state in
            state.isStopped = true
            state.wire?.end()
            state.newWire?.end()
        }
        wake.signal()
    }

    /// `completion` is called once, on the link's thread or on this one. `generation`: of the connection for which it
    /// is meant, since its numbers are another presenter's or claim's to the next agent; nil: any. False where that one
    /// isn't up: nothing is sent then.
    @discardableResult
    func request(
        _ operation: AgentRequest.Operation, on generation: UInt64? = nil, completion: @escaping Completion = { _ in }
    ) -> Bool {
        let (wire, id) = state.withLock { state -> (AgentSocketConnection?, Int64) in
            defer { state.nextIdentifier += 1 }
            guard let wire = state.wire, generation ?? state.generation == state.generation else {
                return (nil, state.nextIdentifier)
            }
            state.pending[state.nextIdentifier] = completion
            return (wire, state.nextIdentifier)
        }
        guard let wire else {
            completion(.failure(.lost(socket)))
            return false
        }
        do {
            try wire.send(AgentRequest(id: .integer(id), operation), Deadline(after: Self.sendingTime))
        } catch {
            wire.end()
            state.withLock { state in
                // The link's thread doesn't know yet: whoever asks once more waits for what it finds next.
                if state.wire === wire { state.isUp = false }
                return state.pending.removeValue(forKey: id)
            }?(.failure(error))
        }
        return true
    }

    // MARK: The link's thread

    private func run() {
        var patience = Self.shortestWait
        while !state.withLock({ $0.isStopped }) {
            // Those who come from now on want another try.
            let waiting = state.withLock { state in
                defer { state.waiting = [] }
                return state.waiting
            }
            do throws(AgentConnectionError) {
                let connection = try AgentConnection(
                    socket, deadline: Deadline(after: Self.greetingTime), greeting: keep)
                patience = Self.shortestWait
                serve(connection, waiting)
                // However many ask: one that ends each connection is not to keep a processor busy.
                pause(Self.shortestWait)
                continue
            } catch {
                state.withLock { $0.newWire = nil }
                if case .timedOut = error {
                    state.withLock { $0.waiting.insert(contentsOf: waiting, at: 0) }
                } else {
                    for body in waiting { body() }
                }
            }
            // Whoever begins something soon after is the likelier to meet an agent.
            let isWanted = wake.wait(timeout: .now() + .nanoseconds(Int(patience.nanoseconds))) == .success
            patience = isWanted ? Self.shortestWait : min(patience * 2, Self.longestWait)
        }
    }

    /// For whoever stops the link meanwhile.
    private func keep(_ wire: AgentSocketConnection) {
        let isStopped = state.withLock { state in
            state.newWire = wire
            return state.isStopped
        }
        if isStopped { wire.end() }
    }

    /// `waiting`: they came before it was connected.
    private func serve(_ connection: AgentConnection, _ waiting: [@Sendable () -> Void]) {
        let generation = state.withLock { state -> UInt64? in
            guard !state.isStopped else { return nil }
            state.generation += 1
            (state.wire, state.newWire) = (connection.wire, nil)
            return state.generation
        }
        guard let generation else { return }
        // What the listener sends goes before what those send who wait. It is held no longer than for the call.
        state.withLock { $0.listener }?.linkConnected(generation: generation)
        let others = state.withLock { state in
            state.isUp = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for body in waiting + others { body() }
        while let message = try? connection.receive(.none) { dispatch(message, generation) }
        let pending = state.withLock { state in
            state.wire = nil
            state.isUp = false
            defer { state.pending = [:] }
            return state.pending
        }
        for (_, completion) in pending.sorted(by: { $0.key < $1.key }) { completion(.failure(.lost(socket))) }
        state.withLock { $0.listener }?.linkLost(generation: generation)
    }

    private func dispatch(_ message: AgentMessage, _ generation: UInt64) {
        switch message {
        case .reply(.integer(let id)?, let object): take(id)?(.success(Reply(object: object, generation: generation)))
        case .failure(.integer(let id)?, let error): take(id)?(.failure(.refused(error)))
        case .event(let type, let object):
            state.withLock { $0.listener }?.linkReceived(type: type, object, generation: generation)
        case .hello, .reply, .failure: break
        }
    }

    private func take(_ id: Int64) -> Completion? { state.withLock { $0.pending.removeValue(forKey: id) } }
}
