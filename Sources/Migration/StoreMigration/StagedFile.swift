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
        // What was truncated, ext4 begins to write to the disk when it is closed. A new file is a temporary copy.
        if try destination.status(path: path).size > 0 { try destination.truncate(to: 0, path: path) }
        let copied = try FileCopy(from: newContent, to: path).run(from: source, to: destination)
        guard copied.bytes == size else { throw SystemError("read", .ioError, path: newContent) }
    }
}

extension StagedFile {
    /// Renames `newContent` to `path`, with the mode of the file there, which gets the name `former`. Throws
    /// `SystemError`, and leaves both files as they were.
    ///
    /// A rename over a file would make ext4 write the new content to the disk at once.
    static func replace(_ path: FilePath, with newContent: FilePath, renamingTo former: FilePath) throws {
        let mode = try Descriptor(opening: path, flags: O_RDONLY).status(path: path).permissions
        try newContent.withPlatformString { new in
            guard chmod(new, mode) == 0 else { throw SystemError.last("chmod", path: newContent) }
        }
        try rename(path, to: former)
        do {
            try rename(newContent, to: path)
        } catch {
            try rename(former, to: path)
            throw error
        }
    }

    private static func rename(_ path: FilePath, to newPath: FilePath) throws {
        let result = path.withPlatformString { old in newPath.withPlatformString { Glibc.rename(old, $0) } }
        guard result == 0 else { throw SystemError.last("rename", path: path) }
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
