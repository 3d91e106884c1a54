import AgentProtocol
import Glibc
import LinuxSystem
import TestSupport

/// Two connected sockets: one for the publisher, one that a test reads.
final class SocketPair {
    let served: Descriptor
    private let client: Descriptor
    private var lines = LineBuffer()

    /// `capacity`: the approximate number of bytes that the served socket takes before it is full.
    init(capacity: CInt? = nil) throws {
        var ends: [CInt] = [-1, -1]
        guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0 else {
            throw SystemError.last("socketpair")
        }
        served = Descriptor(owning: ends[0])
        client = Descriptor(owning: ends[1])
        guard var capacity else { return }
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &capacity, socklen_t(MemoryLayout<CInt>.size))
    }

    /// Shuts down both directions of the client's socket.
    func hangUp() { shutdown(client.raw, CInt(SHUT_RDWR)) }

    /// Returns all whole lines that have arrived.
    func received() throws -> [JSONObject] {
        var found: [JSONObject] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(client.raw, &buffer, buffer.count, CInt(MSG_DONTWAIT))
            guard count > 0 else { break }
            lines.append(buffer[..<count])
            while let line = try lines.next() {
                guard case .object(let object) = try JSONValue(parsing: line) else { throw Unexpected("no object") }
                found.append(object)
            }
        }
        return found
    }
}
