import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads a file ahead of whoever writes it elsewhere, on a thread of its own, and hashes what it gives out.
final class ReadAhead: @unchecked Sendable {
    /// Small enough to be in the processor's cache still when it is hashed and written.
    private static let chunk = 1 << 18
    private static let count = 8

    // A buffer and its place in `filled` are the reading thread's from `free.wait` to `ready.signal`, and the taker's from
    // `ready.wait` to `free.signal`. `outcome` is written before `ended.signal`.
    private let buffers: [UnsafeMutableRawBufferPointer]
    private var filled = [Result<Int, SystemError>](repeating: .success(0), count: ReadAhead.count)
    private var outcome = ""
    private var taken = 0
    private let free = DispatchSemaphore(value: 0)
    private let ready = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let isCancelled = Mutex(false)
    private let descriptor: CInt
    private let path: FilePath
    private let patch: FileCopy.Patch?

    /// The descriptor must stay open until `finish` or `cancel` has returned.
    init(descriptor: CInt, path: FilePath, patch: FileCopy.Patch?) {
        self.descriptor = descriptor
        self.path = path
        self.patch = patch
        buffers = (0..<Self.count).map { _ in .allocate(byteCount: Self.chunk, alignment: 4096) }
        for _ in buffers { free.signal() }
        DispatchQueue.global().async {
            self.run()
            self.ended.signal()
        }
    }

    deinit { for buffer in buffers { buffer.deallocate() } }

    /// The next bytes, the patch in them; valid until `release`. Nil at the end.
    func next() throws(SystemError) -> UnsafeRawBufferPointer? {
        ready.wait()
        let count = try filled[taken % Self.count].get()
        return count == 0 ? nil : UnsafeRawBufferPointer(rebasing: buffers[taken % Self.count][..<count])
    }

    func release() {
        taken += 1
        free.signal()
    }

    /// The hash of all that was given out, once `next` was nil.
    func finish() -> String {
        ended.wait()
        return outcome
    }

    func cancel() {
        isCancelled.withLock { $0 = true }
        free.signal()
        ended.wait()
    }

    private func run() {
        var hash = ContentHash()
        var offset: Int64 = 0
        var index = 0
        while true {
            free.wait()
            if isCancelled.withLock({ $0 }) { return }
            let result = read(buffers[index % Self.count], at: offset)
            if case .success(let count) = result, count > 0 {
                hash.update(UnsafeRawBufferPointer(rebasing: buffers[index % Self.count][..<count]))
                offset += Int64(count)
            }
            filled[index % Self.count] = result
            guard case .success(1...) = result else { break }
            ready.signal()
            index += 1
        }
        outcome = hash.text()
        ready.signal()
    }

    private func read(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Result<Int, SystemError> {
        do throws(SystemError) {
            let count = try retrying("pread", path: path) {
                pread(descriptor, buffer.baseAddress, buffer.count, off_t(offset))
            }
            if offset == 0, let patch, patch.offset + patch.bytes.count <= count {
                buffer[patch.offset..<patch.offset + patch.bytes.count].copyBytes(from: patch.bytes)
            }
            return .success(count)
        } catch {
            return .failure(error)
        }
    }
}
