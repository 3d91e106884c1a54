import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads a file back right after it is written, compares the bytes, and hashes them. Runs on a thread of its own if a
/// processor is free for it.
///
/// The writer calls `nextBuffer`, fills the buffer, writes it to the file, and calls `didWrite`, for each part of the
/// file. The buffers form a small ring, so that the writer can continue while earlier parts are compared.
final class CopyVerifier: Sendable {
    private struct State {
        /// The index of the buffer that the writer fills.
        var filling = 0
        /// The sizes of the parts that are written and not yet compared, in order.
        var counts: [Int] = []
        var isCancelled = false
        var outcome: Result<String, any Error>?
    }

    /// Small enough for a buffer to stay in the processor's cache while it is written, read back and hashed.
    static let chunk = 1 << 17
    private static let bufferCount = 4
    /// True if there are four logical processors or more. Two may share one core, where a second thread slows the first
    /// by more than it gains; of four, two don't.
    static let hasProcessorToSpare = sysconf(CInt(_SC_NPROCESSORS_ONLN)) >= 4

    private let state = Mutex(State())
    private let free = MonotonicSemaphore()
    private let written = MonotonicSemaphore()
    private let finished = MonotonicSemaphore()
    private let isConcurrent: Bool
    /// Each buffer belongs to the writer from `nextBuffer` to `didWrite`, then to the comparing thread until it is free
    /// again.
    nonisolated(unsafe) private let ring: UnsafeMutableRawBufferPointer
    /// Used by one thread only, the writer's or the comparing one, until `finished` is signalled.
    nonisolated(unsafe) private let comparison: Comparison

    /// Starts the verification. The descriptor must stay open until `finish` or `cancel` returns; call exactly one of
    /// them. Throws if no thread can be created.
    init(
        descriptor: CInt, path: FilePath, isConcurrent: Bool = CopyVerifier.hasProcessorToSpare
    ) throws(SystemError) {
        self.isConcurrent = isConcurrent
        ring = .allocate(byteCount: Self.bufferCount * Self.chunk, alignment: 4096)
        comparison = Comparison(descriptor: descriptor, path: path, chunk: Self.chunk)
        guard isConcurrent else { return }
        // A semaphore must not be destroyed with a lower value than it was created with: create it with zero.
        for _ in 0..<Self.bufferCount { free.signal() }
        _ = try SystemThread(name: "gs-read-back") { self.run() }
    }

    deinit { ring.deallocate() }

    /// Waits for a free buffer for the next part of the file. Throws if an earlier part was found to differ.
    func nextBuffer() throws -> UnsafeMutableRawBufferPointer {
        guard isConcurrent else { return buffer(0) }
        free.wait()
        let (filling, outcome) = state.withLock { ($0.filling, $0.outcome) }
        if case .failure(let error)? = outcome { throw error }
        return buffer(filling)
    }

    /// Reports that the first `count` bytes of the buffer are in the file. Throws if they are already found to differ.
    func didWrite(_ count: Int) throws {
        guard isConcurrent else { return try comparison.compareAndHash(buffer(0), count) }
        state.withLock { state in
            state.filling = (state.filling + 1) % Self.bufferCount
            state.counts.append(count)
        }
        written.signal()
    }

    func cancel() {
        guard isConcurrent else { return }
        state.withLock { $0.isCancelled = true }
        written.signal()
        finished.wait()
    }

    /// Waits for the comparison and returns the hash of the file. Throws `VerifiedCopy.Mismatch` if it differs from
    /// what was written.
    func finish() throws -> String {
        guard isConcurrent else { return comparison.text }
        written.signal()
        finished.wait()
        return try state.withLock { try $0.outcome?.get() ?? "" }
    }

    private func buffer(_ number: Int) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(rebasing: ring[(number * Self.chunk)...].prefix(Self.chunk))
    }

    private func run() {
        let outcome = Result { try compareAll() }
        state.withLock { $0.outcome = outcome }
        // The writer may be waiting for a buffer.
        free.signal()
        finished.signal()
    }

    private func compareAll() throws -> String {
        var number = 0
        while true {
            written.wait()
            // No part is left when the writer has finished or cancelled.
            let count = state.withLock { state in
                state.isCancelled || state.counts.isEmpty ? nil : state.counts.removeFirst()
            }
            guard let count else { return comparison.text }
            try comparison.compareAndHash(buffer(number), count)
            free.signal()
            number = (number + 1) % Self.bufferCount
        }
    }
}

/// The comparison so far.
private final class Comparison {
    private let descriptor: CInt
    private let path: FilePath
    private let found: UnsafeMutableRawBufferPointer
    private var hash = ContentHash()
    private var offset: Int64 = 0

    init(descriptor: CInt, path: FilePath, chunk: Int) {
        self.descriptor = descriptor
        self.path = path
        found = .allocate(byteCount: chunk, alignment: 4096)
    }

    deinit { found.deallocate() }

    var text: String { hash.text() }

    func compareAndHash(_ wanted: UnsafeMutableRawBufferPointer, _ count: Int) throws {
        try read(count)
        guard let wanted = wanted.baseAddress, let start = found.baseAddress, memcmp(start, wanted, count) == 0
        else { throw VerifiedCopy.Mismatch(path: path) }
        hash.update(UnsafeRawBufferPointer(rebasing: found[..<count]))
        offset += Int64(count)
    }

    private func read(_ count: Int) throws {
        var done = 0
        while done < count {
            let more = try retrying("pread", path: path) {
                pread(descriptor, found.baseAddress?.advanced(by: done), count - done, off_t(offset) + done)
            }
            // The writer has reported these bytes as written: an early end means that content was lost.
            if more == 0 { throw VerifiedCopy.Mismatch(path: path) }
            done += more
        }
    }
}
