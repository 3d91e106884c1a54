import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Operations on a staged database file.
enum StagedFile {
    /// Overwrites the file with the bytes of `newContent`. The file keeps its inode, mode and owner. If this throws
    /// `SystemError`, the content at `path` is unusable.
    static func replaceBytes(of path: FilePath, with newContent: FilePath) throws(SystemError) {
        let source = try Descriptor(opening: newContent, flags: O_RDONLY)
        let destination = try Descriptor(opening: path, flags: O_WRONLY)
        let size = try source.status(path: newContent).size
        try destination.truncate(to: 0, path: path)
        // Clone if the file system supports it.
        if gs_reflink(destination.raw, source.raw) == 0 { return }
        var remaining = size
        while remaining > 0 {
            let count = gs_copy_file_range(source.raw, destination.raw, Int(min(remaining, 1 << 30)))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw SystemError.last("copy_file_range", path: path) }
            remaining -= Int64(count)
        }
    }
}

extension StagedFile {
    /// Copies a staged database file to a name that only this process uses, replacing any file there. If this throws
    /// `SystemError`, it leaves no file there.
    static func copy(_ path: FilePath, to destination: FilePath) throws(SystemError) {
        _ = destination.withPlatformString { unlink($0) }
        _ = try Descriptor(opening: destination, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        do { try replaceBytes(of: destination, with: path) } catch {
            _ = destination.withPlatformString { unlink($0) }
            throw error
        }
    }
}
