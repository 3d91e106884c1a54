import Glibc
import SystemPackage

/// The identity of a process. It distinguishes processes with the same number: later ones, those after a reboot, and
/// those in another PID namespace.
package struct ProcessIdentity: Codable, Hashable, Sendable {
    package var pid: Int32
    package var program: String
    /// Clock ticks from boot to the process's start (field 22 of proc(5), `/proc/PID/stat`).
    package var started: UInt64
    /// `/proc/sys/kernel/random/boot_id`, or empty if it can't be read.
    package var boot: String
    /// The inode of `/proc/PID/ns/pid`, which identifies the PID namespace, or 0 if it can't be read.
    package var namespace: UInt64

    /// The identity of this process.
    package static let current = ProcessIdentity(
        pid: getpid(), program: FileHolder.program(of: getpid()), started: startTime(of: "self"),
        boot: text("/proc/sys/kernel/random/boot_id"),
        namespace: FileStatus(following: "/proc/self/ns/pid")?.identity.inode ?? 0)

    /// True if the number stands for the same process here.
    package var isVisible: Bool {
        namespace == ProcessIdentity.current.namespace && boot == ProcessIdentity.current.boot
    }

    /// True if the process still runs. False for one of another PID namespace, which can't be seen from here. The boot
    /// isn't compared: a reboot empties the place where the identity is kept, and some containers show services another
    /// `boot_id` than themselves.
    package var isRunningInThisBoot: Bool {
        namespace == ProcessIdentity.current.namespace && started != 0 && Self.startTime(of: "\(pid)") == started
    }

    /// The process as far as it can be named from here.
    package var holder: FileHolder { FileHolder(pid: pid, program: program, isElsewhere: !isVisible) }

    private static func startTime(of pid: String) -> UInt64 {
        let fields = statistics(of: pid)
        return fields.count > 19 ? UInt64(fields[19]) ?? 0 : 0
    }

    /// Returns false if the process has ended or is ending: it gives up its memory before its descriptors. Its first
    /// thread may have ended before the others.
    static func hasMemory(_ pid: Int32) -> Bool {
        guard let threads = try? Directory(FilePath("/proc/\(pid)/task")).names() else { return false }
        return threads.contains { thread in
            let fields = statistics(of: "\(pid)/task/\(thread.string)")
            return fields.count > 20 && fields[20] != "0"
        }
    }

    /// Returns the process's parent, or nil if the process has ended.
    package static func parent(of pid: Int32) -> Int32? {
        let fields = statistics(of: "\(pid)")
        return fields.count > 1 ? Int32(fields[1]) : nil
    }

    /// Returns the fields of `/proc/PID/stat` from the state, the third, on.
    private static func statistics(of pid: String) -> [Substring] {
        // The program's name, in parentheses, may itself contain spaces and parentheses.
        let line = text(FilePath("/proc/\(pid)/stat"))
        guard let end = line.lastIndex(of: ")") else { return [] }
        return line[line.index(after: end)...].split(separator: " ")
    }

    private static func text(_ path: FilePath) -> String {
        guard let descriptor = try? Descriptor(opening: path, flags: O_RDONLY),
            let bytes = try? descriptor.read(count: 4096, at: 0)
        else { return "" }
        return String(decoding: bytes.last == 0x0A ? bytes.dropLast() : bytes[...], as: UTF8.self)
    }
}
