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

    private struct State {
        weak var listener: (any Listener)?
        var wire: AgentWire?
        var generation: UInt64 = 0
        var nextIdentifier: Int64 = 1
        var pending: [Int64: Completion] = [:]
        var isStarted = false
        var isStopped = false
    }

    private let socket: FilePath
    private let state = Mutex(State())
    private let firstTry = DispatchSemaphore(value: 0)
    private let wake = DispatchSemaphore(value: 0)

    private static let answerTime = Duration.seconds(10)
    private static let longestWait = Duration.seconds(2)

    init(_ socket: FilePath) { self.socket = socket }

    func listen(_ listener: any Listener) { state.withLock { $0.listener = listener } }

    /// Of the connection that is up; nil when none is.
    var generation: UInt64? { state.withLock { $0.wire == nil ? nil : $0.generation } }

    /// Begins to keep the connection up. Returns when it is, or when there was no agent at the first try.
    func start() {
        let isFirst = state.withLock { state in
            defer { state.isStarted = true }
            return !state.isStarted
        }
        guard isFirst else { return }
        do {
            _ = try SystemThread(name: "gs-link") { [self] in run() }
        } catch {
            return state.withLock { $0.isStarted = false }
        }
        _ = firstTry.wait(timeout: .now() + .nanoseconds(Int(Self.answerTime.nanoseconds)))
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
            try wire.send(AgentRequest(id: .integer(id), operation), Deadline(after: Self.answerTime))
        } catch {
            wire.end()
            state.withLock { $0.pending.removeValue(forKey: id) }?(.failure(error))
        }
    }

    // MARK: The link's thread

    private func run() {
        var patience = Duration.milliseconds(20)
        while !state.withLock({ $0.isStopped }) {
            if let connection = try? AgentConnection(socket, deadline: Deadline(after: Self.answerTime)) {
                patience = .milliseconds(20)
                serve(connection)
            }
            firstTry.signal()
            _ = wake.wait(timeout: .now() + .nanoseconds(Int(patience.nanoseconds)))
            patience = min(patience * 2, Self.longestWait)
        }
    }

    private func serve(_ connection: AgentConnection) {
        let (generation, listener) = state.withLock { state in
            state.generation += 1
            state.wire = state.isStopped ? nil : connection.wire
            return (state.generation, state.listener)
        }
        listener?.linkConnected(generation: generation)
        firstTry.signal()
        while let message = try? connection.receive(.none) { dispatch(message, generation) }
        let pending = state.withLock { state in
            state.wire = nil
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
