import CLinux
import Glibc
import SystemPackage

/// An open directory. Everything is done by name inside it, so that swapping a parent directory for another,
/// or for a symbolic link, between two calls changes nothing; a final symbolic link is never followed.
package final class Directory: Sendable {
    private let descriptor: Descriptor
    /// Where it was when it was opened: for messages, and for programs that only take a path.
    package let path: FilePath
    package let identity: FileIdentity

    package var raw: CInt { descriptor.raw }

    private init(_ descriptor: consuming Descriptor, path: FilePath) throws(SystemError) {
        identity = try descriptor.status(path: path).identity
        self.descriptor = descriptor
        self.path = path
    }

    /// Opens the directory, following symbolic links that may be believed: a group directory may be reached through
    /// one. Throws ELOOP for one that somebody else has made (see `PathResolution`).
    package convenience init(_ path: FilePath) throws(SystemError) {
        let found = try PathResolution(directory: path)
        try self.init(found.take(), path: path)
    }

    /// The same, known by its absolute path without links.
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

    /// The directory `name` in this one, not through a symbolic link.
    package func directory(_ name: FilePath.Component) throws(SystemError) -> Directory {
        let descriptor = try open(name, flags: O_RDONLY | O_DIRECTORY)
        return try Directory(descriptor, path: path.appending(name))
    }

    /// When the file was made, in nanoseconds since 1970; nil where the file system doesn't keep it. A new file may have
    /// the inode of one that was removed, but not its birth.
    package func birth(_ name: FilePath.Component) -> Int64? {
        let found = name.withPlatformString { gs_birth_time(raw, $0) }
        return found < 0 ? nil : found
    }

    /// Opens `name` without following a symbolic link and without waiting (for a lease's or FIFO's other end).
    package func open(
        _ name: FilePath.Component, flags: CInt, mode: mode_t = 0
    ) throws(SystemError) -> Descriptor {
        let raw = try retrying("open", path: path.appending(name)) {
            name.withPlatformString { gs_openat(self.raw, $0, flags | O_NOFOLLOW | O_NONBLOCK, mode) }
        }
        return Descriptor(owning: raw)
    }

    /// Opens a file of ours, to be written to or believed: a regular one, with no other name that might be somebody
    /// else's. EINVAL for anything that isn't a file, EMLINK for a file with a second name; nothing was changed then. One
    /// that is made has `mode`, whatever the umask: that must not shut out those whom the directory lets in.
    package func openOwn(
        _ name: FilePath.Component, flags: CInt, mode: mode_t = 0
    ) throws(SystemError) -> Descriptor {
        if flags & O_CREAT != 0, let made = try makeOwn(name, flags: flags, mode: mode) { return made }
        // Looked at first: opening a device may do something already.
        if let found = try status(name) { try Self.checkOwn(found, path.appending(name)) }
        let descriptor = try open(name, flags: flags, mode: mode)
        let found = try descriptor.status(path: path.appending(name))
        try Self.checkOwn(found, path.appending(name))
        if flags & O_CREAT != 0, found.permissions != mode { _ = fchmod(descriptor.raw, mode) }
        return descriptor
    }

    /// Nil where there is a file of that name.
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

    /// Gives a file that root has just made in here to the directory's owner and group: root must not lock them out of what
    /// is theirs. Nothing for anybody else, and where the file system has no owners.
    package func giveToOwner(_ made: borrowing Descriptor) { giveToOwner(made.raw) }

    /// The same of a directory.
    package func giveToOwner(_ made: Directory) { giveToOwner(made.raw) }

    private func giveToOwner(_ made: CInt) {
        guard geteuid() == 0, let own = try? status(), own.owner != 0 else { return }
        _ = fchown(made, own.owner, own.group)
    }

    private static func checkOwn(_ status: FileStatus, _ path: FilePath) throws(SystemError) {
        guard status.kind != .symbolicLink else { throw SystemError("open", .tooManySymbolicLinkLevels, path: path) }
        guard status.kind == .regular else { throw SystemError("open", .invalidArgument, path: path) }
        guard status.links <= 1 else { throw SystemError("open", .tooManyLinks, path: path) }
    }

    /// Nil when there is nothing by that name.
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

    /// Whether this process may write to the file, as far as permissions go. It isn't opened.
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

    /// The names inside, "." and ".." left out, in no order.
    package func names() throws(SystemError) -> [FilePath.Component] {
        let copy = try open(.currentDirectory, flags: O_RDONLY | O_DIRECTORY)
        guard let stream = fdopendir(copy.release()) else { throw .last("opendir", path: path) }
        defer { closedir(stream) }
        var found: [FilePath.Component] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw .last("readdir", path: path) }
                return found
            }
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: UInt8.self, capacity: 256) {
                    Array(UnsafeBufferPointer(start: $0, count: strlen($0)))
                }
            }
            if name != [0x2E], name != [0x2E, 0x2E], let component = FilePath.Component(bytes: name) {
                found.append(component)
            }
        }
    }

    private func strlen(_ pointer: UnsafePointer<UInt8>) -> Int {
        pointer.withMemoryRebound(to: CChar.self, capacity: 256) { Glibc.strlen($0) }
    }

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

    /// A second name for a file, symbolic links not followed.
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
        /// What stood at the new name is gone.
        case replace
        /// EEXIST when something stands at the new name.
        case refuse
        /// The two names swap what they stand for.
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

    /// Removes a file; nothing when it isn't there.
    package func removeFile(_ name: FilePath.Component) throws(SystemError) { try unlink(name, flags: 0) }

    /// Removes an empty directory; nothing when it isn't there.
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

    /// Removes `name` and, when it is a directory, all that is inside.
    package func removeTree(_ name: FilePath.Component) throws(SystemError) {
        guard let found = try status(name) else { return }
        guard found.kind == .directory else { return try removeFile(name) }
        // What is mounted there is somebody else's.
        guard try !isMountPoint(name) else { throw SystemError("unlink", .resourceBusy, path: path.appending(name)) }
        let inside = try directory(name)
        // What its owner has closed to writing can't be emptied by them either.
        if found.permissions & 0o300 != 0o300, found.owner == geteuid() {
            try inside.setPermissions(found.permissions | 0o700)
        }
        for child in try inside.names() { try inside.removeTree(child) }
        try removeDirectory(name)
    }

    /// Puts the names on the disk: fsync(2) of the directory.
    package func synchronize() throws(SystemError) { try descriptor.synchronize(path: path) }

    package func fileSystem() throws(SystemError) -> FileSystem { try FileSystem(of: descriptor, path: path) }
}

extension FilePath.Component {
    /// The directory itself, ".".
    package static var currentDirectory: FilePath.Component { "." }
}
