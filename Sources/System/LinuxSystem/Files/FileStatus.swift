import Glibc
import SystemPackage

/// A file's identity independent of its name: device and inode.
package struct FileIdentity: Hashable, Sendable, Codable {
    package var device: UInt64
    package var inode: UInt64

    package init(device: UInt64, inode: UInt64) {
        self.device = device
        self.inode = inode
    }
}

/// A file's status as returned by stat(2).
package struct FileStatus: Equatable, Sendable {
    package enum Kind: Sendable {
        case regular, directory, symbolicLink, other
    }

    package let identity: FileIdentity
    package let kind: Kind
    package let permissions: mode_t
    package let owner: uid_t
    package let group: gid_t
    package let links: UInt64
    /// The size in bytes.
    package let size: Int64
    /// The space that the file takes on the disk, in bytes.
    package let allocated: Int64
    /// The time of the last write, in nanoseconds since 1970.
    package let modified: Int64
    /// The time of the last change of content, owner, mode, links or name, in nanoseconds since 1970.
    package let changed: Int64

    package init(_ value: stat) {
        identity = FileIdentity(device: UInt64(value.st_dev), inode: UInt64(value.st_ino))
        kind =
            switch value.st_mode & S_IFMT {
            case S_IFREG: .regular
            case S_IFDIR: .directory
            case S_IFLNK: .symbolicLink
            default: .other
            }
        permissions = value.st_mode & 0o7777
        owner = value.st_uid
        group = value.st_gid
        links = UInt64(value.st_nlink)
        size = Int64(value.st_size)
        allocated = Int64(value.st_blocks) * 512
        modified = Int64(value.st_mtim.tv_sec) * 1_000_000_000 + Int64(value.st_mtim.tv_nsec)
        changed = Int64(value.st_ctim.tv_sec) * 1_000_000_000 + Int64(value.st_ctim.tv_nsec)
    }
}

extension FileStatus {
    /// The time of the last write, as system calls take it: before 1970, only the seconds are negative.
    package var modifiedTime: timespec {
        let (seconds, rest) = modified.quotientAndRemainder(dividingBy: 1_000_000_000)
        return rest < 0
            ? timespec(tv_sec: Int(seconds - 1), tv_nsec: Int(rest + 1_000_000_000))
            : timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
    }

    /// Returns the status of the file at the path, with symbolic links followed. Returns nil if it does not exist or
    /// can't be reached.
    package init?(following path: FilePath) {
        var found = stat()
        guard (try? retrying("stat", { path.withPlatformString { stat($0, &found) } })) != nil else { return nil }
        self.init(found)
    }
}

/// The resolution of file times.
package enum FileTime {
    /// The maximum distance of two writes that may have the same time.
    package static let resolution = Duration.milliseconds(10)

    /// True if a write from now on gives a file another time than this one, in nanoseconds since 1970. Before Linux
    /// 6.13 a file's times are those of the kernel's last tick, 1 to 10 ms ago (time(7)).
    package static func isSettled(_ time: Int64) -> Bool {
        var now = timespec()
        guard clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 else { return true }
        let age = Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec) - time
        // A time in the future, from another machine's clock or one that was set back, counts as settled too.
        return age.magnitude > UInt64(resolution.nanoseconds)
    }
}
