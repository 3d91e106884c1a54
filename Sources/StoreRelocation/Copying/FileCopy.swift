import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Copies one file to another file system, syncs it, and verifies it by reading it back.
struct FileCopy {
    /// Bytes to change in the copy: a database's file format version.
    struct Patch {
        let offset: Int
        let bytes: [UInt8]
    }

    struct Result {
        let method: CopyMethod
        /// Hash of what was written, including the patch. Nil for a reflink: it shares its blocks with the source, so
        /// there is nothing to compare, and it takes the same time for any size.
        let hash: String?
        let bytes: Int64
        let identity: FileIdentity
    }

    enum CopyMethod {
        case reflink, copy
    }

    /// The bytes read back differ from the bytes written.
    struct Mismatch: Error {
        let path: FilePath
    }

    /// Number of bytes after which writeback starts, so that the final sync has little left to write.
    private static let writeback: Int64 = 4 << 20

    let source: FilePath
    let destination: Directory
    let name: FilePath.Component
    let patch: Patch?
    /// Polled before each chunk.
    let isCancelled: () -> Bool
    /// Receives the number of bytes copied after each chunk.
    let progress: (Int64) -> Void

    private var path: FilePath { destination.path.appending(name) }

    /// Copies the content of `descriptor`, with mode, owner and times, to a new file `name`.
    func run(from descriptor: borrowing Descriptor) throws -> Result {
        let before = try descriptor.status(path: source)
        let target = try destination.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let isReflink = gs_reflink(target.raw, descriptor.raw) == 0
        var hash: String?
        if isReflink {
            try patch.map { try apply($0, to: target, size: before.size) }
            progress(before.size)
        } else {
            hash = try copyAndVerify(from: descriptor.raw, to: target.raw)
        }
        try keepAttributes(before, of: descriptor.raw, on: target)
        try target.synchronize(path: path)
        return Result(
            method: isReflink ? .reflink : .copy, hash: hash, bytes: before.size,
            identity: try target.status(path: path).identity)
    }

    private func apply(_ patch: Patch, to target: borrowing Descriptor, size: Int64) throws(SystemError) {
        guard Int64(patch.offset + patch.bytes.count) <= size else { return }
        try target.write(patch.bytes, at: Int64(patch.offset), path: path)
    }

    /// Copies in chunks; each is read back right after it was written, compared and hashed. Returns the hash.
    private func copyAndVerify(from source: CInt, to target: CInt) throws -> String {
        let verifier = try CopyVerifier(descriptor: target, path: path)
        var offset: Int64 = 0
        var flushed: Int64 = 0
        do {
            while true {
                if isCancelled() { throw RelocationFailure.cancelled(self.source) }
                let buffer = try verifier.nextBuffer()
                let count = try read(buffer, source, at: offset)
                if count == 0 { break }
                try Self.write(target, UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: offset, path: path)
                try verifier.didWrite(count)
                offset += Int64(count)
                if offset - flushed >= Self.writeback {
                    gs_begin_writeback(target, off_t(flushed), off_t(offset - flushed))
                    flushed = offset
                }
                progress(offset)
            }
        } catch {
            verifier.cancel()
            throw error
        }
        return try verifier.finish()
    }

    /// Reads the next chunk and applies the patch to it. Returns 0 at the end.
    private func read(
        _ buffer: UnsafeMutableRawBufferPointer, _ raw: CInt, at offset: Int64
    ) throws(SystemError) -> Int {
        let count = try retrying("pread", path: source) { pread(raw, buffer.baseAddress, buffer.count, off_t(offset)) }
        if offset == 0, let patch, patch.offset + patch.bytes.count <= count {
            buffer[patch.offset..<patch.offset + patch.bytes.count].copyBytes(from: patch.bytes)
        }
        return count
    }

    private static func write(
        _ raw: CInt, _ bytes: UnsafeRawBufferPointer, at offset: Int64, path: FilePath
    ) throws(SystemError) {
        var done = 0
        while done < bytes.count {
            done += try retrying("pwrite", path: path) {
                pwrite(raw, bytes.baseAddress?.advanced(by: done), bytes.count - done, off_t(offset) + done)
            }
        }
    }

    private func keepAttributes(
        _ status: FileStatus, of source: CInt, on target: borrowing Descriptor
    ) throws(SystemError) {
        let raw = target.raw
        try ExtendedAttributes.removeInheritedLists(of: raw, path: path)
        try keepOwner(status, of: raw, path: path)
        try ExtendedAttributes.copy(from: source, to: raw, mode: status.permissions, path: path)
        let modified = timespec(
            tv_sec: Int(status.modified / 1_000_000_000), tv_nsec: Int(status.modified % 1_000_000_000))
        var times = (modified, modified)
        try retrying("futimens", path: path) {
            withUnsafePointer(to: &times) { pointer in
                pointer.withMemoryRebound(to: timespec.self, capacity: 2) { futimens(raw, $0) }
            }
        }
    }
}

/// Copies owner and group as far as this process may. Without root, the file has this user as owner already, and only a
/// group of this user can be set.
func keepOwner(_ status: FileStatus, of raw: CInt, path: FilePath) throws(SystemError) {
    let owner = geteuid() == 0 ? status.owner : uid_t.max
    do {
        try retrying("fchown", path: path) { fchown(raw, owner, status.group) }
    } catch {
        guard error.errno == .notPermitted, geteuid() != 0 else { throw error }
    }
}
