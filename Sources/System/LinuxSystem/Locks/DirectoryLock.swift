import Glibc
import SystemPackage

/// An advisory lock on a directory itself (`flock` of flock(2)) for processes that are about to create something in it.
/// It leaves no file behind, and is held until this object is released or the process ends.
package final class DirectoryLock: Sendable {
    private let directory: Directory
    private let process = getpid()

    package init(_ path: FilePath) throws(SystemError) { directory = try Directory(path) }

    /// Releases the lock though a child process that is being started may still have a copy of the descriptor.
    deinit { if getpid() == process { flock(directory.raw, LOCK_UN) } }

    /// Tries to acquire the lock. Returns false if somebody else holds it. On a file system that can't lock a directory
    /// (NFS) it always succeeds.
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
