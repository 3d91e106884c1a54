import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// One end of a connection that a test has with a client as an agent does.
struct StandInAgent: ~Copyable {
    private let connection: Descriptor

    /// The next one that connects.
    static func accept(on listener: borrowing Descriptor) async throws -> StandInAgent {
        while true {
            if let connection = try UnixSocket.accept(on: listener) { return StandInAgent(connection: connection) }
            await Task.yield()
        }
    }

    func greet() throws {
        let hello = AgentMessage.hello(
            protocol: WireLine.protocolVersion, agent: "test", longestLine: Int64(WireLine.longest))
        try send(hello.json)
    }

    /// Whether the client has gone.
    var isLeft: Bool {
        var byte: UInt8 = 0
        return recv(connection.raw, &byte, 1, Int32(MSG_PEEK)) == 0
    }

    func send(_ object: JSONObject) throws { _ = try UnixSocket.send(WireLine.bytes(object)[...], on: connection.raw) }

    /// The next line; nil at the end of the connection.
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
