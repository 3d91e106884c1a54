import Glibc
import SystemPackage

/// A failed system call, with its name, path and errno.
package struct SystemError: ActionableError, Equatable {
    package let call: String
    package let errno: Errno
    package let path: FilePath?

    package init(_ call: String, _ errno: Errno, path: FilePath? = nil) {
        self.call = call
        self.errno = errno
        self.path = path?.namingItsDirectory
    }

    /// Returns an error with the present value of the C library's `errno`.
    package static func last(_ call: String, path: FilePath? = nil) -> SystemError {
        SystemError(call, Errno(rawValue: Glibc.errno), path: path)
    }

    /// True if the file can't be opened without waiting, because another process holds a lease on it.
    package var isLeaseConflict: Bool { call == "open" && errno == .resourceTemporarilyUnavailable }

    /// The suggested action if a name is taken by a file of the wrong kind, else nil.
    package var obstacleRemedy: String? {
        guard ["open", "rename", "unlink", "mkdir", "link"].contains(call) else { return nil }
        return switch errno {
        case .fileExists where call == "mkdir":
            "a directory must be there: "
                + (path.map { "mv \($0.shellWord) \($0.appending(suffix: ".old").shellWord)" }
                    ?? "move the other file away")
        case .notDirectory: "a directory must be there: move the other file away"
        case .isDirectory, .invalidArgument, .noSuchAddressOrDevice, .directoryNotEmpty, .fileExists:
            "a regular file must be there: move the other file or directory away"
        case .tooManyLinks: "the file has another hard link, which may be another user's: move it away"
        case .tooManySymbolicLinkLevels: "replace the symbolic link with a real file or directory"
        case .resourceBusy: "something is mounted there: use its own path, or mount its directory instead"
        default: nil
        }
    }

    package var errorCode: String {
        switch errno {
        case .permissionDenied, .notPermitted: "not_permitted"
        // The user's watches are used up, not the disk.
        case .noSpace where call == "inotify_add_watch": "io_error"
        case .noSpace, .diskQuotaExceeded: "no_space"
        default: obstacleRemedy == nil ? "io_error" : "obstacle"
        }
    }

    package var errorPath: FilePath? { path }

    /// True if the user lacks a permission.
    package var isPermission: Bool { errno == .permissionDenied || errno == .notPermitted }

    /// The suggested action if the call needs `/proc` and it isn't mounted, else nil.
    package var procRemedy: String? {
        let isInProc = path?.starts(with: "/proc") == true
        return isInProc && errno == .noSuchFileOrDirectory && !ProcFileSystem.isMounted ? ProcMissing().remedy : nil
    }

    /// The suggested action, for callers that know no better one.
    package var remedy: String {
        if let known = procRemedy ?? obstacleRemedy { return known }
        return switch errno {
        case .permissionDenied, .notPermitted, .readOnlyFileSystem: "check the read and write permissions there"
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem: "close files, or raise the limit: ulimit -n"
        case .resourceTemporarilyUnavailable where call == "pthread_create", .noMemory:
            "end some processes, or raise the limits on threads and memory: ulimit -u, ulimit -v"
        case .noSpace, .diskQuotaExceeded:
            "free space \(path.map { "in \($0.nearestDirectory.shellWord)" } ?? "there") (df -h), or inodes (df -i)"
        default: "see why: groupstore doctor"
        }
    }

    package var message: String {
        let place = path.map { " \(PrintablePath($0))" } ?? ""
        return "\(call)\(place): \(errno) (errno \(errno.rawValue))"
    }
}

/// Calls `body` again while a signal interrupts it, and throws any other error. A call that is interrupted each time,
/// before it can do anything, ends with EINTR after some seconds.
@discardableResult
package func retrying<Result: SignedInteger>(
    _ call: String, path: @autoclosure () -> FilePath? = nil, _ body: () -> Result
) throws(SystemError) -> Result {
    var interruptions = Interruptions()
    while true {
        let result = body()
        if result >= 0 { return result }
        let error = SystemError.last(call, path: path())
        guard error.errno == .interrupted, interruptions.allowsAnother(at: .now) else { throw error }
    }
}

/// Tells a call that signals interrupt from one that never gets to run, as under a debugger or filter that answers each
/// call with EINTR. A wait may be interrupted any number of times, but not at that rate.
package struct Interruptions {
    private var count = 0
    private var start: ContinuousClock.Instant?

    package init() {}

    static let most = 20_000
    private static let window = Duration.seconds(10)

    /// Records an interruption. Returns false after too many in too short a time.
    package mutating func allowsAnother(at now: ContinuousClock.Instant) -> Bool {
        guard let start, start.duration(to: now) < Self.window else {
            start = now
            count = 1
            return true
        }
        count += 1
        return count < Self.most
    }
}
