import Glibc
import LinuxSystem
import SystemPackage

/// Operations on a staged database file.
enum StagedFile {
    /// Overwrites the file with the bytes of `newContent`. The file keeps its inode, mode and owner. Syncs nothing. If
    /// this throws `SystemError`, the content at `path` is unusable.
    static func replaceBytes(of path: FilePath, with newContent: FilePath) throws {
        let source = try Descriptor(opening: newContent, flags: O_RDONLY)
        let destination = try Descriptor(opening: path, flags: O_WRONLY)
        let size = try source.status(path: newContent).size
        try destination.truncate(to: 0, path: path)
        let copied = try FileCopy(from: newContent, to: path).run(from: source, to: destination)
        guard copied.bytes == size else { throw SystemError("read", .ioError, path: newContent) }
    }
}

extension StagedFile {
    /// Renames `newContent` to `path`, with the mode of the file there. Throws `SystemError`.
    static func replace(_ path: FilePath, with newContent: FilePath) throws {
        let mode = try Descriptor(opening: path, flags: O_RDONLY).status(path: path).permissions
        try newContent.withPlatformString { new in
            try path.withPlatformString { old in
                guard chmod(new, mode) == 0, rename(new, old) == 0 else {
                    throw SystemError.last("rename", path: newContent)
                }
            }
        }
    }

    /// Copies a staged database file to a name that only this process uses, replacing any file there. If this throws
    /// `SystemError`, it leaves no file there.
    static func copy(_ path: FilePath, to destination: FilePath) throws {
        _ = destination.withPlatformString { unlink($0) }
        _ = try Descriptor(opening: destination, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        do { try replaceBytes(of: destination, with: path) } catch {
            _ = destination.withPlatformString { unlink($0) }
            throw error
        }
    }
}
