import CLinux
import Glibc
import SystemPackage

/// A directory for one test. It is removed with the last reference.
package final class TemporaryDirectory: Sendable {
    package let path: FilePath

    /// Creates a directory under `$TMPDIR` or `/tmp`, or under `parent`, for example `/dev/shm` for another file
    /// system.
    package init(in parent: FilePath? = nil) throws {
        let base = parent ?? FilePath(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")
        var template = base.appending("groupstore-test-XXXXXX").withPlatformString { pointer in
            Array(UnsafeBufferPointer(start: pointer, count: strlen(pointer) + 1))
        }
        guard mkdtemp(&template) != nil else { throw Errno(rawValue: errno) }
        path = FilePath(String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }

    deinit {
        // Not with rm(1), which would be started thousands of times.
        path.withPlatformString { Self.remove($0, in: AT_FDCWD) }
    }

    /// Removes a file, or a directory with its content. The names inside may be any bytes.
    private static func remove(_ name: UnsafePointer<CChar>, in parent: CInt) {
        guard unlinkat(parent, name, 0) != 0, errno == EISDIR else { return }
        let raw = gs_openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0)
        guard raw >= 0, let stream = fdopendir(raw) else { return }
        while let entry = readdir(stream) {
            withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { child in
                    let isDots = strcmp(child, ".") == 0 || strcmp(child, "..") == 0
                    if !isDots { remove(child, in: raw) }
                }
            }
        }
        closedir(stream)
        unlinkat(parent, name, AT_REMOVEDIR)
    }
}
