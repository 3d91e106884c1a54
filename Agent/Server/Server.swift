import AgentProtocol
import Glibc
import LinuxSystem
import Logging
import SystemPackage

/// The socket's side of the agent, on one thread: takes connections, reads requests, sends what waited.
package final class Server {
    /// Who may connect.
    package struct Admission: Sendable {
        package var users: Set<uid_t>
        package var connectionsPerUser: Int

        package init(users: Set<uid_t>, connectionsPerUser: Int) {
            self.users = users
            self.connectionsPerUser = connectionsPerUser
        }
    }

    /// One client.
    private final class Connection {
        let socket: Descriptor
        let peer: PeerCredentials
        var lines = LineBuffer()
        /// Its answers must be taken first, or its earlier requests be done.
        var isPaused = false
        /// Among `waiting`: requests of it are there that were not handled in its last turn.
        var isWaiting = false
        /// Files whose descriptors it has passed, in their order, where it may have something relocated. The
        /// descriptors themselves are closed at once: nobody can relocate a store that the agent has open.
        var passed: [PassedFile] = []
        static let mostPassed = 64

        init(_ socket: consuming Descriptor, _ peer: PeerCredentials) {
            self.socket = socket
            self.peer = peer
        }
    }

    private let loop: EventLoop
    private let hub: Publisher
    private let requests: RequestHandler
    private let log: Logger
    private let listener: Descriptor
    private let descriptors: DescriptorBudget
    private var connections: [UInt64: Connection] = [:]
    private var connectionCounts: [uid_t: Int] = [:]
    private var nextConnection = firstConnection
    private var acceptsConnections = true
    /// When to take connections again, though nobody has left; and how long was waited for that.
    private var acceptAgain: (at: ContinuousClock.Instant, wait: Duration)?
    private static let longestAcceptWait = Duration.seconds(60)
    /// Those whose requests were read and not all handled, in the order of their turns.
    private var waiting: [UInt64] = []
    private var buffer = [UInt8](repeating: 0, count: 65_536)
    package var admission: Admission

    private static let listenerToken: UInt64 = 0
    private static let signalToken: UInt64 = 1
    private static let mountToken: UInt64 = 2
    private static let firstConnection: UInt64 = 3

    package init(
        listener: consuming Descriptor, loop: EventLoop, hub: Publisher, requests: RequestHandler, admission: Admission,
        descriptors: DescriptorBudget = .unlimited, log: Logger
    ) throws(SystemError) {
        self.descriptors = descriptors
        self.loop = loop
        self.hub = hub
        self.requests = requests
        self.admission = admission
        self.log = log
        let raw = listener.raw
        self.listener = listener
        try loop.add(raw, token: Self.listenerToken)
    }

    /// Serves until `shouldStop`, asked after each wake-up, says so. `signals` is a descriptor to read too, and
    /// `onSignal` is called when it can be read. `mounts`: one that tells of changes, for `onMount`.
    package func run(
        signals: CInt?, mounts: CInt? = nil, onSignal: () throws -> Void, onMount: () -> Void = {},
        shouldStop: () throws -> Bool
    ) throws {
        if let signals { try loop.add(signals, token: Self.signalToken) }
        if let mounts { try loop.add(changesOf: mounts, token: Self.mountToken) }
        while try !shouldStop() {
            let accepting = acceptAgain.map { max(.zero, ContinuousClock.now.duration(to: $0.at)) }
            let deadline = [requests.timeUntilDeadline(), accepting].compactMap { $0 }.min()
            let timeout = waiting.isEmpty ? deadline : .zero
            let events = try loop.wait(timeout: timeout)
            if timeout != nil { requests.expire() }
            if let acceptAgain, acceptAgain.at <= .now { accept() }
            for ready in events {
                switch ready.token {
                case Self.listenerToken: accept()
                case Self.signalToken: try onSignal()
                case Self.mountToken: onMount()
                default: serve(ready)
                }
            }
            takeTurns()
            for connection in hub.takeFinished() { close(connection) }
        }
    }

    /// Takes nothing more, and sends what waits to those who take it within the time; then closes all.
    package func drain(within duration: Duration) {
        try? loop.watch(listener.raw, token: Self.listenerToken, readable: false, writable: false)
        let deadline = Deadline(after: duration)
        while !hub.isFlushed, !deadline.hasPassed, let events = try? loop.wait(timeout: deadline.remaining) {
            for ready in events where connections[ready.token] != nil {
                if ready.isClosed { close(ready.token) } else { hub.flush(ready.token) }
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
            acceptAgain = nil
            setAccepting(true)
        } catch {
            // Out of descriptors or memory: those who wait are taken when somebody leaves, or when there are some
            // again.
            if acceptAgain == nil { log.error("no more connections are taken for now: \(error.advice)") }
            let wait = acceptAgain.map { min($0.wait * 2, Self.longestAcceptWait) } ?? .seconds(1)
            acceptAgain = (.now.advanced(by: wait), wait)
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
            log.notice(
                "connection refused", metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)", "why": "\(refusal.code)"])
            _ = try? UnixSocket.send(WireLine.bytes(AgentMessage.failure(id: nil, refusal).json)[...], on: socket.raw)
            return
        }
        var isAdmitted = false
        defer { if !isAdmitted { descriptors.giveBack(.connection) } }
        let token = nextConnection
        nextConnection += 1
        let connection = Connection(socket, peer)
        UnixSocket.limitUnread(connection.socket.raw, to: WireLine.longest)
        try loop.add(connection.socket.raw, token: token)
        isAdmitted = true
        connections[token] = connection
        connectionCounts[peer.uid, default: 0] += 1
        hub.add(token, raw: connection.socket.raw, peer: connection.peer)
        hub.answer(token, requests.hello)
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
        guard descriptors.take(.connection) else {
            return WireError(
                code: "too_many_connections", descriptors.shortage,
                hint: "close some; one connection can have many subscriptions")
        }
        return nil
    }

    /// Ends the connections of these users: what they may ask for has become less.
    package func close(connectionsOf users: Set<uid_t>) {
        for (token, connection) in connections where users.contains(connection.peer.uid) { close(token) }
    }

    private func close(_ token: UInt64) {
        requests.silenced(token)
        // First out of the hub, by which its relocations are given up, too: nobody may send on the descriptor's number once it is another's.
        requests.abandon(hub.remove(token))
        guard let connection = connections.removeValue(forKey: token) else { return }
        descriptors.giveBack(.connection)
        try? loop.remove(connection.socket.raw)
        let count = connectionCounts[connection.peer.uid, default: 1] - 1
        connectionCounts[connection.peer.uid] = count == 0 ? nil : count
        setAccepting(true)
    }
}

// MARK: - Requests

extension Server {
    private func serve(_ ready: EventLoop.Readiness) {
        guard let connection = connections[ready.token] else { return }
        if ready.isWritable {
            hub.flush(ready.token)
            if connection.isPaused { dispatch(connection, ready.token) }
        }
        // What was read of it comes first; its end, too, is told again.
        guard !connection.isWaiting else { return }
        let hasRead = ready.isReadable && read(connection, ready.token)
        if ready.isClosed, !hasRead { close(ready.token) }
    }

    /// One turn of each connection that has requests left, and of those whose work is done that they were held back for.
    private func takeTurns() {
        let turns = waiting
        waiting = []
        for token in turns {
            guard let connection = connections[token] else { continue }
            connection.isWaiting = false
            dispatch(connection, token)
        }
        for token in hub.takeResumed() {
            guard let connection = connections[token], connection.isPaused else { continue }
            dispatch(connection, token)
        }
    }

    /// Reads once, so that one client's flood doesn't hold up the others; true when something came.
    private func read(_ connection: Connection, _ token: UInt64) -> Bool {
        do {
            let count = try buffer.withUnsafeMutableBytes { bytes in
                // To close somebody's file may take as long as they like, where it is in a file system of theirs
                // (FUSE). What isn't asked for, the kernel drops without that.
                guard requests.mayPassFiles(connection.peer) else { return try connection.socket.receive(into: bytes) }
                return try connection.socket.receive(into: bytes) { descriptor in
                    guard let file = PassedFile(descriptor) else { return }
                    connection.passed.append(file)
                    if connection.passed.count > Connection.mostPassed { connection.passed.removeFirst() }
                }
            }
            guard let count else { return false }
            if count == 0 {
                requests.silenced(token)
                hub.peerIsSilent(token)
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

    /// How long a connection's requests are handled before it is others' turn. A request that takes longer is one turn.
    private static let turn = Duration.milliseconds(1)

    /// Handles the requests that were read, for one turn.
    private func dispatch(_ connection: Connection, _ token: UInt64) {
        guard !connection.isWaiting else { return }
        let end = ContinuousClock.now.advanced(by: Self.turn)
        do throws(LineBuffer.LineTooLong) {
            repeat {
                guard hub.canAnswer(token) else { return }
                connection.isPaused = hub.pausesIfCongested(token)
                guard !connection.isPaused, let line = try connection.lines.next() else { return }
                guard !line.allSatisfy(Self.isBlank) else { continue }
                requests.handle(line, of: token, peer: connection.peer) {
                    connection.passed.isEmpty ? nil : connection.passed.removeFirst()
                }
            } while ContinuousClock.now < end
            connection.isWaiting = true
            waiting.append(token)
        } catch {
            hub.answer(token, .failure(id: nil, .lineTooLong))
            close(token)
        }
    }
}

extension WireError {
    fileprivate static let lineTooLong = WireError(
        code: "line_too_long", "a line is at most \(WireLine.longest) bytes", hint: "the connection is closed")
}
