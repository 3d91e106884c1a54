import Glibc
import LinuxSystem

/// The connections that were refused last, until their clients have closed them.
///
/// A client that sends its request to a closed socket gets EPIPE, and may end before it has read the refusal.
struct DrainingConnections {
    private final class Connection {
        let token: UInt64
        let socket: Descriptor
        var received = 0

        init(_ token: UInt64, _ socket: consuming Descriptor) {
            self.token = token
            self.socket = socket
        }
    }

    private let loop: EventLoop
    private var connections: [Connection] = []
    private static let maximum = 8
    private static let maximumBytes = 65_536

    init(loop: EventLoop) { self.loop = loop }

    /// Keeps a connection that nothing more is sent to; the one refused first makes room.
    mutating func append(_ socket: consuming Descriptor, token: UInt64) {
        shutdown(socket.raw, CInt(SHUT_WR))
        if connections.count == Self.maximum { close(0) }
        guard (try? loop.add(socket.raw, token: token)) != nil else { return }
        connections.append(Connection(token, socket))
    }

    /// Discards what a client sends, and closes its connection once it has ended.
    mutating func serve(_ ready: EventLoop.Readiness, buffer: inout [UInt8]) {
        guard let index = connections.firstIndex(where: { $0.token == ready.token }) else { return }
        let connection = connections[index]
        let count = try? buffer.withUnsafeMutableBytes { try connection.socket.receive(into: $0) }
        connection.received += count ?? 0
        if ready.isClosed || (count ?? 0) == 0 || connection.received > Self.maximumBytes { close(index) }
    }

    private mutating func close(_ index: Int) {
        try? loop.remove(connections.remove(at: index).socket.raw)
    }
}
