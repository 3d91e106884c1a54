import Glibc
import LinuxSystem

/// The kernel's list of mounts. A file system that is mounted over a watched directory raises no inotify event there,
/// but the kernel wakes a process that polls this file (proc(5), mountinfo).
final class MountTable {
    private let file: Descriptor
    var raw: CInt { file.raw }

    init() throws(SystemError) { file = try Descriptor(opening: "/proc/self/mountinfo", flags: O_RDONLY) }
}
