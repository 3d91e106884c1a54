import Glibc
import SystemPackage

/// A kernel limit that a system call has reached, and how to raise it.
package struct ResourceLimit: ActionableError, Equatable {
    /// The errno's name as in errno(3), such as `EMFILE`.
    package let errorCode: String
    package let message: String
    package let remedy: String
    private let cause: SystemError

    package var underlyingError: (any Error)? { cause }

    /// Returns nil if the call failed for another reason.
    package init?(_ error: SystemError) {
        cause = error
        let isInotifyCall = error.call.hasPrefix("inotify")
        switch error.errno {
        case .tooManyOpenFiles where error.call == "inotify_init":
            errorCode = "EMFILE"
            message = "this user has no inotify instance left, or this process has no descriptor left (EMFILE)"
            remedy = "raise it: sysctl -w fs.inotify.max_user_instances=256, or ulimit -n"
        case .tooManyOpenFiles:
            errorCode = "EMFILE"
            message = "this process has reached its limit of open files: \(Self.descriptors) (EMFILE)"
            remedy = "raise LimitNOFILE= of the agent's unit, or ulimit -Hn before it is started"
        case .tooManyOpenFilesInSystem:
            errorCode = "ENFILE"
            message = "the system has reached its limit of open files (ENFILE)"
            remedy = "raise it: sysctl -w fs.file-max=1000000"
        case .noSpace where isInotifyCall:
            errorCode = "ENOSPC"
            message = "this user has no inotify watch left (ENOSPC)"
            remedy = "raise it: sysctl -w fs.inotify.max_user_watches=524288"
        case .noMemory:
            errorCode = "ENOMEM"
            message = "the system is out of memory (ENOMEM)"
            remedy = "free memory, or raise MemoryMax= of the agent's unit"
        default: return nil
        }
    }

    /// The number of descriptors that this process may have: the soft limit.
    package static var descriptors: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(clamping: limit.rlim_cur)
    }

    /// The number to which it may raise that: the hard limit.
    package static var maxDescriptors: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(clamping: limit.rlim_max)
    }

    /// Raises the soft limit on descriptors to the hard limit.
    package static func raiseDescriptors() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

extension Error {
    /// The description; if a limit is the cause, the limit and how to raise it.
    package var advice: String {
        guard let limit = (self as? SystemError).flatMap(ResourceLimit.init) else { return "\(self)" }
        return "\(limit.message); \(limit.remedy) [\(self)]"
    }
}
