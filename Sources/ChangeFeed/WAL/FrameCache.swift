import Glibc
import Synchronization

/// Memory that frames are read into. One piece is kept for the next time: to have the system make and clear memory anew for
/// each commit costs more than to read.
struct FrameCache {
    private enum Kind { case kept, mapped, allocated }

    let bytes: UnsafeMutableRawBufferPointer
    private let kind: Kind

    /// A thousand pages of 4 KiB. What is larger goes back to the system when it isn't needed any more: the allocator would keep it.
    private static let keptLength = 4 << 20

    private struct Kept: @unchecked Sendable {
        /// Whoever takes it under the lock has it alone until it is given back.
        var memory: UnsafeMutableRawPointer?
        var isMade = false
    }

    private static let kept = Mutex(Kept())

    /// Exactly so many bytes; nil when there is no memory.
    static func take(_ count: Int) -> Self? {
        guard count <= keptLength else { return map(count).map { Self($0, count, .mapped) } }
        let memory = kept.withLock { kept in
            if !kept.isMade {
                kept.memory = map(keptLength)
                kept.isMade = true
            }
            return kept.memory.take()
        }
        if let memory { return Self(memory, count, .kept) }
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

    /// To be called once.
    func giveBack() {
        switch kind {
        case .kept: Self.kept.withLock { $0.memory = bytes.baseAddress }
        case .mapped: munmap(bytes.baseAddress, bytes.count)
        case .allocated: bytes.deallocate()
        }
    }
}
