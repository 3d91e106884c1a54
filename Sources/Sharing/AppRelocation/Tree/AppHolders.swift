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

    /// Returns the processes one of whose files or directories is such a one. One that has ended since it was seen has
    /// none.
    private static func settled(where condition: (FileStatus, HeldFile.Link) -> Bool) -> [FileHolder] {
        let own = FileStatus(following: "/proc/self/exe")?.identity
        var children = HoldingChildren()
        for _ in 0..<200 {
            let found = FileHolder.of(inDirectories: true, where: condition)
            let parents = found.map { ProcessIdentity.parent(of: $0.pid) }
            let started = zip(found, parents).filter { $1 == getpid() }.map(\.0.pid)
            let forks = started.filter { FileStatus(following: FilePath("/proc/\($0)/exe"))?.identity == own }
            if let counted = children.counted(of: Set(started), stillForks: Set(forks)) {
                return zip(found, parents)
                    .filter { holder, parent in parent != nil && (parent != getpid() || counted.contains(holder.pid)) }
                    .map(\.0)
            }
            pause(.milliseconds(1))
        }
        return FileHolder.of(inDirectories: true, where: condition)
    }
}

/// The processes that this one has started, among those that hold a file, in one look after another.
///
/// Such a process has all descriptors of this one until it runs its own program. So it counts if it still has the file
/// after that, or if it goes on without a program of its own. One that was started after the first look came too late,
/// as any other program that opens the file then: a process whose threads start others all the time would never find
/// the file closed.
struct HoldingChildren {
    private var running: Set<Int32> = []
    private var first: Set<Int32>?

    /// Returns those that count; nil if another look is needed.
    ///
    /// - Parameters:
    ///   - found: The processes that held the file when it was looked at.
    ///   - forks: Those of them that had not begun their own program shortly after that.
    mutating func counted(of found: Set<Int32>, stillForks forks: Set<Int32>) -> Set<Int32>? {
        let first = self.first ?? forks
        self.first = first
        let begun = found.subtracting(running).subtracting(forks)
        running.formUnion(begun)
        return begun.isEmpty && forks.isDisjoint(with: first) ? found.intersection(running) : nil
    }
}
