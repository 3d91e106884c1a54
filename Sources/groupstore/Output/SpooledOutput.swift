import Glibc
import LinuxSystem
import SystemPackage

/// Output that is kept until a store was read: a slow consumer of it must not hold up a checkpoint of the store's log.
/// What exceeds a few megabytes goes to a file without a name.
final class SpooledOutput {
    private var memory: [UInt8] = []
    private var file: CInt = -1
    private static let maxMemory = 8 << 20

    deinit { if file >= 0 { close(file) } }

    /// Throws `SystemError` if the file can't be created or written.
    func append(_ bytes: [UInt8]) throws(SystemError) {
        memory += bytes
        if memory.count > Self.maxMemory { try flush() }
    }

    /// Prints everything. Throws `SystemError` if it can't be read.
    func print(_ write: (ArraySlice<UInt8>) -> Void) throws(SystemError) {
        guard file >= 0 else { return write(memory[...]) }
        try flush()
        guard lseek(file, 0, SEEK_SET) == 0 else { throw SystemError.last("lseek", path: Self.directory) }
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = read(file, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count < 0 { throw SystemError.last("read", path: Self.directory) }
            if count == 0 { return }
            write(buffer[..<count])
        }
    }

    private static var directory: FilePath { FilePath(ProcessVariables.all["TMPDIR"] ?? "/tmp") }

    private func flush() throws(SystemError) {
        if file < 0 {
            var template = Array(Self.directory.appending("groupstore-XXXXXX").string.utf8CString)
            file = mkstemp(&template)
            guard file >= 0 else { throw SystemError.last("mkstemp", path: Self.directory) }
            _ = fcntl(file, F_SETFD, FD_CLOEXEC)
            unlink(template)
        }
        var rest = memory[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw SystemError.last("write", path: Self.directory) }
            rest = rest.dropFirst(count)
        }
        memory = []
    }
}
