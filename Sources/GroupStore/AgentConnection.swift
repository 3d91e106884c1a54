import AgentProtocol
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// Why the agent could not be asked, or what it answered.
package enum AgentConnectionError: Error, Equatable {
    /// Neither variable says where the socket is.
    case noSocketPath
    case noAgent(FilePath, SystemError)
    /// The connection ended.
    case lost(FilePath)
    case timedOut(FilePath)
    /// What came is not this protocol.
    case notUnderstood(FilePath, String)
    case refused(WireError)
    /// The process was told to end.
    case interrupted

    package var message: String {
        switch self {
        case .noSocketPath: "where the agent listens is not known: neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set"
        case .noAgent(let socket, let error): "no agent at \(PrintablePath(socket)): \(error.errno)"
        case .lost(let socket): "the agent at \(PrintablePath(socket)) ended the connection"
        case .timedOut(let socket): "the agent at \(PrintablePath(socket)) did not answer in time"
        case .notUnderstood(let socket, let why): "what answers at \(PrintablePath(socket)) is no agent: \(why)"
        case .refused(let error): error.message
        case .interrupted: "it was told to end"
        }
    }

    package var remedy: String {
        switch self {
        case .noSocketPath: "set GROUPSTORE_SOCKET to the agent's socket"
        case .noAgent(_, let error):
            error.errno == .permissionDenied
                ? "the agent's owner can add this user to socket: allow" : "start one: groupstore agent"
        case .lost: "look at the agent's log, or start it: groupstore agent"
        case .timedOut: "is it stopped? look at its log"
        case .notUnderstood: "check GROUPSTORE_SOCKET, and that both are of the same version"
        case .refused(let error): error.hint ?? "see the agent's log"
        case .interrupted: "start it again"
        }
    }
}

/// A connection to the agent, used by one thread, which waits for what it asks.
package final class AgentConnection {
    package let socket: FilePath
    /// The agent's version.
    package private(set) var agent = ""
    /// Its sending half, which any thread may use.
    let wire: AgentSocketConnection
    private var lines = LineBuffer()
    private var events: [AgentMessage] = []
    private var nextEvent = 0
    private var nextIdentifier: Int64 = 1

    /// The socket that the environment names. Throws `AgentConnectionError`.
    package static func standardSocket(
        environment: [String: String]
    ) throws(AgentConnectionError) -> FilePath {
        guard let path = AgentSocket.path(environment: environment) else { throw .noSocketPath }
        return path
    }

    /// Connects and reads the agent's greeting. `bell`: a descriptor that ends all waiting, `interrupted`, when it can be read
    /// from.
    package convenience init(
        _ socket: FilePath, deadline: Deadline = Deadline(after: .seconds(10)), bell: CInt? = nil
    ) throws(AgentConnectionError) {
        try self.init(socket, deadline: deadline, bell: bell, greeting: { _ in })
    }

    /// `greeting` is called with the wire before the greeting is waited for: another thread may end it from then on.
    init(
        _ socket: FilePath, deadline: Deadline = Deadline(after: .seconds(10)), bell: CInt? = nil,
        greeting: (AgentSocketConnection) -> Void
    ) throws(AgentConnectionError) {
        self.socket = socket
        wire = try AgentSocketConnection(socket, deadline, bell: bell)
        greeting(wire)
        switch try receive(deadline) {
        case .hello(let version, let agent, _)? where version == WireLine.protocolVersion: self.agent = agent
        case .hello(let version, _, _)?: throw .notUnderstood(socket, "it speaks protocol \(version)")
        case .failure(_, let error)?: throw .refused(error)
        case nil: throw .timedOut(socket)
        default: throw .notUnderstood(socket, "it does not say hello")
        }
    }

    /// Whether the agent runs as this process's user: another user's wants proof of what this one may do.
    package var isOwn: Bool { (try? UnixSocket.peer(of: wire.raw))?.uid == geteuid() }

    /// Asks, and waits for the answer; lines that belong to it go to `part`. Events that come meanwhile are kept. `passing`: a
    /// copy of it goes to the agent, and it is closed. `patience`: for how long the answer is waited for when the bell has
    /// rung and the agent was told to cancel what it does; without it, the bell ends the waiting.
    package func request(
        _ operation: AgentRequest.Operation, deadline: Deadline, passing descriptor: consuming Descriptor? = nil,
        cancelling patience: Duration? = nil, part: (_ type: String, JSONObject) -> Void = { _, _ in }
    ) throws(AgentConnectionError) -> JSONObject {
        let id = JSONValue.integer(nextIdentifier)
        nextIdentifier += 1
        try send(AgentRequest(id: id, operation), deadline, passing: descriptor)
        var deadline = deadline
        var isCancelled = false
        while true {
            let received: AgentMessage?
            do throws(AgentConnectionError) {
                received = try receive(deadline)
            } catch {
                guard case .interrupted = error, let patience else { throw error }
                wire.ignoreBell()
                deadline = Deadline(after: patience)
                isCancelled = true
                try send(AgentRequest(id: .integer(nextIdentifier), .cancel(request: id)), deadline, passing: nil)
                nextIdentifier += 1
                continue
            }
            guard let message = received else { throw isCancelled ? .interrupted : .timedOut(socket) }
            switch message {
            case .reply(id, let object): return object
            case .failure(id, let error), .failure(nil, let error): throw .refused(error)
            case .event(let type, let object) where object["id"] == id: part(type, object)
            case .event: events.append(message)
            case .hello, .reply, .failure: break
            }
        }
    }

    private func send(
        _ request: AgentRequest, _ deadline: Deadline, passing descriptor: consuming Descriptor?
    ) throws(AgentConnectionError) {
        guard let descriptor else { return try wire.send(request, deadline) }
        try wire.send(request, deadline, passing: descriptor.raw)
    }

    /// The next event; nil when none came in time.
    package func event(
        deadline: Deadline
    ) throws(AgentConnectionError) -> (type: String, object: JSONObject)? {
        while true {
            if nextEvent < events.count, case .event(let type, let object) = events[nextEvent] {
                nextEvent += 1
                return (type, object)
            }
            events = []
            nextEvent = 0
            guard let message = try receive(deadline) else { return nil }
            if case .event = message { events.append(message) }
        }
    }
}

// MARK: - Bytes

extension AgentConnection {
    /// The next message, whatever it is; nil when the deadline passes first.
    func receive(_ deadline: Deadline) throws(AgentConnectionError) -> AgentMessage? {
        while true {
            if let line = try nextLine() { return try message(line) }
            guard try wait(for: Int16(POLLIN), deadline) else { return nil }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = recv(wire.raw, &buffer, buffer.count, 0)
            if count > 0 { lines.append(buffer[..<count]) }
            if count == 0 || count < 0 && errno != EINTR && errno != EAGAIN { throw .lost(socket) }
        }
    }

    private func nextLine() throws(AgentConnectionError) -> [UInt8]? {
        do throws(LineBuffer.LineTooLong) {
            return try lines.next()
        } catch {
            throw .notUnderstood(socket, "a line is longer than \(WireLine.longest) bytes")
        }
    }

    private func message(_ line: [UInt8]) throws(AgentConnectionError) -> AgentMessage {
        do throws(WireError) {
            return try AgentMessage(parsing: line)
        } catch {
            throw .notUnderstood(socket, error.message)
        }
    }

    private func wait(for events: Int16, _ deadline: Deadline) throws(AgentConnectionError) -> Bool {
        try wire.wait(for: events, deadline)
    }
}
