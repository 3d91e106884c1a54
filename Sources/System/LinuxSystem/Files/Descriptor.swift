import CLinux
import Glibc
import SystemPackage

/// A file descriptor with one owner. It is closed when the value is destroyed.
package struct Descriptor: ~Copyable, Sendable {
    package let raw: CInt

    package init(owning raw: CInt) { self.raw = raw }

    deinit { _ = Glibc.close(raw) }

    /// Opens `path` close-on-exec, and retries when a signal interrupts the call.
    package init(
        opening path: FilePath, flags: CInt, mode: mode_t = 0
    ) throws(SystemError) {
        raw = try retrying("open", path: path) {
            path.withPlatformString { gs_openat(AT_FDCWD, $0, flags, mode) }
        }
    }

    /// Closes the descriptor in another process. Freeing the blocks of a large file without a name may take the disk a
    /// second, and this process does not wait for that.
    package consuming func closeElsewhere() {
        let raw = release()
        if gs_close_elsewhere(raw) != 0 { _ = Glibc.close(raw) }
    }

    /// True if this process has the file open, other than by O_PATH. Without /proc that is unknown and assumed.
    package static func isOpen(_ file: FileIdentity) -> Bool {
        guard let numbers = try? Directory("/proc/self/fd").names() else { return true }
        return numbers.contains { name in
            guard let raw = CInt(name.string) else { return false }
            var found = stat()
            guard fstat(raw, &found) == 0, FileStatus(found).identity == file else { return false }
            return fcntl(raw, F_GETFL) & gs_o_path == 0
        }
    }

    /// Gives up ownership. The caller must close the returned descriptor.
    package consuming func release() -> CInt {
        let value = raw
        discard self
        return value
    }
}

extension Descriptor {
    /// The file's creation time, in nanoseconds since 1970; nil if the file system doesn't record it.
    package var birth: Int64? {
        let found = gs_descriptor_birth_time(raw)
        return found < 0 ? nil : found
    }

    package func status(path: FilePath? = nil) throws(SystemError) -> FileStatus {
        var result = stat()
        try retrying("fstat", path: path) { fstat(raw, &result) }
        return FileStatus(result)
    }

    /// Reads at most `buffer.count` bytes at `offset`. Returns fewer only at the end of the file.
    package func read(
        into buffer: UnsafeMutableRawBufferPointer, at offset: Int64, path: FilePath? = nil
    ) throws(SystemError) -> Int {
        var done = 0
        while done < buffer.count {
            let count = try retrying("pread", path: path) {
                pread(raw, buffer.baseAddress?.advanced(by: done), buffer.count - done, off_t(offset) + done)
            }
            if count == 0 { break }
            done += count
        }
        return done
    }

    package func read(count: Int, at offset: Int64, path: FilePath? = nil) throws(SystemError) -> [UInt8] {
        var failure: SystemError?
        // Not filled with zeros first: most files are far shorter than `count`.
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, length in
            do throws(SystemError) {
                length = try read(into: UnsafeMutableRawBufferPointer(buffer), at: offset, path: path)
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
        return bytes
    }

    package func write(
        _ buffer: UnsafeRawBufferPointer, at offset: Int64, path: FilePath? = nil
    ) throws(SystemError) {
        var done = 0
        while done < buffer.count {
            done += try retrying("pwrite", path: path) {
                pwrite(raw, buffer.baseAddress?.advanced(by: done), buffer.count - done, off_t(offset) + done)
            }
        }
    }

    package func write(_ bytes: [UInt8], at offset: Int64, path: FilePath? = nil) throws(SystemError) {
        var failure: SystemError?
        bytes.withUnsafeBytes { buffer in
            do throws(SystemError) { try write(buffer, at: offset, path: path) } catch { failure = error }
        }
        if let failure { throw failure }
    }

    /// Writes content and metadata to the disk with fsync(2).
    package func synchronize(path: FilePath? = nil) throws(SystemError) {
        try retrying("fsync", path: path) { fsync(raw) }
    }

    /// Makes the kernel begin to write that part of the content to the disk, so that a later sync has little left to
    /// do. Only a hint: nothing waits for it, and nothing fails with it.
    package func beginWriteback(at offset: Int64, count: Int64) {
        gs_begin_writeback(raw, off_t(offset), off_t(count))
    }

    package func truncate(to length: Int64, path: FilePath? = nil) throws(SystemError) {
        try retrying("ftruncate", path: path) { ftruncate(raw, off_t(length)) }
    }
}
