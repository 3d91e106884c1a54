import Glibc
import Synchronization

/// Memory for the frames of one read. One piece is reused: letting the kernel map and clear new memory for each commit
/// costs more than reading the frames.
struct FrameCache {
    private enum Kind { case cached, mapped, allocated }

    let bytes: UnsafeMutableRawBufferPointer
    private let kind: Kind

    /// A thousand pages of 4 KiB. Larger memory is mapped and unmapped, because the allocator would keep it.
    private static let cachedLength = 4 << 20

    /// @unchecked: the thread that takes the memory under the lock owns it alone until it releases it.
    private struct Cached: @unchecked Sendable {
        var memory: UnsafeMutableRawPointer?
        var isMapped = false
    }

    private static let cached = Mutex(Cached())

    /// Returns memory of exactly `count` bytes, or nil if none is available.
    static func allocate(_ count: Int) -> Self? {
        guard count <= cachedLength else { return map(count).map { Self($0, count, .mapped) } }
        let memory = cached.withLock { cached in
            if !cached.isMapped {
                cached.memory = map(cachedLength)
                cached.isMapped = true
            }
            return cached.memory.take()
        }
        if let memory { return Self(memory, count, .cached) }
        return Self(.allocate(byteCount: count, alignment: 8), count, .allocated)
    }

    private init(_ start: UnsafeMutableRawPointer, _ count: Int, _ kind: Kind) {
        bytes = UnsafeMutableRawBufferPointer(start: start, count: count)
        self.kind = kind
    }

    private static func map(_ count: Int) -> UnsafeMutableRawPointer? {
        let mapped = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return mapped.flatMap { Int(bitPattern: $0) == -1 ? nil : $0 }
    }

    /// Releases the memory. Call it once.
    func release() {
        switch kind {
        case .cached: Self.cached.withLock { $0.memory = bytes.baseAddress }
        case .mapped: munmap(bytes.baseAddress, bytes.count)
        case .allocated: bytes.deallocate()
        }
    }
}
