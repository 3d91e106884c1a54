import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads a file back behind its writer, on a thread of its own, compares that with what was to be written, and hashes it.
///
/// The writer fills one of a few slots, writes it, and goes on with the next while this one is compared: `slot`, then
/// `wrote`, for each part of the file.
final class ReadBack: Sendable {
    private struct State {
        /// Which slot the writer fills.
        var filling = 0
        /// Of those that were written and not compared yet, in order.
        var counts: [Int] = []
        var isCancelled = false
        var outcome: Result<String, any Error>?
    }

    /// Small enough to be in the processor's cache still when a slot is written, read back and hashed.
    private static let chunk = 1 << 18
    private static let slots = 4

    private let state = Mutex(State())
    private let free = DispatchSemaphore(value: 0)
    private let written = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)
    /// Each slot is the writer's from `slot` to `wrote`, and this thread's from there until it is free again.
    nonisolated(unsafe) private let ring: UnsafeMutableRawBufferPointer
    private let descriptor: CInt
    private let path: FilePath

    /// The descriptor must stay open until `finish` or `cancel` has returned, one of which must be called. Throws when
    /// there is no thread to be had.
    init(descriptor: CInt, path: FilePath) throws(SystemError) {
        self.descriptor = descriptor
        self.path = path
        // One more than the slots: what is read back.
        ring = .allocate(byteCount: (Self.slots + 1) * Self.chunk, alignment: 4096)
        // A semaphore that begins with a value must have it again when it goes.
        for _ in 0..<Self.slots { free.signal() }
        _ = try SystemThread(name: "gs-read-back") { self.run() }
    }

    deinit { ring.deallocate() }

    /// Memory for the next part of the file, as soon as there is some; throws what was found wrong with an earlier part.
    func slot() throws -> UnsafeMutableRawBufferPointer {
        free.wait()
        let (filling, outcome) = state.withLock { ($0.filling, $0.outcome) }
        if case .failure(let error)? = outcome { throw error }
        return memory(filling)
    }

    /// That many bytes of the slot are in the file.
    func wrote(_ count: Int) {
        state.withLock { state in
            state.filling = (state.filling + 1) % Self.slots
            state.counts.append(count)
        }
        written.signal()
    }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        written.signal()
        finished.wait()
    }

    /// The hash of the file. Throws `FileCopy.Mismatch` where it is not what was written.
    func finish() throws -> String {
        written.signal()
        finished.wait()
        return try state.withLock { try $0.outcome?.get() ?? "" }
    }

    private func memory(_ number: Int) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(rebasing: ring[(number * Self.chunk)...].prefix(Self.chunk))
    }

    private func run() {
        let outcome = Result { try compareAndHash() }
        state.withLock { $0.outcome = outcome }
        // The writer may wait for a slot.
        free.signal()
        finished.signal()
    }

    private func compareAndHash() throws -> String {
        let found = memory(Self.slots)
        var hash = ContentHash()
        var offset: Int64 = 0
        var number = 0
        while true {
            written.wait()
            // None is left when the writer is through, or gives up.
            let count = state.withLock { state in
                state.isCancelled || state.counts.isEmpty ? nil : state.counts.removeFirst()
            }
            guard let count else { return hash.text() }
            try read(found, count, at: offset)
            guard let wanted = memory(number).baseAddress, let start = found.baseAddress,
                memcmp(start, wanted, count) == 0
            else { throw FileCopy.Mismatch(path: path) }
            free.signal()
            hash.update(UnsafeRawBufferPointer(rebasing: found[..<count]))
            offset += Int64(count)
            number = (number + 1) % Self.slots
        }
    }

    private func read(_ buffer: UnsafeMutableRawBufferPointer, _ count: Int, at offset: Int64) throws {
        var done = 0
        while done < count {
            let more = try retrying("pread", path: path) {
                pread(descriptor, buffer.baseAddress?.advanced(by: done), count - done, off_t(offset) + done)
            }
            // The writer said that the bytes are there: an early end is content that got lost.
            if more == 0 { throw FileCopy.Mismatch(path: path) }
            done += more
        }
    }
}
