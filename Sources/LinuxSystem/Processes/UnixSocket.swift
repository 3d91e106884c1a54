import CLinux
import Glibc
import SystemPackage

/// Who is at the other end of a Unix socket, as the kernel recorded it when the connection was made (`SO_PEERCRED`).
package struct PeerCredentials: Sendable, Hashable {
    /// 0 when the peer is in a PID namespace that can't be seen from here.
    package let pid: pid_t
    package let uid: uid_t
    package let gid: gid_t
    /// Its other groups (`SO_PEERGROUPS`).
    package let groups: [gid_t]

    package init(pid: pid_t, uid: uid_t, gid: gid_t, groups: [gid_t] = []) {
        self.pid = pid
        self.uid = uid
        self.gid = gid
        self.groups = groups
    }
}

/// Stream sockets in the Unix domain.
package enum UnixSocket {
    /// The longest path a Unix socket may have, in bytes (unix(7)).
    package static let longestPath = 107

    /// A listening socket, not blocking, at `path`, which must not exist yet; only its owner may connect unless
    /// `mode` says otherwise.
    package static func listen(at path: FilePath, mode: mode_t = 0o600) throws(SystemError) -> Descriptor {
        let socket = Descriptor(owning: try retrying("socket", path: path) { gs_socket_stream() })
        let raw = socket.raw
        // bind(2) gives the file the socket's own mode, less the umask, so that it is never wider than asked; the
        // umask itself is the whole process's and stays as it is.
        try retrying("fchmod", path: path) { fchmod(raw, mode) }
        try retrying("bind", path: path) { path.withPlatformString { gs_socket_bind(raw, $0) } }
        try retrying("chmod", path: path) { path.withPlatformString { chmod($0, mode) } }
        try retrying("listen", path: path) { Glibc.listen(raw, 128) }
        _ = fcntl(raw, F_SETFL, O_NONBLOCK)
        return socket
    }

    /// A connected, blocking socket. EAGAIN when the listener takes nobody within `timeout`; nil: no time-out.
    package static func connect(to path: FilePath, timeout: Duration? = nil) throws(SystemError) -> Descriptor {
        let socket = Descriptor(owning: try retrying("socket", path: path) { gs_socket_stream() })
        let raw = socket.raw
        if let timeout {
            // Zero would mean for ever (socket(7), SO_SNDTIMEO, which connect(2) heeds).
            let microseconds = max(1, timeout.nanoseconds / 1000)
            var limit = timeval(tv_sec: Int(microseconds / 1_000_000), tv_usec: Int(microseconds % 1_000_000))
            try retrying("setsockopt SO_SNDTIMEO") {
                setsockopt(raw, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
            }
        }
        try retrying("connect", path: path) { path.withPlatformString { gs_socket_connect(raw, $0) } }
        return socket
    }

    /// The next waiting connection, not blocking; nil when none waits.
    package static func accept(on listener: borrowing Descriptor) throws(SystemError) -> Descriptor? {
        let raw = listener.raw
        do {
            return Descriptor(owning: try retrying("accept") { gs_socket_accept(raw) })
        } catch {
            if error.errno == .resourceTemporarilyUnavailable || error.errno == .connectionAbort { return nil }
            throw error
        }
    }

    /// Lets the kernel hold about that many bytes that the peer has not received (socket(7), SO_SNDBUF, which the
    /// kernel doubles for its own book-keeping).
    package static func limitUnread(_ raw: CInt, to bytes: Int) {
        var half = CInt(clamping: bytes / 2)
        _ = setsockopt(raw, SOL_SOCKET, SO_SNDBUF, &half, socklen_t(MemoryLayout<CInt>.size))
    }

    /// Bytes of kernel memory that hold what the peer has not received yet; 0 where that can't be told.
    package static func unread(_ raw: CInt) -> Int { max(0, Int(gs_socket_unread(raw))) }

    /// As `Descriptor.send`, on a socket that somebody else owns.
    package static func send(_ bytes: ArraySlice<UInt8>, on raw: CInt) throws(SystemError) -> Int {
        try untilFull { bytes.withUnsafeBytes { gs_socket_send(raw, $0.baseAddress, $0.count) } }
    }

    fileprivate static func untilFull(_ send: () -> Int) throws(SystemError) -> Int {
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

    /// Empty where the kernel can't tell: the peer may do less then, never more.
    private static func groups(of raw: CInt) -> [gid_t] {
        // As many as a process may have (NGROUPS_MAX of limits.h).
        for capacity in [64, 65_536] {
            var groups = [gid_t](repeating: 0, count: capacity)
            let count = gs_socket_groups(raw, &groups, CInt(capacity))
            if count >= 0 { return Array(groups.prefix(Int(count))) }
            if errno != ERANGE { return [] }
        }
        return []
    }

    /// As `send`, with a copy of an open descriptor for the peer; it has gone when at least one byte has.
    package static func send(
        _ bytes: ArraySlice<UInt8>, passing descriptor: CInt?, on raw: CInt
    ) throws(SystemError) -> Int {
        guard let descriptor else { return try send(bytes, on: raw) }
        return try untilFull {
            bytes.withUnsafeBytes { gs_socket_send_passing(raw, $0.baseAddress, $0.count, descriptor) }
        }
    }

    /// Who is at the other end of a socket that somebody else owns.
    package static func peer(of raw: CInt) throws(SystemError) -> PeerCredentials {
        var found = gs_credentials()
        try retrying("getsockopt SO_PEERCRED") { gs_socket_peer(raw, &found) }
        return PeerCredentials(pid: found.pid, uid: found.uid, gid: found.gid, groups: groups(of: raw))
    }
}

extension Descriptor {
    /// Sends what the socket takes without waiting: the number of bytes, 0 when it takes none now.
    package func send(_ bytes: UnsafeRawBufferPointer) throws(SystemError) -> Int {
        try UnixSocket.untilFull { gs_socket_send(raw, bytes.baseAddress, bytes.count) }
    }

    /// Receives into the buffer. 0 is the peer's end of file; nil means that nothing is there now.
    package func receive(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int? {
        do {
            return try retrying("recv") { gs_socket_receive(raw, buffer.baseAddress, buffer.count) }
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return nil }
            throw error
        }
    }

    /// As `receive(into:)`; `taking` is given each descriptor that the peer has passed with these bytes.
    package func receive(
        into buffer: UnsafeMutableRawBufferPointer, taking: (consuming Descriptor) -> Void
    ) throws(SystemError) -> Int? {
        var passed = [CInt](repeating: -1, count: 16)
        var count: CInt = 0
        defer { for one in passed.prefix(Int(count)) { taking(Descriptor(owning: one)) } }
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
