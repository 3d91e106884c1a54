import Glibc
import SystemPackage

/// Output that is kept until a store was read: a slow consumer of it must not hold up a checkpoint of the store's log.
/// What exceeds a few megabytes goes to a file without a name.
package final class SpooledOutput {
    private var memory: [UInt8] = []
    private var file: CInt = -1
    private static let maxMemory = 8 << 20

    package init() {}

    deinit { if file >= 0 { close(file) } }

    /// Throws `SystemError` if the file can't be created or written.
    package func append(_ bytes: some Collection<UInt8>) throws(SystemError) {
        memory += bytes
        if memory.count > Self.maxMemory { try flush() }
    }

    /// Passes everything to `write`, in pieces. Throws `SystemError` if it can't be read.
    package func print(_ write: (ArraySlice<UInt8>) -> Void) throws(SystemError) {
        var failure: SystemError?
        do {
            try forEachPiece { write($0) }
        } catch {
            failure = error as? SystemError
        }
        if let failure { throw failure }
    }

    /// Passes everything to `body`, in pieces. Throws `SystemError` if it can't be read, and what `body` throws.
    package func forEachPiece(_ body: (ArraySlice<UInt8>) throws -> Void) throws {
        guard file >= 0 else { return try body(memory[...]) }
        try flush()
        var buffer = [UInt8](repeating: 0, count: 1 << 18)
        var position = 0
        while true {
            let count = try retrying("read", path: Self.directory) {
                pread(file, &buffer, buffer.count, off_t(position))
            }
            if count == 0 { return }
            position += count
            try body(buffer[..<count])
        }
    }

    private static var directory: FilePath { ScratchDirectory.place }

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
            let count = try retrying("write", path: Self.directory) {
                rest.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            }
            guard count > 0 else { throw SystemError("write", .ioError, path: Self.directory) }
            rest = rest.dropFirst(count)
        }
        memory = []
    }
}
