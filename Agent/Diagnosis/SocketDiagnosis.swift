import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// Checks whether an agent answers at its socket.
package struct SocketDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    private var name: String { PrintablePath(path).description }

    package func finding() -> Finding {
        guard path.bytes.count <= UnixSocket.maxPathLength else {
            return Finding(
                "socket", .problem(.configuration),
                "\(name): longer than the \(UnixSocket.maxPathLength) bytes allowed for a socket's path",
                remedy: "set GROUPSTORE_SOCKET to a shorter path")
        }
        let deadline = Deadline(after: .seconds(2))
        while true {
            do throws(SystemError) {
                let socket = try UnixSocket.connect(to: path)
                return try answer(socket, until: deadline)
            } catch {
                // A listener that was closed before it accepted resets the connection. Another attempt finds out
                // whether the agent is gone or a new one took its place.
                if error.errno == .connectionReset, let left = deadline.remaining, left > .zero { continue }
                return refused(error)
            }
        }
    }

    private func refused(_ error: SystemError) -> Finding {
        switch error.errno {
        case .noSuchFileOrDirectory, .notDirectory:
            Finding(
                "socket", .warning, "\(name): no agent runs here",
                remedy: "systemctl --user start groupstore, or groupstore agent")
        case .connectionRefused:
            Finding(
                "socket", .warning, "\(name): left by an agent that is gone, or not a socket",
                remedy: "start the agent: it replaces a stale socket")
        case .permissionDenied:
            Finding(
                "socket", .problem(.notPermitted), "\(name): user \(geteuid()) may not connect",
                remedy: "run this as the agent's user, or name this user under socket: allow:")
        default: Finding("socket", .problem(.inputOutput), "\(error)", remedy: "see the agent's log")
        }
    }

    /// Reads the agent's first line, which identifies it.
    private func answer(_ socket: borrowing Descriptor, until deadline: Deadline) throws(SystemError) -> Finding {
        var line: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while line.count < 65536, let left = deadline.remaining, left > .zero {
            var ready = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
            guard poll(&ready, 1, Int32(left.seconds * 1000) + 1) > 0 else { continue }
            let count = try retrying("recv", path: path) { recv(ready.fd, &buffer, buffer.count, 0) }
            if count == 0 {
                return Finding(
                    "socket", .problem(.inputOutput), "\(name): closed the connection", remedy: "see the agent's log")
            }
            line += buffer.prefix(count)
            if let end = line.firstIndex(of: 0x0A) { return hello(Array(line[..<end])) }
        }
        return Finding(
            "socket", .problem(.inputOutput), "\(name): something listens but sends nothing",
            remedy: "restart the agent")
    }

    private func hello(_ line: [UInt8]) -> Finding {
        guard case .hello(_, let version, _)? = try? AgentMessage(parsing: line) else {
            return Finding(
                "socket", .problem(.configuration), "\(name): the program that answers is not a groupstore agent",
                remedy: "set GROUPSTORE_SOCKET to the agent's socket")
        }
        return Finding("socket", .fine, "\(name): agent \(version) answers")
    }
}
