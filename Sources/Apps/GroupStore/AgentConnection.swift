import AgentProtocol
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The reasons why a request to the agent failed.
package enum AgentConnectionError: ActionableError, Equatable {
    /// No environment variable names the socket.
    case noSocketPath
    case noAgent(FilePath, SystemError)
    /// The connection ended.
    case lost(FilePath)
    case timedOut(FilePath)
    /// The peer doesn't speak this protocol.
    case notUnderstood(FilePath, String)
    case refused(WireError)
    /// The request doesn't fit a line, so it wasn't sent.
    case tooLong
    /// The process was asked to end.
    case interrupted

    package var errorCode: String {
        switch self {
        case .noSocketPath, .noAgent: "no_agent"
        case .lost: "agent_lost"
        case .timedOut: "agent_silent"
        case .notUnderstood: "not_understood"
        case .refused(let error): error.code
        case .tooLong: "line_too_long"
        case .interrupted: "interrupted"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .noAgent(let socket, _), .lost(let socket), .timedOut(let socket), .notUnderstood(let socket, _): socket
        case .noSocketPath, .refused, .tooLong, .interrupted: nil
        }
    }

    package var underlyingError: (any Error)? {
        switch self {
        case .noAgent(_, let error): error
        case .refused(let error): error
        case .noSocketPath, .lost, .timedOut, .notUnderstood, .tooLong, .interrupted: nil
        }
    }

    package var message: String {
        switch self {
        case .noSocketPath: "the agent's socket is unknown: neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set"
        case .noAgent(let socket, let error): "no agent at \(PrintablePath(socket)): \(error.errno)"
        case .lost(let socket): "the agent at \(PrintablePath(socket)) ended the connection"
        case .timedOut(let socket): "the agent at \(PrintablePath(socket)) did not answer in time"
        case .notUnderstood(let socket, let why): "the program at \(PrintablePath(socket)) isn't an agent: \(why)"
        case .refused(let error): error.message
        case .tooLong: "the request to the agent is longer than the \(WireLine.maxLength) bytes of a line"
        case .interrupted: "interrupted"
        }
    }

    package var remedy: String {
        switch self {
        case .noSocketPath: "set GROUPSTORE_SOCKET to the agent's socket"
        case .noAgent(_, let error):
            error.errno == .permissionDenied
                ? "the agent's owner can add this user to socket: allow" : "start one: groupstore agent"
        case .lost: "check the agent's log, or start it: groupstore agent"
        case .timedOut: "check whether it is stopped; see its log"
        case .notUnderstood: "check GROUPSTORE_SOCKET, and that both have the same version"
        case .refused(let error): error.hint ?? "see the agent's log"
        case .tooLong: "name fewer items, tables or versions, or shorter ones"
        case .interrupted: "start it again"
        }
    }
}

/// A connection to the agent, used by one thread, which blocks until each reply.
package final class AgentConnection {
    package let socket: FilePath
    /// The agent's version.
    package private(set) var agent = ""
    /// The connection's socket, on which any thread may send.
    let transport: AgentSocketConnection
    private var lines = LineBuffer()
    private var events: [AgentMessage] = []
    private var nextEvent = 0
    private var nextIdentifier: Int64 = 1

    /// Returns the socket path that the environment names. For root, it is the system's if no agent of root's own has
    /// one. Throws `AgentConnectionError`.
    package static func standardSocket(
        environment: [String: String]
    ) throws(AgentConnectionError) -> FilePath {
        guard let path = AgentSocket.clientPath(environment: environment) else { throw .noSocketPath }
        return path
    }

    /// Connects and reads the agent's greeting.
    ///
    /// - Parameter interrupt: A descriptor that ends all waiting with `interrupted` as soon as it is readable.
    package convenience init(
        _ socket: FilePath, deadline: Deadline = Deadline(after: .seconds(10)), interrupt: CInt? = nil
    ) throws(AgentConnectionError) {
        try self.init(socket, deadline: deadline, interrupt: interrupt, greeting: { _ in })
    }

    /// - Parameter greeting: Called with the transport before the greeting is awaited. Another thread may end it from
    ///   then on.
    init(
        _ socket: FilePath, deadline: Deadline = Deadline(after: .seconds(10)), interrupt: CInt? = nil,
        greeting: (AgentSocketConnection) -> Void
    ) throws(AgentConnectionError) {
        self.socket = socket
        transport = try AgentSocketConnection(socket, deadline, interrupt: interrupt)
        greeting(transport)
        switch try receive(deadline) {
        case .hello(let version, let agent, _)? where version == WireLine.protocolVersion: self.agent = agent
        case .hello(let version, _, _)?: throw .notUnderstood(socket, "it uses protocol version \(version)")
        case .failure(_, let error)?: throw .refused(error)
        case nil: throw .timedOut(socket)
        default: throw .notUnderstood(socket, "it did not send hello")
        }
    }

    /// True if the agent runs as this process's user. Another user's agent requires proof of what this user may do.
    package var belongsToSameUser: Bool { (try? UnixSocket.peer(of: transport.raw))?.uid == geteuid() }

    /// Sends a request and waits for its reply. Lines that belong to the reply go to `part`. Events that come meanwhile
    /// are queued.
    ///
    /// - Parameters:
    ///   - group: The directory that this process takes for the group's.
    ///   - descriptor: Copied to the agent, and closed here.
    ///   - cancellationTimeout: How long to wait for the reply after an interrupt, once the agent was asked to cancel.
    ///     If nil, an interrupt ends the waiting at once.
    package func request(
        _ operation: AgentRequest.Operation, in group: RelocateOperation.Identity? = nil, deadline: Deadline,
        passing descriptor: consuming Descriptor? = nil,
        cancellationTimeout: Duration? = nil, part: (_ type: String, JSONObject) -> Void = { _, _ in }
    ) throws(AgentConnectionError) -> JSONObject {
        let id = JSONValue.integer(nextIdentifier)
        nextIdentifier += 1
        try send(AgentRequest(id: id, operation, groupIdentity: group), deadline, passing: descriptor)
        var deadline = deadline
        var isCancelled = false
        while true {
            let received: AgentMessage?
            do throws(AgentConnectionError) {
                received = try receive(deadline)
            } catch {
                guard case .interrupted = error, let cancellationTimeout else { throw error }
                transport.ignoreInterrupt()
                deadline = Deadline(after: cancellationTimeout)
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
        guard let descriptor else { return try transport.send(request, deadline) }
        try transport.send(request, deadline, passing: descriptor.raw)
    }

    /// Returns the next event, or nil if none came before the deadline.
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
    /// Returns the next message of any kind, or nil if none came before the deadline.
    func receive(_ deadline: Deadline) throws(AgentConnectionError) -> AgentMessage? {
        while true {
            if let line = try nextLine() { return try message(line) }
            guard try wait(for: Int16(POLLIN), deadline) else { return nil }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let raw = transport.raw
            do throws(SystemError) {
                let count = try retrying("recv") { recv(raw, &buffer, buffer.count, 0) }
                guard count > 0 else { throw SystemError("recv", .connectionReset) }
                lines.append(buffer[..<count])
            } catch {
                guard error.errno == .resourceTemporarilyUnavailable else { throw .lost(socket) }
                if deadline.hasPassed { return nil }
            }
        }
    }

    private func nextLine() throws(AgentConnectionError) -> [UInt8]? {
        do throws(LineBuffer.LineTooLong) {
            return try lines.next()
        } catch {
            throw .notUnderstood(socket, "a line is longer than \(WireLine.maxLength) bytes")
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
        try transport.wait(for: events, deadline)
    }
}
