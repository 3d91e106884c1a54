import Glibc
import LinuxSystem
import SystemPackage

/// The header of the wal-index (`-shm`), in the layout of SQLite's `WalIndexHdr` (wal.c) and the machine's byte order.
package struct WriteAheadIndex: Equatable, Sendable {
    /// The last frame of the last commit, or 0 after the WAL was reset.
    package let lastFrame: UInt32
    /// The checksum of the last commit.
    package let checksum: FrameChecksum
    /// The salt as in the WAL's header and in bytes 8 to 16 of each of its frames, read as one word.
    package let salt: UInt64
    /// The number of commits since the index was created, or recreated after a crash.
    package let commitCount: UInt32
    /// The page size in bytes.
    package let pageSize: Int
    /// The byte order of the WAL's checksums.
    package let order: FrameChecksum.WordOrder
    /// The last frame that a complete checkpoint has copied to the database, and all before it (`nBackfill`).
    package let backfilledFrame: UInt32
    /// The last frame whose page a checkpoint may have written to the database.
    package let checkpointedFrame: UInt32

    /// The length of one copy in bytes.
    private static let length = 48
    /// The length in bytes with the `WalCkptInfo` that follows the copies.
    private static let wholeLength = 136

    /// True for the first bytes of an index: the version of its format.
    package static func isStart(_ bytes: [UInt8]) -> Bool {
        bytes.count >= 4 && bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) } == 3_007_000
    }

    /// The offset of the page numbers of `count` frames after `frame` (`aPgno` in wal.c): four bytes each, in the
    /// machine's byte order. Nil if they aren't in one block of the index.
    ///
    /// A block has 32 KiB, of which the first half are the numbers of 4,096 frames. In the first block, the header has
    /// the place of the first 34.
    package static func offset(ofPagesAfter frame: UInt32, count: Int) -> Int? {
        let slot = Int(frame) + wholeLength / 4
        guard slot % 4096 + count <= 4096 else { return nil }
        return slot / 4096 * 32768 + slot % 4096 * 4
    }

    /// Reads the index. Returns nil if the index isn't created yet or is being written; its two copies differ then.
    package init?(_ descriptor: borrowing Descriptor) throws(SystemError) {
        var found: WriteAheadIndex?
        var failure: SystemError?
        // This runs repeatedly while a commit is awaited, so it must not allocate.
        withUnsafeTemporaryAllocation(byteCount: Self.wholeLength, alignment: 8) { buffer in
            do throws(SystemError) {
                guard try descriptor.read(into: buffer, at: 0) == Self.wholeLength else { return }
                found = Self(UnsafeRawBufferPointer(buffer))
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
        guard let found else { return nil }
        self = found
    }

    private init?(_ bytes: UnsafeRawBufferPointer) {
        guard let start = bytes.baseAddress, memcmp(start, start + Self.length, Self.length) == 0 else { return nil }
        let isInitialized = bytes[12] != 0
        guard isInitialized else { return nil }
        func word(_ offset: Int) -> UInt32 { bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
        let size = Int(bytes.loadUnaligned(fromByteOffset: 14, as: UInt16.self))
        commitCount = word(8)
        order = bytes[13] == 0 ? .little : .big
        pageSize = size == 1 ? 65536 : size
        lastFrame = word(16)
        checksum = FrameChecksum(word(24), word(28))
        salt = bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self)
        // nBackfill, and the target of a checkpoint that is under way or was interrupted.
        backfilledFrame = word(96)
        checkpointedFrame = max(backfilledFrame, word(128))
    }

    /// True if no commit, restart or recovery of the WAL came between the two.
    package func hasSameHeader(as other: WriteAheadIndex) -> Bool {
        lastFrame == other.lastFrame && checksum == other.checksum && salt == other.salt
            && commitCount == other.commitCount
    }
}
