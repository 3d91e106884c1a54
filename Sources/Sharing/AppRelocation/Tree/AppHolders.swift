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
        return FileHolder.of(inDirectories: true) { status, link in
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
        FileHolder.of(inDirectories: true) { status, _ in
            status.kind == .directory && status.identity.device == device
                && survey.directories.contains(status.identity.inode)
        }
    }
}
