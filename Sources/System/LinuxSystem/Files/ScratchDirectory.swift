import Glibc
import SystemPackage

/// A temporary directory that is removed with the last reference to it.
package final class ScratchDirectory {
    package let path: FilePath

    /// The directory of temporary files: `$TMPDIR` or `/tmp`.
    package static var place: FilePath { FilePath(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp") }

    /// Throws `SystemError`.
    package init() throws(SystemError) {
        let base = Self.place
        var template = base.appending("groupstore-XXXXXX").withPlatformString { pointer in
            Array(UnsafeBufferPointer(start: pointer, count: strlen(pointer) + 1))
        }
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", path: base) }
        path = FilePath(platformString: template)
    }

    deinit {
        guard let name = path.lastComponent else { return }
        try? Directory(path.removingLastComponent()).removeTree(name)
    }
}
