import AgentProtocol
import Glibc
import StoreWatching
import LinuxSystem
import Logging
import SystemPackage

/// The socket's side of the agent, on one thread: accepts connections, reads requests, and sends waiting output.
package final class Server {
    /// The users who may connect, and how often.
    package struct Admission: Sendable {
        package var users: Set<uid_t>
        package var connectionsPerUser: Int
    }

    /// One client.
    private final class Connection {
        let socket: Descriptor
        let peer: PeerCredentials
        var lines = LineBuffer()
        /// True while its answers must be taken, or its earlier requests be handled, first.
        var isPaused = false
        /// True while it is in `waiting`: it has requests that its last turn did not handle.
        var isWaiting = false
        /// The files whose descriptors it has passed, in order, if its user may relocate stores. The descriptors
        /// themselves are closed at once: nobody can relocate a store that the agent has open.
        var passed: [PassedFile] = []
        static let maximumPassed = 64

        init(_ socket: consuming Descriptor, _ peer: PeerCredentials) {
            self.socket = socket
            self.peer = peer
        }
    }

    private let loop: EventLoop
    private let publisher: Publisher
    private let requests: RequestHandler
    private let log: Logger
    private let listener: Descriptor
    private let descriptors: DescriptorBudget
    private var connections: [UInt64: Connection] = [:]
    private var refused: DrainingConnections
    private var connectionCounts: [uid_t: Int] = [:]
    private var nextConnection = firstConnectionToken
    private var acceptsConnections = true
    /// The time to accept connections again even if none is closed.
    private var acceptRetryAt: ContinuousClock.Instant?
    private var acceptBackoff = Backoff(first: .seconds(1), longest: .seconds(60))
    /// The connections with requests that were read but not handled, in the order of their turns.
    private var waiting: [UInt64] = []
    private var buffer = [UInt8](repeating: 0, count: 65_536)
    package var admission: Admission

    private static let listenerToken: UInt64 = 0
    private static let signalToken: UInt64 = 1
    private static let mountToken: UInt64 = 2
    private static let firstConnectionToken: UInt64 = 3

    package init(
        listener: consuming Descriptor, loop: EventLoop, publisher: Publisher, requests: RequestHandler,
        admission: Admission,
        descriptors: DescriptorBudget = .unlimited, log: Logger
    ) throws(SystemError) {
        self.descriptors = descriptors
        self.loop = loop
        refused = DrainingConnections(loop: loop)
        self.publisher = publisher
        self.requests = requests
        self.admission = admission
        self.log = log
        let raw = listener.raw
        self.listener = listener
        try loop.add(raw, token: Self.listenerToken)
    }

    /// Serves until `shouldStop`, checked after each wake-up, returns true. Calls `onSignal` when the descriptor
    /// `signals` is readable, and `onMount` when the descriptor `mounts` reports a change.
    package func run(
        signals: CInt?, mounts: CInt? = nil, onSignal: () throws -> Void, onMount: () -> Void = {},
        shouldStop: () throws -> Bool
    ) throws {
        if let signals { try loop.add(signals, token: Self.signalToken) }
        if let mounts { try loop.add(changesOf: mounts, token: Self.mountToken) }
        while try !shouldStop() {
            let accepting = acceptRetryAt.map { max(.zero, ContinuousClock.now.duration(to: $0)) }
            let deadline = [requests.timeUntilDeadline(), accepting].compactMap { $0 }.min()
            let timeout = waiting.isEmpty ? deadline : .zero
            let events = try loop.wait(timeout: timeout)
            if timeout != nil { requests.expire() }
            if let acceptRetryAt, acceptRetryAt <= .now { accept() }
            for ready in events {
                switch ready.token {
                case Self.listenerToken: accept()
                case Self.signalToken: try onSignal()
                case Self.mountToken: onMount()
                default: serve(ready)
                }
            }
            runTurns()
            for connection in publisher.drainFinished() { close(connection) }
        }
    }

    /// Stops accepting and reading, sends waiting output to the clients that take it within the deadline, then closes
    /// all connections.
    package func drain(within duration: Duration) {
        try? loop.watch(listener.raw, token: Self.listenerToken, readable: false, writable: false)
        let deadline = Deadline(after: duration)
        while !publisher.isFlushed, !deadline.hasPassed, let events = try? loop.wait(timeout: deadline.remaining) {
            for ready in events where connections[ready.token] != nil {
                if ready.isClosed { close(ready.token) } else { publisher.flush(ready.token) }
            }
        }
        for connection in Array(connections.keys) { close(connection) }
    }
}

// MARK: - Connections

extension Server {
    private func accept() {
        do throws(SystemError) {
            while let socket = try UnixSocket.accept(on: listener) { try admit(socket) }
            acceptRetryAt = nil
            acceptBackoff.reset()
            setAccepting(true)
        } catch {
            // Out of descriptors or memory: waiting clients are accepted when a connection closes, or after a delay.
            if acceptRetryAt == nil { log.error("not accepting connections for now: \(error.advice)") }
            acceptRetryAt = .now.advanced(by: acceptBackoff.next())
            setAccepting(false)
        }
    }

    private func setAccepting(_ accepts: Bool) {
        guard acceptsConnections != accepts else { return }
        acceptsConnections = accepts
        try? loop.watch(listener.raw, token: Self.listenerToken, readable: accepts, writable: false)
    }

    private func admit(_ socket: consuming Descriptor) throws(SystemError) {
        let peer = try UnixSocket.peer(of: socket)
        if let refusal = refusal(of: peer) {
            publisher.countRefusal(refusal.code)
            log.notice(
                "connection refused", metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)", "why": "\(refusal.code)"])
            _ = try? UnixSocket.send(WireLine.bytes(AgentMessage.failure(id: nil, refusal).json)[...], on: socket.raw)
            refused.append(socket, token: nextConnection)
            nextConnection += 1
            return
        }
        var isAdmitted = false
        defer { if !isAdmitted { descriptors.release(.connection) } }
        let token = nextConnection
        nextConnection += 1
        let connection = Connection(socket, peer)
        UnixSocket.limitUnreceivedBytes(connection.socket.raw, to: WireLine.maxLength)
        try loop.add(connection.socket.raw, token: token)
        isAdmitted = true
        connections[token] = connection
        connectionCounts[peer.uid, default: 0] += 1
        publisher.add(token, raw: connection.socket.raw, peer: connection.peer)
        publisher.answer(token, requests.hello)
    }

    private func refusal(of peer: PeerCredentials) -> WireError? {
        guard admission.users.contains(peer.uid) else {
            return WireError(
                code: "not_permitted", "user \(peer.uid) may not use this agent",
                hint: "its owner can add the user to socket: allow")
        }
        guard connectionCounts[peer.uid, default: 0] < admission.connectionsPerUser else {
            return WireError(
                code: "too_many_connections", "user \(peer.uid) has \(admission.connectionsPerUser) connections",
                hint: "close some, or raise socket: connections-per-user; one connection can have many subscriptions")
        }
        guard descriptors.reserve(.connection) else {
            return WireError(
                code: "too_many_connections", descriptors.shortage,
                hint: "close some; one connection can have many subscriptions")
        }
        return nil
    }

    /// Closes the connections of users who have lost a permission.
    package func close(connectionsOf users: Set<uid_t>) {
        for (token, connection) in connections where users.contains(connection.peer.uid) { close(token) }
    }

    private func close(_ token: UInt64) {
        requests.peerStoppedSending(token)
        // Removed from the publisher first, which also abandons its relocations: nobody may send on the descriptor's
        // number once another file has it.
        requests.abandon(publisher.remove(token))
        guard let connection = connections.removeValue(forKey: token) else { return }
        descriptors.release(.connection)
        try? loop.remove(connection.socket.raw)
        let count = connectionCounts[connection.peer.uid, default: 1] - 1
        connectionCounts[connection.peer.uid] = count == 0 ? nil : count
        setAccepting(true)
    }
}

// MARK: - Requests

extension Server {
    private func serve(_ ready: EventLoop.Readiness) {
        guard let connection = connections[ready.token] else { return refused.serve(ready, buffer: &buffer) }
        if ready.isWritable {
            publisher.flush(ready.token)
            if connection.isPaused { dispatch(connection, ready.token) }
        }
        // Requests already read come first; the end of the connection is reported again.
        guard !connection.isWaiting else { return }
        let hasRead = ready.isReadable && read(connection, ready.token)
        if ready.isClosed, !hasRead { close(ready.token) }
    }

    /// Gives a turn to each connection with requests left, and to those that were held back until their work was done.
    private func runTurns() {
        let turns = waiting
        waiting = []
        for token in turns {
            guard let connection = connections[token] else { continue }
            connection.isWaiting = false
            dispatch(connection, token)
        }
        for token in publisher.drainResumed() {
            guard let connection = connections[token], connection.isPaused else { continue }
            dispatch(connection, token)
        }
    }

    /// Reads once, so that one client's flood doesn't delay the others. Returns true if something was read.
    private func read(_ connection: Connection, _ token: UInt64) -> Bool {
        do {
            let count = try buffer.withUnsafeMutableBytes { bytes in
                // Closing another user's file may block for as long as they like if their own file system (FUSE) serves
                // it. The kernel drops descriptors that aren't received without that.
                guard requests.mayPassFiles(connection.peer) else { return try connection.socket.receive(into: bytes) }
                return try connection.socket.receive(into: bytes) { descriptor in
                    guard let file = PassedFile(descriptor) else { return }
                    connection.passed.append(file)
                    if connection.passed.count > Connection.maximumPassed { connection.passed.removeFirst() }
                }
            }
            guard let count else { return false }
            if count == 0 {
                requests.peerStoppedSending(token)
                publisher.peerStoppedSending(token)
                return false
            }
            connection.lines.append(buffer[..<count])
            dispatch(connection, token)
            return true
        } catch {
            close(token)
            return true
        }
    }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0D }

    /// The time for one connection's requests before the others' turn. A longer request is one turn.
    private static let turnLength = Duration.milliseconds(1)

    /// Handles the requests that were read, for one turn.
    private func dispatch(_ connection: Connection, _ token: UInt64) {
        guard !connection.isWaiting else { return }
        let end = ContinuousClock.now.advanced(by: Self.turnLength)
        do throws(LineBuffer.LineTooLong) {
            repeat {
                guard publisher.canAnswer(token) else { return }
                connection.isPaused = publisher.pausesIfCongested(token)
                guard !connection.isPaused, let line = try connection.lines.next() else { return }
                guard !line.allSatisfy(Self.isBlank) else { continue }
                requests.handle(line, of: token, peer: connection.peer) {
                    connection.passed.isEmpty ? nil : connection.passed.removeFirst()
                }
            } while ContinuousClock.now < end
            connection.isWaiting = true
            waiting.append(token)
        } catch {
            publisher.answer(token, .failure(id: nil, .lineTooLong))
            close(token)
        }
    }
}

extension WireError {
    fileprivate static let lineTooLong = WireError(
        code: "line_too_long", "a line is at most \(WireLine.maxLength) bytes", hint: "the connection is closed")
}
