import Glibc
import SystemPackage

/// A system call that failed: which one, on what, and the errno it left.
package struct SystemError: Error, Equatable, CustomStringConvertible {
    package let call: String
    package let errno: Errno
    package let path: FilePath?

    package init(_ call: String, _ errno: Errno, path: FilePath? = nil) {
        self.call = call
        self.errno = errno
        self.path = path
    }

    /// The error that the C library's `errno` holds now.
    package static func last(_ call: String, path: FilePath? = nil) -> SystemError {
        SystemError(call, Errno(rawValue: Glibc.errno), path: path)
    }

    /// The file can't be opened without waiting, because another process has a lease of it.
    package var isOfALease: Bool { call == "open" && errno == .resourceTemporarilyUnavailable }

    /// Where something stands at a name that is not what must be there, what would help; else nil.
    package var obstacleRemedy: String? {
        guard ["open", "rename", "unlink", "mkdir", "link"].contains(call) else { return nil }
        return switch errno {
        case .notDirectory: "a directory belongs there: move away what stands in its place"
        case .isDirectory, .invalidArgument, .noSuchAddressOrDevice, .directoryNotEmpty, .fileExists:
            "a plain file belongs there: move away what stands in its place"
        case .tooManyLinks: "it has a second name, which may be another user's: move it away"
        case .tooManySymbolicLinkLevels: "put a real file or directory in the link's place"
        case .resourceBusy: "something is mounted there: name it by its own path, or mount its directory instead"
        default: nil
        }
    }

    /// What would help, for those who know of nothing better.
    package var remedy: String {
        if let obstacleRemedy { return obstacleRemedy }
        return switch errno {
        case .permissionDenied, .notPermitted, .readOnlyFileSystem: "check who may read and write there"
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem: "close files, or raise the limit: ulimit -n"
        case .resourceTemporarilyUnavailable where call == "pthread_create", .noMemory:
            "end something, or raise the limits of threads and memory: ulimit -u, ulimit -v"
        case .noSpace, .diskQuotaExceeded: "make room there"
        default: "see groupstore doctor"
        }
    }

    package var description: String {
        let place = path.map { " \(PrintablePath($0))" } ?? ""
        return "\(call)\(place): \(errno) (errno \(errno.rawValue))"
    }
}

/// Runs a call until a signal no longer interrupts it, and throws what it says otherwise.
@discardableResult
package func retrying<Result: SignedInteger>(
    _ call: String, path: @autoclosure () -> FilePath? = nil, _ body: () -> Result
) throws(SystemError) -> Result {
    while true {
        let result = body()
        if result >= 0 { return result }
        let error = SystemError.last(call, path: path())
        if error.errno != .interrupted { throw error }
    }
}
