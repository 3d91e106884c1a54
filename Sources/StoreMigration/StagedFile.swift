import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// A staged database file.
enum StagedFile {
    /// Makes the file have the bytes of another one; it stays the same file, with its mode and owner. What is at `path`
    /// is worth nothing when this throws. Throws `SystemError`.
    static func replaceBytes(of path: FilePath, with other: FilePath) throws(SystemError) {
        let source = try Descriptor(opening: other, flags: O_RDONLY)
        let destination = try Descriptor(opening: path, flags: O_WRONLY)
        let size = try source.status(path: other).size
        try destination.truncate(to: 0, path: path)
        // A clone where the file system has those.
        if gs_reflink(destination.raw, source.raw) == 0 { return }
        var left = size
        while left > 0 {
            let count = gs_copy_file_range(source.raw, destination.raw, Int(min(left, 1 << 30)))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw SystemError.last("copy_file_range", path: path) }
            left -= Int64(count)
        }
    }
}

extension StagedFile {
    /// Copies a staged database file to a name that only this process knows. What is there is replaced; nothing is left
    /// there when this throws. Throws `SystemError`.
    static func copy(_ path: FilePath, to other: FilePath) throws(SystemError) {
        _ = other.withPlatformString { unlink($0) }
        _ = try Descriptor(opening: other, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        do { try replaceBytes(of: other, with: path) } catch {
            _ = other.withPlatformString { unlink($0) }
            throw error
        }
    }
}
