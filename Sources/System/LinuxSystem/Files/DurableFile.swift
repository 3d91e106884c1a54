import Glibc
import SystemPackage

/// Small files that are replaced atomically: a reader finds either the old content or the new.
package enum DurableFile {
    /// Writes a temporary file, syncs it, renames it over the name and syncs the directory. An error, such as a full
    /// disk, leaves no temporary file.
    ///
    /// - Parameter isOwn: True if the file stays this process's user's, who vouches for the content. By default, root's
    ///   file is given to the directory's owner.
    package static func write(
        _ bytes: [UInt8], as name: FilePath.Component, in directory: Directory, mode: mode_t, isOwn: Bool = false
    ) throws(SystemError) {
        guard let temporary = name.appending(".new") else {
            throw SystemError("open", .fileNameTooLong, path: directory.path.appending(name))
        }
        try directory.removeFile(temporary)
        do throws(SystemError) {
            // Open until it has its name: a file that nobody has open is what a killed process has left.
            let file = try write(bytes, to: temporary, in: directory, mode, isOwn)
            defer { withExtendedLifetime(file) {} }
            try directory.rename(temporary, to: name, in: directory, .replace)
        } catch {
            try? directory.removeFile(temporary)
            throw error
        }
        try directory.synchronize()
    }

    private static func write(
        _ bytes: [UInt8], to temporary: FilePath.Component, in directory: Directory, _ mode: mode_t, _ isOwn: Bool
    ) throws(SystemError) -> Descriptor {
        let descriptor = try directory.open(temporary, flags: O_WRONLY | O_CREAT | O_EXCL, mode: mode)
        // Sets the mode regardless of the umask. Not every file system has modes.
        _ = fchmod(descriptor.raw, mode)
        if !isOwn { directory.giveToOwner(descriptor) }
        try descriptor.write(bytes, at: 0, path: directory.path.appending(temporary))
        try descriptor.synchronize(path: directory.path.appending(temporary))
        return descriptor
    }

    /// Reads at most `limit` bytes. Returns nil if the file does not exist.
    package static func read(
        _ name: FilePath.Component, in directory: Directory, limit: Int = 1 << 20
    ) throws(SystemError) -> [UInt8]? { try readWithStatus(name, in: directory, limit: limit)?.bytes }

    /// Reads the file like `read`, and returns the status of that very file.
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
