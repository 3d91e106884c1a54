import Glibc
import SystemPackage

/// A file that is neither a regular file nor a directory nor a symbolic link.
package enum SpecialFile: Equatable, Sendable {
    case fifo, socket
    /// A character or block device with its number.
    case device(isBlock: Bool, number: UInt64)
}

extension Directory {
    /// Returns what kind of special file has the name. Returns nil for any other file, and if there is none.
    package func specialFile(_ name: FilePath.Component) throws(SystemError) -> SpecialFile? {
        var found = stat()
        do {
            try retrying("stat", path: path.appending(name)) {
                name.withPlatformString { fstatat(raw, $0, &found, AT_SYMLINK_NOFOLLOW) }
            }
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw error
        }
        return switch found.st_mode & S_IFMT {
        case S_IFIFO: .fifo
        case S_IFSOCK: .socket
        case S_IFCHR: .device(isBlock: false, number: UInt64(found.st_rdev))
        case S_IFBLK: .device(isBlock: true, number: UInt64(found.st_rdev))
        default: nil
        }
    }

    /// Makes a FIFO or a device. A device needs CAP_MKNOD. Throws EINVAL for a socket, which only its server can make.
    package func make(_ file: SpecialFile, _ name: FilePath.Component) throws(SystemError) {
        let (kind, number): (mode_t, UInt64)
        switch file {
        case .fifo: (kind, number) = (S_IFIFO, 0)
        case .device(let isBlock, let device): (kind, number) = (isBlock ? S_IFBLK : S_IFCHR, device)
        case .socket: throw SystemError("mknod", .invalidArgument, path: path.appending(name))
        }
        try retrying("mknod", path: path.appending(name)) {
            name.withPlatformString { mknodat(raw, $0, kind | 0o600, dev_t(number)) }
        }
    }

    /// Gives a file another file's owner, group, permission bits and time of the last write. Follows no symbolic link,
    /// and gives one no permission bits, because it has none. Only root can give an owner; another user keeps a group
    /// that they may not give, as a copy by cp(1) does.
    package func give(_ status: FileStatus, to name: FilePath.Component) throws(SystemError) {
        let path = path.appending(name)
        do {
            try retrying("chown", path: path) {
                name.withPlatformString {
                    fchownat(raw, $0, geteuid() == 0 ? status.owner : uid_t.max, status.group, AT_SYMLINK_NOFOLLOW)
                }
            }
        } catch {
            guard error.errno == .notPermitted, geteuid() != 0 else { throw error }
        }
        if status.kind != .symbolicLink {
            try retrying("chmod", path: path) {
                name.withPlatformString { fchmodat(raw, $0, status.permissions, 0) }
            }
        }
        let times = [status.modifiedTime, status.modifiedTime]
        try retrying("utimensat", path: path) {
            name.withPlatformString { utimensat(raw, $0, times, AT_SYMLINK_NOFOLLOW) }
        }
    }

    /// Returns a symbolic link's target.
    package func linkTarget(_ name: FilePath.Component) throws(SystemError) -> FilePath {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
        let count = try retrying("readlink", path: path.appending(name)) {
            name.withPlatformString { readlinkat(raw, $0, &buffer, buffer.count - 1) }
        }
        return FilePath(bytes: buffer[..<count].map { UInt8(bitPattern: $0) }) ?? FilePath()
    }
}
