import LinuxSystem
import SystemPackage

/// The checksum over all frames up to a commit. It moves with every commit, through resets of the log and recoveries
/// of the index, so it is by it that a commit is known.
package struct FrameChecksum: Equatable, Sendable {
    package let first: UInt32
    package let second: UInt32

    package init(_ first: UInt32, _ second: UInt32) {
        self.first = first
        self.second = second
    }

    /// That of a log without a commit.
    package static let none = FrameChecksum(0, 0)
}

/// The header of the wal-index (`-shm`), as SQLite's `WalIndexHdr` in wal.c lays it out, in the machine's byte order.
package struct WriteAheadIndex: Equatable, Sendable {
    /// The last frame of the last commit; 0 after the log was reset.
    package let lastFrame: UInt32
    package let checksum: FrameChecksum
    package let salt: UInt64

    /// Bytes of one copy.
    private static let length = 48

    /// Nil when the index isn't made yet, or is being written: then its two copies differ.
    package init?(_ descriptor: borrowing Descriptor) throws(SystemError) {
        let bytes = try descriptor.read(count: 2 * Self.length, at: 0)
        guard bytes.count == 2 * Self.length, bytes[..<Self.length].elementsEqual(bytes[Self.length...]) else {
            return nil
        }
        let isInitialized = bytes[12] != 0
        guard isInitialized else { return nil }
        let words = bytes.withUnsafeBytes { buffer in
            (0..<12).map { buffer.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self) }
        }
        lastFrame = words[4]
        checksum = FrameChecksum(words[6], words[7])
        salt = UInt64(words[8]) << 32 | UInt64(words[9])
    }
}
