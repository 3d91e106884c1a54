import LinuxSystem
import SystemPackage

/// The processes that have a file of a directory open, as far as this process can see them.
enum AppHolders {
    /// Returns the processes with a descriptor of a file on this device with one of the inodes, or of a file whose path
    /// begins with the directory's: on an overlay, a file's device is not that of its directory.
    static func find(device: UInt64, inodes: Set<UInt64>, under root: FilePath) -> [FileHolder] {
        let prefix = root.bytes + [UInt8(ascii: "/")]
        return FileHolder.of { status, link in
            status.kind == .regular
                && (status.identity.device == device && inodes.contains(status.identity.inode)
                    || link.begins(with: prefix))
        }
    }
}
