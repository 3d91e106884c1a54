import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads a file back right behind its writer, compares that with what was to be written, and hashes it: on a thread of
/// its own, where there is a processor for it.
///
/// The writer fills one of a few slots, writes it, and goes on with the next: `slot`, then `wrote`, for each part of the
/// file.
final class CopyVerifier: Sendable {
    private struct State {
        /// Which slot the writer fills.
        var filling = 0
        /// Of those that were written and not compared yet, in order.
        var counts: [Int] = []
        var isCancelled = false
        var outcome: Result<String, any Error>?
    }

    /// Small enough to be in the processor's cache still when a slot is written, read back and hashed.
    static let chunk = 1 << 17
    private static let slots = 4
    /// Two logical processors may be one core, and then a second thread takes from the first more than it does for it. Of
    /// four, two are not.
    static let hasProcessorToSpare = sysconf(CInt(_SC_NPROCESSORS_ONLN)) >= 4

    private let state = Mutex(State())
    private let free = DispatchSemaphore(value: 0)
    private let written = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)
    private let isBeside: Bool
    /// Each slot is the writer's from `slot` to `wrote`, and the comparing thread's from there until it is free again.
    nonisolated(unsafe) private let ring: UnsafeMutableRawBufferPointer
    /// One thread's, the writer's or the other one, until `finished`.
    nonisolated(unsafe) private let comparison: Comparison

    /// The descriptor must stay open until `finish` or `cancel` has returned, one of which must be called. Throws when
    /// there is no thread to be had.
    init(
        descriptor: CInt, path: FilePath, isBeside: Bool = CopyVerifier.hasProcessorToSpare
    ) throws(SystemError) {
        self.isBeside = isBeside
        ring = .allocate(byteCount: Self.slots * Self.chunk, alignment: 4096)
        comparison = Comparison(descriptor: descriptor, path: path, chunk: Self.chunk)
        guard isBeside else { return }
        // A semaphore that begins with a value must have it again when it goes.
        for _ in 0..<Self.slots { free.signal() }
        _ = try SystemThread(name: "gs-read-back") { self.run() }
    }

    deinit { ring.deallocate() }

    /// Memory for the next part of the file, as soon as there is some; throws what was found wrong with an earlier part.
    func slot() throws -> UnsafeMutableRawBufferPointer {
        guard isBeside else { return memory(0) }
        free.wait()
        let (filling, outcome) = state.withLock { ($0.filling, $0.outcome) }
        if case .failure(let error)? = outcome { throw error }
        return memory(filling)
    }

    /// That many bytes of the slot are in the file. Throws what is found wrong with them, if that is known already.
    func wrote(_ count: Int) throws {
        guard isBeside else { return try comparison.compareAndHash(memory(0), count) }
        state.withLock { state in
            state.filling = (state.filling + 1) % Self.slots
            state.counts.append(count)
        }
        written.signal()
    }

    func cancel() {
        guard isBeside else { return }
        state.withLock { $0.isCancelled = true }
        written.signal()
        finished.wait()
    }

    /// The hash of the file. Throws `FileCopy.Mismatch` where it is not what was written.
    func finish() throws -> String {
        guard isBeside else { return comparison.text }
        written.signal()
        finished.wait()
        return try state.withLock { try $0.outcome?.get() ?? "" }
    }

    private func memory(_ number: Int) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(rebasing: ring[(number * Self.chunk)...].prefix(Self.chunk))
    }

    private func run() {
        let outcome = Result { try compareAll() }
        state.withLock { $0.outcome = outcome }
        // The writer may wait for a slot.
        free.signal()
        finished.signal()
    }

    private func compareAll() throws -> String {
        var number = 0
        while true {
            written.wait()
            // None is left when the writer is through, or gives up.
            let count = state.withLock { state in
                state.isCancelled || state.counts.isEmpty ? nil : state.counts.removeFirst()
            }
            guard let count else { return comparison.text }
            try comparison.compareAndHash(memory(number), count)
            free.signal()
            number = (number + 1) % Self.slots
        }
    }
}

/// What was read back so far.
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
        else { throw FileCopy.Mismatch(path: path) }
        hash.update(UnsafeRawBufferPointer(rebasing: found[..<count]))
        offset += Int64(count)
    }

    private func read(_ count: Int) throws {
        var done = 0
        while done < count {
            let more = try retrying("pread", path: path) {
                pread(descriptor, found.baseAddress?.advanced(by: done), count - done, off_t(offset) + done)
            }
            // The writer said that the bytes are there: an early end is content that got lost.
            if more == 0 { throw FileCopy.Mismatch(path: path) }
            done += more
        }
    }
}
