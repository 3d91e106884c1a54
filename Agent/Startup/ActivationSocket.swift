import Glibc
import LinuxSystem
import SystemPackage

/// The listening socket that the service manager made and passed to this process, as sd_listen_fds(3) describes: the
/// descriptors from 3 on, counted by `$LISTEN_FDS`, for the process `$LISTEN_PID`.
///
/// The service manager owns the socket's name: it listens before the agent starts and after it stops. The agent never
/// removes the name.
///
/// Hand-written because the protocol is three variables, and libsystemd would have to be installed where systemd isn't.
package struct ActivationSocket: Sendable {
    package enum Failure: ActionableError, Equatable {
        case badCount(String)
        case several(Int)
        case notOpen(CInt)
        case notAListener(CInt)
        case hasNoPath(CInt)
        case isElsewhere(FilePath, configured: FilePath)

        package var errorCode: String { "bad_activation" }
        private var unitName: String { ActivationSocket.unitName }

        package var errorPath: FilePath? { if case .isElsewhere(let path, _) = self { path } else { nil } }

        package var message: String {
            switch self {
            case .badCount(let text): "LISTEN_FDS is \(text), which is not a number of sockets"
            case .several(let count):
                "the service manager passed \(count) sockets, and not exactly one of them is named \(unitName)"
            case .notOpen(let raw): "the service manager's descriptor \(raw) is not open"
            case .notAListener(let raw):
                "the service manager's descriptor \(raw) is not a listening stream socket of the Unix domain"
            case .hasNoPath(let raw): "the service manager's socket (descriptor \(raw)) has no path in the file system"
            case .isElsewhere(let path, let configured):
                "the service manager listens at \(PrintablePath(path)), but the configured socket is "
                    + "\(PrintablePath(configured))"
            }
        }

        package var remedy: String {
            switch self {
            case .badCount, .notOpen: "unset LISTEN_FDS and LISTEN_PID, or start the agent through its socket unit"
            case .several: "keep one ListenStream= in \(unitName)"
            case .notAListener, .hasNoPath: "write ListenStream=%t/groupstore/agent.sock and Accept=no in \(unitName)"
            case .isElsewhere: "make ListenStream= of \(unitName), socket: path and GROUPSTORE_SOCKET the same path"
            }
        }
    }

    /// The socket unit, whose name its descriptors have unless it sets `FileDescriptorName=`.
    private static let unitName = "groupstore.socket"

    /// The path at which the service manager listens.
    package let path: FilePath
    private let raw: CInt

    /// Returns the passed socket; nil if none was passed to this process.
    ///
    /// - Parameters:
    ///   - environment: `LISTEN_FDS`, `LISTEN_PID` and `LISTEN_FDNAMES`.
    ///   - configured: The path that the configuration or `$GROUPSTORE_SOCKET` names; nil for none.
    ///   - first: The first passed descriptor, SD_LISTEN_FDS_START.
    package init?(
        environment: [String: String], configured: FilePath?, process: pid_t = getpid(), first: CInt = 3
    ) throws(Failure) {
        guard let text = environment["LISTEN_FDS"], environment["LISTEN_PID"].flatMap({ pid_t($0) }) == process else {
            return nil
        }
        guard let count = CInt(text), count >= 0, count < 10_000 else { throw .badCount(text) }
        guard count > 0 else { return nil }
        raw = try Self.chosen(count, names: environment["LISTEN_FDNAMES"], first: first)
        path = try Self.path(of: raw)
        if let configured, configured.lexicallyNormalized() != path.lexicallyNormalized(),
            FileStatus(following: configured)?.identity != FileStatus(following: path)?.identity
                || FileStatus(following: path) == nil
        {
            throw .isElsewhere(path, configured: configured)
        }
        // Like every other descriptor: not inherited by the programs that read histories, and never waited for.
        _ = fcntl(raw, F_SETFD, FD_CLOEXEC)
        _ = fcntl(raw, F_SETFL, fcntl(raw, F_GETFL) | O_NONBLOCK)
    }

    /// Returns the only descriptor, or the only one with the socket unit's name. The others are closed.
    private static func chosen(_ count: CInt, names: String?, first: CInt) throws(Failure) -> CInt {
        guard count > 1 else { return first }
        let names = names?.split(separator: ":", omittingEmptySubsequences: false) ?? []
        let named = names.prefix(Int(count)).indices.filter { names[$0] == unitName }
        guard named.count == 1, let only = named.first else { throw .several(Int(count)) }
        let chosen = first + CInt(only)
        for other in first..<first + count where other != chosen { close(other) }
        return chosen
    }

    private static func path(of raw: CInt) throws(Failure) -> FilePath {
        guard fcntl(raw, F_GETFD) >= 0 else { throw .notOpen(raw) }
        func option(_ name: CInt) -> CInt? {
            var value: CInt = 0
            var length = socklen_t(MemoryLayout<CInt>.size)
            return getsockopt(raw, SOL_SOCKET, name, &value, &length) == 0 ? value : nil
        }
        guard option(SO_DOMAIN) == AF_UNIX, option(SO_TYPE) == CInt(SOCK_STREAM.rawValue), option(SO_ACCEPTCONN) == 1
        else { throw .notAListener(raw) }
        guard let path = UnixSocket.path(of: raw) else { throw .hasNoPath(raw) }
        return path
    }

    /// Returns the listening socket. The caller owns it: call this once.
    package func listener() -> Descriptor { Descriptor(owning: raw) }

    /// The socket's permissions; nil if its name is gone or out of sight.
    package var permissions: mode_t? { FileStatus(following: path)?.permissions }
}
