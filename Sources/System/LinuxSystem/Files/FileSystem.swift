import CLinux
import SystemPackage

/// The properties of the file system that contains a file or directory.
package struct FileSystem: Sendable {
    /// The location of its files, which determines whether this machine's kernel sees all of their users.
    package enum Reach: Sendable {
        /// On this machine, through this kernel.
        case local
        /// Other machines may change it. Leases and inotify don't cover them.
        case network
        /// A program in user space serves it. Leases and inotify may be missing.
        case userSpace
        /// Layers over another file system. Direct users of a layer aren't visible.
        case overlay
    }

    package let name: String
    package let reach: Reach
    /// Bytes that this user can still write.
    package let available: UInt64
    /// The number of files that can still be made. Nil where there is no such limit.
    package let availableFiles: UInt64?
    package let isReadOnly: Bool

    init(of descriptor: borrowing Descriptor, path: FilePath) throws(SystemError) {
        var found = gs_filesystem()
        let raw = descriptor.raw
        try retrying("statfs", path: path) { gs_statfs(raw, &found) }
        (name, reach) = Self.known[found.type] ?? ("0x" + String(found.type, radix: 16), .local)
        available = found.available_blocks * found.block_size
        availableFiles = found.inodes == 0 ? nil : found.free_inodes
        isReadOnly = found.mount_flags & 1 != 0
    }

    /// Magic numbers of statfs(2) and linux/magic.h.
    private static let known: [UInt64: (String, Reach)] = [
        0xEF53: ("ext4", .local), 0x5846_5342: ("xfs", .local), 0x9123_683E: ("btrfs", .local),
        0x0102_1994: ("tmpfs", .local), 0x8584_58F6: ("ramfs", .local), 0xF2F5_2010: ("f2fs", .local),
        0x2FC1_2FC1: ("zfs", .local), 0xCA45_1A4E: ("bcachefs", .local), 0x4D44: ("vfat", .local),
        0x2011_BAB0: ("exfat", .local), 0x794C_7630: ("overlayfs", .overlay), 0x6969: ("nfs", .network),
        0xFF53_4D42: ("cifs", .network), 0xFE53_4D42: ("smb2", .network), 0x517B: ("smb", .network),
        0x00C3_6400: ("ceph", .network), 0x0102_1997: ("9p", .network), 0x6573_5546: ("fuse", .userSpace),
        0x6A65_6A63: ("virtiofs", .userSpace), 0x786F_4256: ("vboxsf", .userSpace),
    ]
}
