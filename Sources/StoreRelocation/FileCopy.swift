import CLinux
import Dispatch
import Glibc
import LinuxSystem
import Synchronization
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
        /// Of what was written, the patch included.
        let hash: String
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

    private static let chunk = 1 << 20

    let source: FilePath
    let destination: Directory
    let name: FilePath.Component
    let patch: Patch?
    /// Told of the bytes done, a chunk at a time.
    let progress: (Int64) -> Void

    private var path: FilePath { destination.path.appending(name) }

    /// Copies what `descriptor` has, with mode, owner and times, to a new file `name`.
    func run(from descriptor: borrowing Descriptor) throws -> Result {
        let before = try descriptor.status(path: source)
        let target = try destination.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let isReflink = gs_reflink(target.raw, descriptor.raw) == 0
        let hash =
            isReflink
            ? try hash(of: target, patching: true, size: before.size)
            : try copyAndVerify(from: descriptor.raw, to: target.raw, size: before.size)
        try keepAttributes(before, on: target)
        // Last, because a list's mask is the mode's group bits.
        try ExtendedAttributes.copy(from: descriptor.raw, to: target.raw, path: path)
        try target.synchronize(path: path)
        return Result(
            method: isReflink ? .reflink : .copy, hash: hash, bytes: before.size,
            identity: try target.status(path: path).identity)
    }

    /// A reflink shares its blocks with the source, so there is nothing to compare: it is patched and hashed.
    private func hash(of target: borrowing Descriptor, patching: Bool, size: Int64) throws -> String {
        if let patch, Int64(patch.offset + patch.bytes.count) <= size {
            try target.write(patch.bytes, at: Int64(patch.offset), path: path)
        }
        var hash = ContentHash()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 4096)
        defer { buffer.deallocate() }
        var offset: Int64 = 0
        while true {
            let count = try target.read(into: buffer, at: offset, path: path)
            if count == 0 { return hash.text() }
            hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
            progress(offset)
        }
    }

    /// One thread reads, hashes and writes; a second one reads back what was written, right behind it. Both hashes
    /// must be equal.
    private func copyAndVerify(from source: CInt, to target: CInt, size: Int64) throws -> String {
        let verification = ReadBack(descriptor: target, path: path, chunk: Self.chunk)
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 4096)
        defer { buffer.deallocate() }
        var hash = ContentHash()
        var offset: Int64 = 0
        do {
            while true {
                let count = try Self.read(source, into: buffer, at: offset, path: self.source)
                if count == 0 { break }
                if offset == 0, let patch, patch.offset + patch.bytes.count <= count {
                    buffer[patch.offset..<patch.offset + patch.bytes.count].copyBytes(from: patch.bytes)
                }
                let filled = UnsafeRawBufferPointer(rebasing: buffer[..<count])
                hash.update(filled)
                try Self.write(target, filled, at: offset, path: path)
                gs_begin_writeback(target, off_t(offset), off_t(count))
                offset += Int64(count)
                verification.advance(to: offset)
                progress(offset)
            }
        } catch {
            verification.cancel()
            throw error
        }
        let written = hash.text()
        guard try verification.finish() == written else { throw Mismatch(path: path) }
        return written
    }

    private static func read(
        _ raw: CInt, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64, path: FilePath
    ) throws(SystemError) -> Int {
        try retrying("pread", path: path) { pread(raw, buffer.baseAddress, buffer.count, off_t(offset)) }
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

    private func keepAttributes(_ status: FileStatus, on target: borrowing Descriptor) throws(SystemError) {
        let raw = target.raw
        try keepOwner(status, of: raw, path: path)
        try retrying("fchmod", path: path) { fchmod(raw, status.permissions) }
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

/// Reads a file back behind its writer, on a thread of its own, and hashes it.
private final class ReadBack: Sendable {
    private struct State {
        var written: Int64 = 0
        var isComplete = false
        var isCancelled = false
    }

    private let state = Mutex(State())
    private let result = Mutex<Result<String, SystemError>?>(nil)
    private let changed = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)
    private let descriptor: CInt
    private let path: FilePath
    private let chunk: Int

    /// The descriptor must stay open until `finish` or `cancel` has returned.
    init(descriptor: CInt, path: FilePath, chunk: Int) {
        self.descriptor = descriptor
        self.path = path
        self.chunk = chunk
        DispatchQueue.global().async { self.run() }
    }

    func advance(to offset: Int64) {
        state.withLock { $0.written = offset }
        changed.signal()
    }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        changed.signal()
        finished.wait()
    }

    /// The hash of all that was written.
    func finish() throws -> String {
        state.withLock { $0.isComplete = true }
        changed.signal()
        finished.wait()
        return try result.withLock { try $0?.get() ?? "" }
    }

    private func run() {
        let outcome: Result<String, SystemError>
        do throws(SystemError) { outcome = .success(try hash()) } catch { outcome = .failure(error) }
        result.withLock { $0 = outcome }
        finished.signal()
    }

    private func hash() throws(SystemError) -> String {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: chunk, alignment: 4096)
        defer { buffer.deallocate() }
        var hash = ContentHash()
        var offset: Int64 = 0
        while true {
            let now = state.withLock { $0 }
            if now.isCancelled { return "" }
            if offset == now.written {
                if now.isComplete { return hash.text() }
                changed.wait()
                continue
            }
            let wanted = Int(min(Int64(chunk), now.written - offset))
            let count = try retrying("pread", path: path) {
                pread(descriptor, buffer.baseAddress, wanted, off_t(offset))
            }
            // The writer said that the bytes are there: an early end is content that got lost.
            if count == 0 { return "" }
            hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
        }
    }
}
