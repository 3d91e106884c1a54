import AgentProtocol
import Dispatch
import LinuxSystem
import Synchronization
import SystemPackage

/// A connection to the agent that is kept up: lost, it is made anew. One thread reads; any thread asks.
final class AgentLink: Sendable {
    /// What the owner of a link is told, on the link's thread, in order.
    protocol Listener: AnyObject, Sendable {
        func linkConnected(generation: UInt64)
        func linkReceived(type: String, _ object: JSONObject, generation: UInt64)
        func linkLost(generation: UInt64)
    }

    typealias Completion = @Sendable (Result<JSONObject, AgentConnectionError>) -> Void

    private enum Standing {
        /// No try has ended yet, or an agent is there that doesn't answer.
        case undecided
        case up
        /// No agent is there.
        case down
    }

    private struct State {
        weak var listener: (any Listener)?
        var standing = Standing.undecided
        /// Those who wait for an agent, or for there being none.
        var waiting: [@Sendable () -> Void] = []
        var wire: AgentWire?
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
            state.withLock { $0.isStarted = false }
            decide(.down)
        }
    }

    /// Calls `body` once, now or on the link's thread, when there is a connection or no agent. An agent that is there and
    /// doesn't answer is waited for: it may know presenters that must be asked.
    func whenDecided(_ body: @escaping @Sendable () -> Void) {
        let isDecided = state.withLock { state in
            if state.standing == .undecided { state.waiting.append(body) }
            return state.standing != .undecided
        }
        if isDecided { body() }
    }

    private func decide(_ standing: Standing) {
        let waiting = state.withLock { state in
            state.standing = standing
            defer { if standing != .undecided { state.waiting = [] } }
            return standing == .undecided ? [] : state.waiting
        }
        for body in waiting { body() }
    }

    func stop() {
        state.withLock { state in
            state.isStopped = true
            state.wire?.end()
        }
        wake.signal()
    }

    /// `completion` is called once, on the link's thread or on this one.
    func request(_ operation: AgentRequest.Operation, completion: @escaping Completion = { _ in }) {
        let (wire, id) = state.withLock { state in
            defer { state.nextIdentifier += 1 }
            if state.wire != nil { state.pending[state.nextIdentifier] = completion }
            return (state.wire, state.nextIdentifier)
        }
        guard let wire else { return completion(.failure(.lost(socket))) }
        do {
            try wire.send(AgentRequest(id: .integer(id), operation), Deadline(after: Self.sendingTime))
        } catch {
            wire.end()
            state.withLock { $0.pending.removeValue(forKey: id) }?(.failure(error))
        }
    }

    // MARK: The link's thread

    private func run() {
        var patience = Duration.milliseconds(20)
        while !state.withLock({ $0.isStopped }) {
            do throws(AgentConnectionError) {
                let connection = try AgentConnection(socket, deadline: Deadline(after: Self.greetingTime))
                patience = .milliseconds(20)
                serve(connection)
            } catch {
                if case .timedOut = error { decide(.undecided) } else { decide(.down) }
            }
            _ = wake.wait(timeout: .now() + .nanoseconds(Int(patience.nanoseconds)))
            patience = min(patience * 2, Self.longestWait)
        }
    }

    private func serve(_ connection: AgentConnection) {
        let generation = state.withLock { state -> UInt64? in
            guard !state.isStopped else { return nil }
            state.generation += 1
            state.wire = connection.wire
            return state.generation
        }
        guard let generation else { return }
        // What the listener sends goes before what those send who wait. It is held no longer than for the call.
        state.withLock { $0.listener }?.linkConnected(generation: generation)
        decide(.up)
        while let message = try? connection.receive(.none) { dispatch(message, generation) }
        let pending = state.withLock { state in
            state.wire = nil
            // Another agent may be there at once.
            state.standing = .undecided
            defer { state.pending = [:] }
            return state.pending
        }
        for (_, completion) in pending.sorted(by: { $0.key < $1.key }) { completion(.failure(.lost(socket))) }
        state.withLock { $0.listener }?.linkLost(generation: generation)
    }

    private func dispatch(_ message: AgentMessage, _ generation: UInt64) {
        switch message {
        case .reply(.integer(let id)?, let object): take(id)?(.success(object))
        case .failure(.integer(let id)?, let error): take(id)?(.failure(.refused(error)))
        case .event(let type, let object):
            state.withLock { $0.listener }?.linkReceived(type: type, object, generation: generation)
        case .hello, .reply, .failure: break
        }
    }

    private func take(_ id: Int64) -> Completion? { state.withLock { $0.pending.removeValue(forKey: id) } }
}
