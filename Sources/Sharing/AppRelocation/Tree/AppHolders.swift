import Glibc
import LinuxSystem
import SystemPackage

/// The processes that use a directory, as far as this process can see them.
enum AppHolders {
    /// Returns the processes with a file of the directory open, or a directory in it or itself, and those that work in
    /// it: a program would go on there after the move. A file or directory counts that is on this device with an inode
    /// of the survey, or whose path begins with the directory's: on an overlay, a file's device is not that of its
    /// directory.
    static func find(device: UInt64, _ survey: AppSurvey, under root: FilePath) -> [FileHolder] {
        let prefix = root.bytes + [UInt8(ascii: "/")]
        return settled { status, link in
            let inodes: Set<UInt64>
            switch status.kind {
            case .regular: inodes = survey.inodes
            case .directory: inodes = survey.directories
            case .symbolicLink, .other: return false
            }
            return status.identity.device == device && inodes.contains(status.identity.inode)
                || link.begins(with: prefix)
        }
    }

    /// Returns the processes that have a directory of the survey open or work in it.
    static func find(device: UInt64, inDirectoriesOf survey: AppSurvey) -> [FileHolder] {
        settled { status, _ in
            status.kind == .directory && status.identity.device == device
                && survey.directories.contains(status.identity.inode)
        }
    }

    /// Returns the processes one of whose files or directories is such a one.
    ///
    /// A process that this one starts has all of its descriptors until it runs its own program. So it counts if it has
    /// one after that. One that has ended since it was seen has none.
    private static func settled(where condition: (FileStatus, HeldFile.Link) -> Bool) -> [FileHolder] {
        let own = FileStatus(following: "/proc/self/exe")?.identity
        var running: Set<Int32> = []
        for _ in 0..<200 {
            let found = FileHolder.of(inDirectories: true, where: condition)
            let parents = found.map { ProcessIdentity.parent(of: $0.pid) }
            let started = zip(found, parents).filter { $1 == getpid() }.map(\.0.pid)
            if started.allSatisfy(running.contains) { return zip(found, parents).filter { $1 != nil }.map(\.0) }
            running.formUnion(started.filter { FileStatus(following: FilePath("/proc/\($0)/exe"))?.identity != own })
            pause(.milliseconds(1))
        }
        return FileHolder.of(inDirectories: true, where: condition)
    }
}
