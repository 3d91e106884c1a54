import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// A `groupstore agent` with its own socket.
package final class AgentProcess {
    package static let group = "group.com.example.tests"

    package let process: RunningProcess
    package let socket: FilePath

    /// Starts an agent. Unless `ready` is false, waits until its socket accepts connections.
    package init(_ arguments: [Word], socket: FilePath, ready: Bool = true, seesMounts: Bool = true) throws {
        self.socket = socket
        Self.awaitNextFileTime()
        let command = (seesMounts ? [] : Programs.withoutNewMounts) + [Programs.groupstore, "agent"]
        process = try RunningProcess(
            command[0], command.dropFirst() + arguments, environment: Self.environment(socket))
        if ready { try awaitSocket() }
    }

    /// Starts an agent with one group and its legacy stores.
    ///
    /// - Parameter seesMounts: False if what other tests mount meanwhile must not wake it.
    package convenience init(_ places: Places, legacy: [FilePath], ready: Bool = true, seesMounts: Bool = true) throws {
        try self.init(
            ["--group", "\(Self.group)=" + Word(places.group)] + legacy.flatMap { ["--legacy", Word($0)] },
            socket: places.scratch("agent.sock"), ready: ready, seesMounts: seesMounts)
    }

    /// Waits until nothing that was written so far could be written again with the same file time. An agent that finds
    /// a store in that state can't tell later whether it was, and counts a change when somebody listens to it.
    private static func awaitNextFileTime() {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        let start = Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec)
        while !FileTime.isSettled(start) { usleep(1000) }
    }

    package static func environment(_ socket: FilePath) -> [String: String] { ["GROUPSTORE_SOCKET": socket.string] }
    package var environment: [String: String] { Self.environment(socket) }

    private func awaitSocket() throws {
        let deadline = Deadline(after: .ample)
        while (try? UnixSocket.connect(to: socket)) == nil {
            guard try !process.hasEnded(within: .milliseconds(5)), !deadline.hasPassed else {
                let message = try process.hasEnded(within: .zero) ? process.wait().errors : "no socket in time"
                throw Unexpected("agent: \(message)")
            }
        }
    }

    /// Returns a connection that has read the agent's hello.
    package func connect() throws -> WireConnection { try WireConnection(socket, to: process) }

    /// Returns a connection subscribed to the named store.
    package func subscribe(_ name: Word) throws -> WireConnection {
        let connection = try connect()
        var request: JSONObject = ["id": 1, "op": "subscribe"]
        request.setPath("store", bytes: Array("\(Self.group)/".utf8) + name.bytes)
        try connection.send(request)
        let reply = try connection.next { $0["id"] == .integer(1) }
        guard reply.bool("ok") == true else { throw Unexpected("refused: \(reply.text)") }
        return connection
    }

    /// Polls the agent until the legacy store has a wanted state, and returns its line of `groupstore status`.
    package func legacyRow(_ name: String? = nil, where isWanted: (String) -> Bool) throws -> JSONObject {
        try row(where: isWanted) { row in
            row.type == "legacy" && name.map { row.string("store")?.hasSuffix("/\($0)") == true } ?? true
        }
    }

    /// Polls the agent until the app has a wanted state, and returns its line of `groupstore status`.
    package func appRow(where isWanted: (String) -> Bool) throws -> JSONObject {
        try row(where: isWanted) { $0.type == "app" }
    }

    private func row(where isWanted: (String) -> Bool, _ isMeant: (JSONObject) -> Bool) throws -> JSONObject {
        func row(_ rows: [JSONObject]) -> JSONObject? {
            let row = rows.first(where: isMeant)
            return row.flatMap { isWanted($0.string("state") ?? "") ? $0 : nil }
        }
        let deadline = Deadline(after: .ample)
        let connection = try connect()
        while true {
            let rows = try connection.status()
            // The state may have changed since.
            if row(rows) != nil, let row = row(try groupstore("status", "--json", environment: environment).objects) {
                return row
            }
            guard try !process.hasEnded(within: .milliseconds(5)), !deadline.hasPassed else {
                throw Unexpected("still \(rows.map(\.text))")
            }
        }
    }

    /// Inserts rows into a store's table `note`, a commit each, until a subscriber is behind that doesn't read.
    package func commitUntilASubscriberIsBehind(_ writer: RunningProcess) throws {
        let connection = try connect()
        let deadline = Deadline(after: .ample)
        repeat {
            guard !deadline.hasPassed else { throw Unexpected("no subscriber is behind") }
            for _ in 1...100 { try writer.execute("INSERT INTO note VALUES ('milk')") }
        } while try !connection.status(brief: false).contains { $0.integer("behind") ?? 0 > 0 }
    }

    package func stop() throws -> FinishedProcess {
        process.signal(SIGTERM)
        return try process.wait()
    }
}

/// Waits until nothing of a legacy store is left but a link. An earlier agent may have begun the retirement; then no
/// subscriber receives an event.
package func awaitRetirement(of legacy: StoreFiles, _ agent: AgentProcess) throws {
    let deadline = Deadline(after: .ample)
    while try !legacy.isRetired() {
        guard try !agent.process.hasEnded(within: .milliseconds(5)), !deadline.hasPassed else {
            agent.process.signal(SIGTERM)
            let message = try agent.process.wait().errors
            throw Unexpected("the legacy store is still there: \(try legacy.parts()); the agent: \(message)")
        }
    }
}

/// A subscriber that implements the wire protocol itself.
package final class WireConnection {
    private let socket: Descriptor
    private let agent: RunningProcess?
    private var lines = LineBuffer()
    /// The bytes of all lines that were returned or skipped.
    package private(set) var readCount = 0

    /// - Parameter agent: The agent, whose end is told if it ends the connection.
    package init(_ path: FilePath, to agent: RunningProcess? = nil) throws {
        self.agent = agent
        socket = try UnixSocket.connect(to: path)
        let hello = try next { _ in true }
        guard hello.type == "hello" else { throw Unexpected(hello.text) }
    }

    package func send(_ object: JSONObject) throws { try send(bytes: Array(object.text.utf8) + [0x0A]) }

    package func send(bytes: [UInt8]) throws {
        var done = 0
        while done < bytes.count {
            let count = bytes[done...].withUnsafeBytes { Glibc.send(socket.raw, $0.baseAddress, $0.count, 0) }
            guard count > 0 else { throw Errno(rawValue: errno) }
            done += count
        }
    }

    /// Returns the next line that satisfies `condition` and skips those before it. Throws at the deadline and at end of
    /// file.
    @discardableResult
    package func next(within limit: Duration = .ample, where condition: (JSONObject) -> Bool) throws -> JSONObject {
        let deadline = Deadline(after: limit)
        while true {
            while let line = try lines.next() {
                readCount += line.count
                guard case .object(let object)? = try? JSONValue(parsing: line) else {
                    throw Unexpected("no JSON: \(String(decoding: line, as: UTF8.self))")
                }
                if condition(object) { return object }
            }
            try receive(deadline)
        }
    }

    /// Returns the next line with one of these types.
    @discardableResult
    package func next(_ types: String..., within limit: Duration = .ample) throws -> JSONObject {
        try next(within: limit) { object in types.contains { $0 == object.type } }
    }

    /// Returns the rows of the agent's status.
    package func status(brief: Bool = true) throws -> [JSONObject] {
        try send(["id": 1, "op": "status", "brief": .bool(brief)])
        var rows: [JSONObject] = []
        try next { object in
            if object.type != nil { rows.append(object) }
            return object.integer("id") == 1 && object.bool("ok") != nil
        }
        return rows
    }

    private func endOfAgent() throws -> String {
        guard let agent, try agent.hasEnded(within: .seconds(5)) else { return "" }
        let done = try agent.wait()
        return ", and ended with \(done.status): \(done.errors)"
    }

    private func receive(_ deadline: Deadline) throws {
        let milliseconds = (deadline.remaining ?? .seconds(1)).nanoseconds / 1_000_000
        var wait = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
        guard !deadline.hasPassed, poll(&wait, 1, CInt(clamping: milliseconds)) > 0 else {
            throw Unexpected("the agent sent no such line in time")
        }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = recv(socket.raw, &buffer, buffer.count, 0)
        guard count > 0 else {
            throw Unexpected("the agent closed the connection\(try endOfAgent())")
        }
        lines.append(buffer[..<count])
    }
}
