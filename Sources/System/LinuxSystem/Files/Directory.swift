import CLinux
import Glibc
import SystemPackage

/// An open directory. All operations use names inside it, so replacing a parent directory, even with a symbolic link,
/// between two calls has no effect. A final symbolic link is never followed.
package final class Directory: Sendable {
    private let descriptor: Descriptor
    /// The directory's path when it was opened, for messages and for programs that only accept a path.
    package let path: FilePath
    package let identity: FileIdentity

    package var raw: CInt { descriptor.raw }

    private init(_ descriptor: consuming Descriptor, path: FilePath) throws(SystemError) {
        identity = try descriptor.status(path: path).identity
        self.descriptor = descriptor
        self.path = path
    }

    /// Opens the directory, and follows trusted symbolic links, because a group directory may be reached through one.
    /// Throws ELOOP for a link created by somebody else (see `PathResolution`).
    package convenience init(_ path: FilePath) throws(SystemError) {
        let found = try PathResolution(directory: path)
        try self.init(found.take(), path: path)
    }

    /// Opens the directory likewise. `path` is then absolute and contains no links.
    package convenience init(resolving path: FilePath) throws(SystemError) {
        let found = try PathResolution(directory: path)
        let real = try found.path.isAbsolute ? found.path : Self.working().pushing(found.path)
        try self.init(found.take(), path: real.lexicallyNormalized())
    }

    private static func working() throws(SystemError) -> FilePath {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        guard getcwd(&buffer, buffer.count) != nil else { throw .last("getcwd") }
        return FilePath(platformString: buffer)
    }

    /// Returns the directory `name` in this one. Does not follow a symbolic link.
    package func directory(_ name: FilePath.Component) throws(SystemError) -> Directory {
        let descriptor = try open(name, flags: O_RDONLY | O_DIRECTORY)
        return try Directory(descriptor, path: path.appending(name))
    }

    /// Returns the file's creation time in nanoseconds since 1970, or nil if the file system doesn't record it. A new
    /// file may reuse the inode of a removed one, but not its creation time.
    package func birth(_ name: FilePath.Component) -> Int64? {
        let found = name.withPlatformString { gs_birth_time(raw, $0) }
        return found < 0 ? nil : found
    }

    /// Opens `name` without following a symbolic link, and without waiting for a lease or a FIFO's other end.
    package func open(
        _ name: FilePath.Component, flags: CInt, mode: mode_t = 0
    ) throws(SystemError) -> Descriptor {
        let raw = try retrying("open", path: path.appending(name)) {
            name.withPlatformString { gs_openat(self.raw, $0, flags | O_NOFOLLOW | O_NONBLOCK, mode) }
        }
        return Descriptor(owning: raw)
    }

    /// Opens one of this package's own files to trust or modify its content. It must be a regular file without another
    /// hard link, which might be somebody else's. Throws EINVAL for anything but a file and EMLINK for a file with
    /// another link, without having changed it. A new file gets exactly `mode`, because the umask must not exclude
    /// users whom the directory admits.
    package func openOwn(
        _ name: FilePath.Component, flags: CInt, mode: mode_t = 0
    ) throws(SystemError) -> Descriptor {
        if flags & O_CREAT != 0, let made = try makeOwn(name, flags: flags, mode: mode) { return made }
        // Checks first, because opening a device may have side effects.
        let existing = try status(name)
        if let existing { try Self.checkOwn(existing, path.appending(name)) }
        // In a sticky directory, the kernel refuses O_CREAT for another user's file that exists (protected_regular in
        // proc_sys_fs(5)).
        let descriptor: Descriptor
        do throws(SystemError) {
            descriptor = try open(name, flags: existing == nil ? flags : flags & ~O_CREAT, mode: mode)
        } catch {
            // Another process has just removed it.
            guard existing != nil, flags & O_CREAT != 0, error.errno == .noSuchFileOrDirectory else { throw error }
            return try openOwn(name, flags: flags, mode: mode)
        }
        let found = try descriptor.status(path: path.appending(name))
        try Self.checkOwn(found, path.appending(name))
        if flags & O_CREAT != 0, found.permissions != mode { _ = fchmod(descriptor.raw, mode) }
        return descriptor
    }

    /// Creates the file. Returns nil if it exists.
    private func makeOwn(
        _ name: FilePath.Component, flags: CInt, mode: mode_t
    ) throws(SystemError) -> Descriptor? {
        guard try status(name) == nil else { return nil }
        do throws(SystemError) {
            let made = try open(name, flags: flags | O_EXCL, mode: mode)
            _ = fchmod(made.raw, mode)
            giveToOwner(made)
            return made
        } catch {
            if error.errno == .fileExists, flags & O_EXCL == 0 { return nil }
            throw error
        }
    }

    /// Gives a file that this process has just created here to the directory's group, so that the group's mode admits
    /// the same users to both; if root has created it, also to the directory's owner. Does nothing if this user isn't
    /// in that group, or if the file system has no owners.
    package func giveToOwner(_ made: borrowing Descriptor) { giveToOwner(made.raw) }

    /// Gives a directory to this directory's owner likewise.
    package func giveToOwner(_ made: Directory) { giveToOwner(made.raw) }

    private func giveToOwner(_ made: CInt) {
        guard let own = try? status() else { return }
        if geteuid() == 0 {
            if own.owner != 0 || own.group != 0 { _ = fchown(made, own.owner, own.group) }
        } else {
            _ = fchown(made, uid_t.max, own.group)
        }
    }

    private static func checkOwn(_ status: FileStatus, _ path: FilePath) throws(SystemError) {
        guard status.kind != .symbolicLink else { throw SystemError("open", .tooManySymbolicLinkLevels, path: path) }
        guard status.kind == .regular else { throw SystemError("open", .invalidArgument, path: path) }
        guard status.links <= 1 else { throw SystemError("open", .tooManyLinks, path: path) }
    }

    /// Returns the file's status, or nil if it does not exist.
    package func status(_ name: FilePath.Component) throws(SystemError) -> FileStatus? {
        var result = stat()
        do {
            try retrying("stat", path: path.appending(name)) {
                name.withPlatformString { fstatat(raw, $0, &result, AT_SYMLINK_NOFOLLOW) }
            }
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw error
        }
        return FileStatus(result)
    }

    /// True if the file's permissions allow this process to write to it. Doesn't open it.
    package func mayWrite(_ name: FilePath.Component) throws(SystemError) -> Bool {
        do {
            try retrying("faccessat", path: path.appending(name)) {
                name.withPlatformString { faccessat(raw, $0, W_OK, AT_EACCESS) }
            }
            return true
        } catch {
            if error.errno == .permissionDenied || error.errno == .readOnlyFileSystem { return false }
            throw error
        }
    }

    package func status() throws(SystemError) -> FileStatus { try descriptor.status(path: path) }

    package func makeDirectory(_ name: FilePath.Component, mode: mode_t) throws(SystemError) {
        try retrying("mkdir", path: path.appending(name)) { name.withPlatformString { mkdirat(raw, $0, mode) } }
    }

    /// Sets the directory's own permission bits.
    package func setPermissions(_ mode: mode_t) throws(SystemError) {
        try retrying("fchmod", path: path) { fchmod(raw, mode) }
    }

    package func makeSymbolicLink(_ name: FilePath.Component, to target: FilePath) throws(SystemError) {
        try retrying("symlink", path: path.appending(name)) {
            target.withPlatformString { target in name.withPlatformString { symlinkat(target, raw, $0) } }
        }
    }

    /// Adds a hard link to a file. Does not follow symbolic links.
    package func link(
        _ name: FilePath.Component, as other: FilePath.Component, in destination: Directory
    ) throws(SystemError) {
        try retrying("link", path: destination.path.appending(other)) {
            name.withPlatformString { from in
                other.withPlatformString { linkat(raw, from, destination.raw, $0, 0) }
            }
        }
    }

    package enum Replacement: Sendable {
        /// Replaces a file at the new name.
        case replace
        /// Throws EEXIST if the new name exists.
        case refuse
        /// Exchanges the two names.
        case exchange
    }

    package func rename(
        _ name: FilePath.Component, to other: FilePath.Component, in destination: Directory, _ replacement: Replacement
    ) throws(SystemError) {
        let flags: UInt32 =
            switch replacement {
            case .replace: 0
            case .refuse: gs_rename_noreplace
            case .exchange: gs_rename_exchange
            }
        try retrying("rename", path: path.appending(name)) {
            name.withPlatformString { from in
                other.withPlatformString { gs_renameat2(raw, from, destination.raw, $0, flags) }
            }
        }
    }

    /// Removes a file. Does nothing if it does not exist.
    package func removeFile(_ name: FilePath.Component) throws(SystemError) { try unlink(name, flags: 0) }

    /// Removes an empty directory. Does nothing if it does not exist.
    package func removeDirectory(_ name: FilePath.Component) throws(SystemError) {
        try unlink(name, flags: AT_REMOVEDIR)
    }

    private func unlink(_ name: FilePath.Component, flags: CInt) throws(SystemError) {
        do {
            try retrying("unlink", path: path.appending(name)) {
                name.withPlatformString { unlinkat(raw, $0, flags) }
            }
        } catch {
            if error.errno != .noSuchFileOrDirectory { throw error }
        }
    }

    /// Removes `name`, and its content if it is a directory.
    package func removeTree(_ name: FilePath.Component) throws(SystemError) {
        guard let found = try status(name) else { return }
        guard found.kind == .directory else { return try removeFile(name) }
        // Mounted content belongs to somebody else.
        guard try !isMountPoint(name) else { throw SystemError("unlink", .resourceBusy, path: path.appending(name)) }
        let inside = try directory(name)
        // Even its owner can't empty a directory without write permission.
        if found.permissions & 0o300 != 0o300, found.owner == geteuid() {
            try inside.setPermissions(found.permissions | 0o700)
        }
        for child in try inside.names() { try inside.removeTree(child) }
        try removeDirectory(name)
    }

    /// Removes a directory and those in it. Throws ENOTDIR for a file, and ENOTEMPTY if there is one in it.
    package func removeDirectories(_ name: FilePath.Component) throws(SystemError) {
        let inside = try directory(name)
        for child in try inside.names() where try inside.status(child)?.kind == .directory {
            try inside.removeDirectories(child)
        }
        try removeDirectory(name)
    }

    /// Writes the directory's names to the disk with fsync(2).
    package func synchronize() throws(SystemError) { try descriptor.synchronize(path: path) }

    package func fileSystem() throws(SystemError) -> FileSystem { try FileSystem(of: descriptor, path: path) }
}

extension FilePath.Component {
    /// The directory itself, ".".
    package static let currentDirectory: FilePath.Component = "."
}
