import Glibc
import SystemPackage

/// A limit of the kernel that a system call has come up against, by its name, and how to raise it.
package struct ResourceLimit: Equatable, Sendable {
    /// As in errno(3), such as `EMFILE`.
    package let name: String
    package let message: String
    package let remedy: String

    /// Nil when the call failed for another reason.
    package init?(_ error: SystemError) {
        let isOfInotify = error.call.hasPrefix("inotify")
        switch error.errno {
        case .tooManyOpenFiles where error.call == "inotify_init":
            name = "EMFILE"
            message = "this user has no inotify instance left, or this process no descriptor (EMFILE)"
            remedy = "raise it: sysctl -w fs.inotify.max_user_instances=256, or ulimit -n"
        case .tooManyOpenFiles:
            name = "EMFILE"
            message = "this process has as many files open as it may: \(Self.descriptors) (EMFILE)"
            remedy = "raise LimitNOFILE= of the agent's unit, or ulimit -Hn before it is started"
        case .tooManyOpenFilesInSystem:
            name = "ENFILE"
            message = "the system has as many files open as it may (ENFILE)"
            remedy = "raise it: sysctl -w fs.file-max=1000000"
        case .noSpace where isOfInotify:
            name = "ENOSPC"
            message = "this user has no inotify watch left (ENOSPC)"
            remedy = "raise it: sysctl -w fs.inotify.max_user_watches=524288"
        case .noMemory:
            name = "ENOMEM"
            message = "the system has no memory left for it (ENOMEM)"
            remedy = "free memory, or raise MemoryMax= of the agent's unit"
        default: return nil
        }
    }

    /// How many descriptors this process may have.
    package static var descriptors: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(clamping: limit.rlim_cur)
    }

    /// How many it may let itself have: the hard limit.
    package static var mostDescriptors: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(clamping: limit.rlim_max)
    }

    /// Lets this process have as many descriptors as the system allows it.
    package static func raiseDescriptors() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

extension SystemError {
    /// What happened and what helps, in a sentence.
    package var advice: String {
        guard let limit = ResourceLimit(self) else { return description }
        return "\(limit.message); \(limit.remedy) [\(description)]"
    }
}
