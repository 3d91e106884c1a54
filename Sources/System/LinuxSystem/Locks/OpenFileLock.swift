import CLinux
import Glibc
import SystemPackage

/// An exclusive advisory lock on one of this package's own files, held by the open file description (`F_OFD_SETLK` of
/// fcntl(2)). It is released when the value is destroyed or the process ends, but not when another descriptor of the
/// file is closed.
package struct OpenFileLock: ~Copyable, Sendable {
    private let locked: LockedDescriptor

    /// Acquires the lock, and creates the file if it is missing. Returns nil if another process holds the lock.
    package init?(
        _ name: FilePath.Component, in directory: Directory, mode: mode_t = 0o600
    ) throws(SystemError) {
        while true {
            let locked = LockedDescriptor(try directory.openOwn(name, flags: O_RDWR | O_CREAT, mode: mode))
            let raw = locked.descriptor.raw
            do {
                try retrying("fcntl F_OFD_SETLK", path: directory.path.appending(name)) {
                    gs_ofd_lock(raw, Int16(F_WRLCK), 0, 0)
                }
            } catch {
                if error.errno == .resourceTemporarilyUnavailable || error.errno == .permissionDenied { return nil }
                throw error
            }
            // A lock on a file that has lost its name protects nothing.
            let held = try locked.descriptor.status()
            if try directory.status(name)?.identity == held.identity {
                self.locked = locked
                return
            }
        }
    }

    /// True if nobody holds the lock now. False also if the file can't be read. Creates and locks nothing.
    package static func isFree(_ name: FilePath.Component, in directory: Directory) -> Bool {
        guard let descriptor = try? directory.openOwn(name, flags: O_RDONLY) else { return false }
        return gs_ofd_conflict(descriptor.raw, Int16(F_WRLCK), 0, 0) == 0
    }

    /// Returns the note that the lock's holder wrote into the file, or an empty array.
    package static func note(_ name: FilePath.Component, in directory: Directory) -> [UInt8] {
        guard let descriptor = try? directory.openOwn(name, flags: O_RDONLY) else { return [] }
        return (try? descriptor.read(count: 65_536, at: 0)) ?? []
    }

    /// Writes a note that identifies the holder into the locked file.
    package func write(note: [UInt8]) throws(SystemError) {
        do throws(SystemError) {
            try locked.descriptor.truncate(to: 0)
            try locked.descriptor.write(note, at: 0)
        } catch {
            throw SystemError(error.call, error.errno, path: path)
        }
    }

    /// The file's path, for errors; nil if it can't be read.
    private var path: FilePath? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/fd/\(locked.descriptor.raw)", &buffer, buffer.count - 1)
        return count > 0 ? FilePath(platformString: buffer) : nil
    }
}
