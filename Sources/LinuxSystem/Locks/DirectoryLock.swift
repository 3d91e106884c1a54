import Glibc
import SystemPackage

/// An advisory lock on a directory itself (`flock` of flock(2)), for those who are about to make something in it: it
/// leaves no file behind. Held until this value goes, or the process ends.
package final class DirectoryLock: Sendable {
    private let directory: Directory

    package init(_ path: FilePath) throws(SystemError) { directory = try Directory(path) }

    /// False when somebody else holds it. A file system that can't lock a directory (NFS) has it held by everybody.
    package func tryLock() throws(SystemError) -> Bool {
        let raw = directory.raw
        do {
            try retrying("flock", path: directory.path) { flock(raw, LOCK_EX | LOCK_NB) }
        } catch {
            if error.errno == .wouldBlock { return false }
            guard error.errno == .badFileDescriptor || error.errno == .invalidArgument || error.errno == .noLocks
            else { throw error }
        }
        return true
    }
}
