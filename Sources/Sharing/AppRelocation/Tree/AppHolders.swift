import Glibc
import LinuxSystem
import SystemPackage

/// The processes that have a file of a directory open, as far as this process can see them.
enum AppHolders {
    /// Returns the processes with a descriptor of a file on this device with one of the inodes, or of a file whose path
    /// begins with the directory's: on an overlay, a file's device is not that of its directory.
    static func find(device: UInt64, inodes: Set<UInt64>, under root: FilePath) -> [FileHolder] {
        guard let proc = try? Directory("/proc"), let names = try? proc.names() else { return [] }
        let prefix = root.bytes + [UInt8(ascii: "/")]
        let own = getpid()
        return names.compactMap { Int32($0.string) }.filter { pid in
            pid != own
                && hasOpen(pid) { status, target in
                    guard status.kind == .regular else { return false }
                    return (status.identity.device == device && inodes.contains(status.identity.inode))
                        || target().starts(with: prefix)
                }
        }.sorted().compactMap(FileHolder.init(process:))
    }

    private static func hasOpen(_ pid: Int32, _ isWanted: (FileStatus, () -> [UInt8]) -> Bool) -> Bool {
        guard let directory = try? Directory(FilePath("/proc/\(pid)/fd")), let names = try? directory.names() else {
            return false
        }
        return names.contains { name in
            var found = stat()
            guard name.withPlatformString({ fstatat(directory.raw, $0, &found, 0) }) == 0 else { return false }
            return isWanted(FileStatus(found)) { (try? directory.linkTarget(name))?.bytes ?? [] }
        }
    }
}
