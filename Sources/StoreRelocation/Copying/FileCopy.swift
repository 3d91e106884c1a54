import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Copies one file to another file system, synced, and verified by reading back what was written.
struct FileCopy {
    /// A few bytes that are to be others in the copy: a database's file format version.
    struct Patch {
        let offset: Int
        let bytes: [UInt8]
    }

    struct Result {
        let method: CopyMethod
        /// Of what was written, the patch included. Nil for a reflink: it shares its blocks with the source, so that
        /// there is nothing to compare, and takes the same time for any size.
        let hash: String?
        let bytes: Int64
        let identity: FileIdentity
    }

    enum CopyMethod {
        case reflink, copy
    }

    /// What was read back is not what was written.
    struct Mismatch: Error {
        let path: FilePath
    }

    /// Bytes after which the disk is set to work, so that little is left for the sync.
    private static let writeback: Int64 = 4 << 20

    let source: FilePath
    let destination: Directory
    let name: FilePath.Component
    let patch: Patch?
    /// Asked before each chunk.
    let isCancelled: () -> Bool
    /// Told of the bytes done, a chunk at a time.
    let progress: (Int64) -> Void

    private var path: FilePath { destination.path.appending(name) }

    /// Copies what `descriptor` has, with mode, owner and times, to a new file `name`.
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

    /// What was written is read back right behind it, compared and hashed.
    private func copyAndVerify(from source: CInt, to target: CInt) throws -> String {
        let verification = try CopyVerifier(descriptor: target, path: path)
        var offset: Int64 = 0
        var isOnItsWay: Int64 = 0
        do {
            while true {
                if isCancelled() { throw RelocationFailure.cancelled(self.source) }
                let buffer = try verification.slot()
                let count = try read(buffer, source, at: offset)
                if count == 0 { break }
                try Self.write(target, UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: offset, path: path)
                try verification.wrote(count)
                offset += Int64(count)
                if offset - isOnItsWay >= Self.writeback {
                    gs_begin_writeback(target, off_t(isOnItsWay), off_t(offset - isOnItsWay))
                    isOnItsWay = offset
                }
                progress(offset)
            }
        } catch {
            verification.cancel()
            throw error
        }
        return try verification.finish()
    }

    /// What comes next, the patch in it; 0 at the end.
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

/// Takes over owner and group, as far as this process may: who isn't root owns the file anyway, and gives it only to a
/// group of their own.
func keepOwner(_ status: FileStatus, of raw: CInt, path: FilePath) throws(SystemError) {
    let owner = geteuid() == 0 ? status.owner : uid_t.max
    do {
        try retrying("fchown", path: path) { fchown(raw, owner, status.group) }
    } catch {
        guard error.errno == .notPermitted, geteuid() != 0 else { throw error }
    }
}
