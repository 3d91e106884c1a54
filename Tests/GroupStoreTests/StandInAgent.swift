import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

@testable import GroupStore

/// A test's end of a client's connection, which acts like an agent.
struct StandInAgent: ~Copyable {
    private let connection: Descriptor

    /// Waits for the next client.
    static func accept(on listener: borrowing Descriptor) async throws -> StandInAgent {
        let deadline = Deadline(after: .ample)
        while !deadline.hasPassed {
            if let connection = try UnixSocket.accept(on: listener) { return StandInAgent(connection: connection) }
            await Task.yield()
        }
        throw Unexpected("no client connects")
    }

    /// Waits for a client's first request, and passes it to `request`. On a busy machine a client doesn't wait long for
    /// the greeting, and connects again.
    static func accept(on listener: borrowing Descriptor, request: (String) -> Void) async throws -> StandInAgent {
        while true {
            let agent = try await accept(on: listener)
            guard (try? agent.greet()) != nil, let line = try await agent.line() else { continue }
            request(line)
            return agent
        }
    }

    func greet() throws {
        let hello = AgentMessage.hello(
            protocol: WireLine.protocolVersion, agent: "test", maxLineLength: Int64(WireLine.maxLength))
        try send(hello.json)
    }

    /// True if the client has closed the connection.
    var isClosed: Bool {
        var byte: UInt8 = 0
        return recv(connection.raw, &byte, 1, Int32(MSG_PEEK)) == 0
    }

    func send(_ object: JSONObject) throws { _ = try UnixSocket.send(WireLine.bytes(object)[...], on: connection.raw) }

    /// Returns the next line, or nil at the end of the connection.
    func line() async throws -> String? {
        var line: [UInt8] = []
        while line.last != UInt8(ascii: "\n") {
            var byte: UInt8 = 0
            switch recv(connection.raw, &byte, 1, 0) {
            case 1: line.append(byte)
            case 0: return nil
            default:
                guard errno == EAGAIN || errno == EINTR else { return nil }
                await Task.yield()
            }
        }
        return String(decoding: line, as: UTF8.self)
    }
}

extension ChangeReader {
    /// Returns the next change that a stand-in agent has caused. On a busy machine the reader may give up waiting for
    /// it, says so, and connects again only for the next request.
    func nextOfAgent() async throws -> StoreChange? {
        while true {
            switch try await next() {
            case .disconnected?, .connected?: continue
            case let change: return change
            }
        }
    }
}
