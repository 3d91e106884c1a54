import CLinux
import Glibc
import SystemPackage

/// The kernel's view of processes, proc(5). A bare chroot, a sandbox or an installer may lack it.
package enum ProcFileSystem {
    /// True if this process finds itself in `/proc`.
    package static var isMounted: Bool { access("/proc/self/fd", F_OK) == 0 }

    /// Throws `ProcMissing` if `/proc` isn't mounted.
    package static func require() throws(ProcMissing) {
        guard isMounted else { throw ProcMissing() }
    }

    /// The numbers of all processes, in ascending order; nil if `/proc` can't be read.
    package static var processes: [Int32]? {
        var found: [Int32] = []
        let isRead: Void? = try? Directory("/proc").forEachEntry { name, _, _ in
            if let digit = name.first, (0x30...0x39).contains(digit),
                let number = Int32(String(decoding: name, as: UTF8.self))
            {
                found.append(number)
            }
        }
        return isRead == nil ? nil : found.sorted()
    }
}

/// The error of work that needs `/proc` where it isn't mounted.
package struct ProcMissing: ActionableError, Equatable {
    package init() {}

    package var errorCode: String { "no_proc" }
    package var errorPath: FilePath? { "/proc" }
    package var message: String {
        "/proc isn't mounted: the processes that have a store open, mount points, and files that are opened through a "
            + "descriptor can't be found"
    }
    package var remedy: String { "mount -t proc proc /proc" }
}

/// The arguments that the kernel passed to `main`. Swift's `CommandLine` reads them from `/proc/self/cmdline`, and has
/// none where that is missing.
package enum ProgramArguments {
    /// The arguments, the program's name first, with their original bytes.
    package static let bytes: [[UInt8]] = {
        var found: [[UInt8]] = []
        var next = gs_arguments()
        while let start = next?.pointee {
            found.append(Array(UnsafeRawBufferPointer(start: start, count: strlen(start))))
            next = next?.advanced(by: 1)
        }
        return found
    }()

    /// The arguments without the program's name. Bytes that aren't UTF-8 are repaired.
    package static var words: [String] { bytes.dropFirst().map { String(decoding: $0, as: UTF8.self) } }
}

/// Reads files of `/proc`.
package enum ProcFile {
    /// Returns at most `limit` bytes of the file as text, or nil if it can't be read.
    package static func text(_ path: FilePath, limit: Int = 4096) -> String? {
        guard let name = path.lastComponent, let directory = try? Directory(path.removingLastComponent()),
            let bytes = try? DurableFile.read(name, in: directory, limit: limit)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }

    package static func integer(_ path: FilePath) -> Int? {
        text(path).flatMap { Int($0.prefix { $0 != "\n" }) }
    }
}
