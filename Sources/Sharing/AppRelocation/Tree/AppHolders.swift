import Glibc
import LinuxSystem
import SystemPackage

/// The processes that have a file of a directory open, as far as this process can see them.
enum AppHolders {
    /// Returns the processes with a descriptor of a file on this device with one of the inodes, or of a file whose path
    /// begins with the directory's: on an overlay, a file's device is not that of its directory.
    static func find(device: UInt64, inodes: Set<UInt64>, under root: FilePath) -> [FileHolder] {
        guard let proc = try? Directory("/proc") else { return [] }
        let prefix = root.bytes + [UInt8(ascii: "/")]
        let own = getpid()
        var processes: [Int32] = []
        try? proc.forEachEntry { name, _, _ in
            if let pid = Int32(String(decoding: name, as: UTF8.self)) { processes.append(pid) }
        }
        return processes.filter { pid in
            pid != own
                && hasOpen(pid) { status, directory, name in
                    guard status.kind == .regular else { return false }
                    return (status.identity.device == device && inodes.contains(status.identity.inode))
                        || link(name, in: directory, beginsWith: prefix)
                }
        }.sorted().compactMap(FileHolder.init(process:))
    }

    private static func hasOpen(
        _ pid: Int32, _ isWanted: (FileStatus, Directory, UnsafePointer<CChar>) -> Bool
    ) -> Bool {
        guard let directory = try? Directory(FilePath("/proc/\(pid)/fd")) else { return false }
        var isFound = false
        // There may be many: no path is made of any of them.
        try? directory.forEachEntry { name, _, _ in
            name.withMemoryRebound(to: CChar.self) { characters in
                var found = stat()
                guard !isFound, let name = characters.baseAddress, fstatat(directory.raw, name, &found, 0) == 0 else {
                    return
                }
                isFound = isWanted(FileStatus(found), directory, name)
            }
        }
        return isFound
    }

    private static func link(
        _ name: UnsafePointer<CChar>, in directory: Directory, beginsWith prefix: [UInt8]
    ) -> Bool {
        // readlinkat(2) cuts a longer target off.
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: prefix.count) { buffer in
            guard let start = buffer.baseAddress else { return false }
            return readlinkat(directory.raw, name, start, buffer.count) == buffer.count
                && memcmp(start, prefix, prefix.count) == 0
        }
    }
}
