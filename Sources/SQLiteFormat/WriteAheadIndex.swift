import Glibc
import LinuxSystem
import SystemPackage

/// The header of the wal-index (`-shm`), as SQLite's `WalIndexHdr` in wal.c lays it out, in the machine's byte order.
package struct WriteAheadIndex: Equatable, Sendable {
    /// The last frame of the last commit; 0 after the log was reset.
    package let lastFrame: UInt32
    package let checksum: FrameChecksum
    /// As it stands in the log's header and in each of its frames, bytes 8 to 16, read as one word.
    package let salt: UInt64
    /// Moved by each commit; begins at 0 when the index is made, or made anew after a crash.
    package let commitCount: UInt32
    package let pageSize: Int
    package let order: FrameChecksum.WordOrder
    /// Frames whose pages a checkpoint may have written to the database.
    package let checkpointedFrame: UInt32

    /// Bytes of one copy.
    private static let length = 48
    /// With what follows the copies: `WalCkptInfo`.
    private static let wholeLength = 136

    /// Nil when the index isn't made yet, or is being written: then its two copies differ.
    package init?(_ descriptor: borrowing Descriptor) throws(SystemError) {
        var found: WriteAheadIndex?
        var failure: SystemError?
        // Read again and again while a commit is awaited: without an allocation each time.
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
        // nBackfill, and how far the checkpoint that is under way, or was broken off, wanted to come.
        checkpointedFrame = max(word(96), word(128))
    }
}
