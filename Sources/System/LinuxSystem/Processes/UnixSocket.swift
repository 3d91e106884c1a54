import CLinux
import Glibc
import SystemPackage

/// The credentials of a Unix socket's peer, as the kernel recorded them when the connection was made (`SO_PEERCRED`).
package struct PeerCredentials: Sendable, Hashable {
    /// The process id, or 0 if the peer's PID namespace is not visible from here.
    package let pid: pid_t
    package let uid: uid_t
    package let gid: gid_t
    /// The supplementary groups (`SO_PEERGROUPS`).
    package let groups: [gid_t]

    package init(pid: pid_t, uid: uid_t, gid: gid_t, groups: [gid_t] = []) {
        self.pid = pid
        self.uid = uid
        self.gid = gid
        self.groups = groups
    }
}

/// Stream sockets in the Unix domain.
///
/// Hand-written because swift-system has no sockets, and SwiftNIO neither passes descriptors nor reads the peer's
/// credentials.
package enum UnixSocket {
    /// The longest path of a Unix socket in bytes (unix(7)).
    package static let maxPathLength = 107

    /// Returns a listening, non-blocking socket at `path`, which must not exist yet. Only its owner may connect unless
    /// `mode` permits others.
    package static func listen(at path: FilePath, mode: mode_t = 0o600) throws(SystemError) -> Descriptor {
        let socket = Descriptor(owning: try retrying("socket", path: path) { gs_socket_stream() })
        let raw = socket.raw
        // bind(2) gives the file the socket's own mode, minus the umask, so it is never wider than requested. The umask
        // belongs to the whole process and stays as it is.
        try retrying("fchmod", path: path) { fchmod(raw, mode) }
        try retrying("bind", path: path) { path.withPlatformString { gs_socket_bind(raw, $0) } }
        try retrying("chmod", path: path) { path.withPlatformString { chmod($0, mode) } }
        try retrying("listen", path: path) { Glibc.listen(raw, 128) }
        _ = fcntl(raw, F_SETFL, O_NONBLOCK)
        return socket
    }

    /// Returns the path that a socket is bound to; nil for a socket without a name, or with an abstract one (unix(7)).
    package static func path(of raw: CInt) -> FilePath? {
        var address = sockaddr_un()
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(raw, $0, &length) }
        }
        guard result == 0, address.sun_family == sa_family_t(AF_UNIX) else { return nil }
        let bytes = withUnsafeBytes(of: address.sun_path) { path in
            path.prefix(max(0, Int(length) - MemoryLayout<sa_family_t>.size)).prefix { $0 != 0 }.map { $0 }
        }
        return bytes.isEmpty ? nil : FilePath(bytes: bytes)
    }

    /// Returns a connected, blocking socket. Throws EAGAIN if the listener does not accept within `timeout`; nil means
    /// no timeout.
    package static func connect(to path: FilePath, timeout: Duration? = nil) throws(SystemError) -> Descriptor {
        let socket = Descriptor(owning: try retrying("socket", path: path) { gs_socket_stream() })
        let raw = socket.raw
        if let timeout {
            // Zero would mean no limit (socket(7), SO_SNDTIMEO, which also applies to connect(2)).
            let microseconds = max(1, timeout.nanoseconds / 1000)
            var limit = timeval(tv_sec: Int(microseconds / 1_000_000), tv_usec: Int(microseconds % 1_000_000))
            try retrying("setsockopt SO_SNDTIMEO") {
                setsockopt(raw, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
            }
        }
        try retrying("connect", path: path) { path.withPlatformString { gs_socket_connect(raw, $0) } }
        return socket
    }

    /// Returns the next pending connection, non-blocking, or nil if there is none.
    package static func accept(on listener: borrowing Descriptor) throws(SystemError) -> Descriptor? {
        let raw = listener.raw
        do {
            return Descriptor(owning: try retrying("accept") { gs_socket_accept(raw) })
        } catch {
            if error.errno == .resourceTemporarilyUnavailable || error.errno == .connectionAbort { return nil }
            throw error
        }
    }

    /// Limits the bytes that the kernel buffers for the peer to about `bytes` (socket(7), SO_SNDBUF, which the kernel
    /// doubles for its own bookkeeping).
    package static func limitUnreceivedBytes(_ raw: CInt, to bytes: Int) {
        var half = CInt(clamping: bytes / 2)
        _ = setsockopt(raw, SOL_SOCKET, SO_SNDBUF, &half, socklen_t(MemoryLayout<CInt>.size))
    }

    /// Returns the kernel memory used by bytes that the peer has not received yet, or 0 if unknown.
    package static func unreceivedBytes(_ raw: CInt) -> Int { max(0, Int(gs_socket_unread(raw))) }

    /// Sends like `Descriptor.send`, on a socket owned by somebody else.
    package static func send(_ bytes: ArraySlice<UInt8>, on raw: CInt) throws(SystemError) -> Int {
        try sendAvailable { bytes.withUnsafeBytes { gs_socket_send(raw, $0.baseAddress, $0.count) } }
    }

    private static func sendAvailable(_ send: () -> Int) throws(SystemError) -> Int {
        do {
            return try retrying("send", send)
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return 0 }
            throw error
        }
    }

    package static func peer(of socket: borrowing Descriptor) throws(SystemError) -> PeerCredentials {
        try peer(of: socket.raw)
    }

    /// Returns no groups if the kernel can't report them. The peer may then do less, never more.
    private static func groups(of raw: CInt) -> [gid_t] {
        // The most groups that a process may have (NGROUPS_MAX of limits.h).
        for capacity in [64, 65_536] {
            var groups = [gid_t](repeating: 0, count: capacity)
            let count = gs_socket_groups(raw, &groups, CInt(capacity))
            if count >= 0 { return Array(groups.prefix(Int(count))) }
            if errno != ERANGE { return [] }
        }
        return []
    }

    /// Sends like `send`, and passes a copy of an open descriptor to the peer. The copy is sent once at least one byte
    /// is.
    package static func send(
        _ bytes: ArraySlice<UInt8>, passing descriptor: CInt?, on raw: CInt
    ) throws(SystemError) -> Int {
        guard let descriptor else { return try send(bytes, on: raw) }
        return try sendAvailable {
            bytes.withUnsafeBytes { gs_socket_send_passing(raw, $0.baseAddress, $0.count, descriptor) }
        }
    }

    /// Returns the peer's credentials for a socket owned by somebody else.
    package static func peer(of raw: CInt) throws(SystemError) -> PeerCredentials {
        var found = gs_credentials()
        try retrying("getsockopt SO_PEERCRED") { gs_socket_peer(raw, &found) }
        return PeerCredentials(pid: found.pid, uid: found.uid, gid: found.gid, groups: groups(of: raw))
    }
}

extension Descriptor {
    /// Receives into the buffer. Returns 0 at the peer's end of file, and nil if no bytes are available now.
    package func receive(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int? {
        do {
            return try retrying("recv") { gs_socket_receive(raw, buffer.baseAddress, buffer.count) }
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return nil }
            throw error
        }
    }

    /// Receives like `receive(into:)`, and calls `onDescriptor` with each descriptor that the peer passed with these
    /// bytes.
    package func receive(
        into buffer: UnsafeMutableRawBufferPointer, onDescriptor: (consuming Descriptor) -> Void
    ) throws(SystemError) -> Int? {
        var passed = [CInt](repeating: -1, count: 16)
        var count: CInt = 0
        defer { for descriptor in passed.prefix(Int(count)) { onDescriptor(Descriptor(owning: descriptor)) } }
        do {
            return try retrying("recvmsg") {
                gs_socket_receive_passed(raw, buffer.baseAddress, buffer.count, &passed, 16, &count)
            }
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return nil }
            throw error
        }
    }
}
