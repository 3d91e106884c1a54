import Glibc
import SystemPackage

/// Small files of ours that are either the old one or the new one, whatever happens.
package enum DurableFile {
    /// Writes beside the name, syncs, renames over it and syncs the directory.
    package static func write(
        _ bytes: [UInt8], as name: FilePath.Component, in directory: Directory, mode: mode_t
    ) throws(SystemError) {
        guard let temporary = name.appending(".new") else {
            throw SystemError("open", .fileNameTooLong, path: directory.path.appending(name))
        }
        try directory.removeFile(temporary)
        let descriptor = try directory.open(temporary, flags: O_WRONLY | O_CREAT | O_EXCL, mode: mode)
        // Whatever the umask. Not every file system knows modes.
        _ = fchmod(descriptor.raw, mode)
        directory.giveToOwner(descriptor)
        try descriptor.write(bytes, at: 0, path: directory.path.appending(temporary))
        try descriptor.synchronize(path: directory.path.appending(temporary))
        try directory.rename(temporary, to: name, in: directory, .replace)
        try directory.synchronize()
    }

    /// Nil when there is no such file; at most `limit` bytes are read.
    package static func read(
        _ name: FilePath.Component, in directory: Directory, limit: Int = 1 << 20
    ) throws(SystemError) -> [UInt8]? { try readWithStatus(name, in: directory, limit: limit)?.bytes }

    /// The same, and what is known of the very file that was read.
    package static func readWithStatus(
        _ name: FilePath.Component, in directory: Directory, limit: Int = 1 << 20
    ) throws(SystemError) -> (bytes: [UInt8], status: FileStatus)? {
        do throws(SystemError) {
            let descriptor = try directory.openOwn(name, flags: O_RDONLY)
            let path = directory.path.appending(name)
            return (try descriptor.read(count: limit, at: 0, path: path), try descriptor.status(path: path))
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw error
        }
    }
}
