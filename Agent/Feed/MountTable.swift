import Glibc
import LinuxSystem

/// The kernel's list of what is mounted where: a file system that is mounted over a watched directory raises no event there,
/// but whoever waits for this file's changes is woken (proc(5), mountinfo).
final class MountTable {
    private let file: Descriptor
    var raw: CInt { file.raw }

    init() throws(SystemError) { file = try Descriptor(opening: "/proc/self/mountinfo", flags: O_RDONLY) }
}
