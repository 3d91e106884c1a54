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
        // The names inside may be any bytes, which rm(1) handles.
        let words: [UnsafeMutablePointer<CChar>?] = [strdup("rm"), strdup("-rf"), strdup(path.string), nil]
        defer { for word in words { free(word) } }
        var pid = pid_t()
        if posix_spawn(&pid, "/bin/rm", nil, nil, words, environ) == 0 { waitpid(pid, nil, 0) }
    }
}
