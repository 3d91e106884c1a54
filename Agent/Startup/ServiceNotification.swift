import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Notifies the service manager of the agent's state, as sd_notify(3) describes: a datagram of assignments to
/// `$NOTIFY_SOCKET`. Without that variable nothing is sent.
///
/// Hand-written because the protocol is one datagram, and libsystemd would have to be installed where systemd isn't.
package struct ServiceNotification: Sendable {
    private let socket: FilePath?

    package init(environment: [String: String]) {
        socket = environment["NOTIFY_SOCKET"].flatMap {
            $0.hasPrefix("/") || $0.hasPrefix("@") ? FilePath($0) : nil
        }
    }

    package func ready(_ status: String) { send(["READY=1", "STATUS=\(status)"]) }

    /// Reports that the configuration is being reloaded; `ready` ends it.
    package func reloading() {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        send(["RELOADING=1", "MONOTONIC_USEC=\(now.tv_sec * 1_000_000 + now.tv_nsec / 1000)"])
    }

    package func stopping() { send(["STOPPING=1", "STATUS=stopping"]) }

    /// Sends the assignments. A failure is no reason to stop serving.
    private func send(_ assignments: [String]) {
        guard let socket, let raw = try? retrying("socket", { gs_socket_datagram() }) else { return }
        let sender = Descriptor(owning: raw)
        guard socket.withPlatformString({ gs_socket_connect(sender.raw, $0) }) == 0 else { return }
        let line = assignments.map { $0.split(separator: "\n").joined(separator: " ") }.joined(separator: "\n")
        _ = try? UnixSocket.send(Array(line.utf8)[...], on: sender.raw)
    }
}
