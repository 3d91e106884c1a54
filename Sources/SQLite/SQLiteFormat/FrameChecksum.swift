/// The checksum over all frames up to a commit. It changes with every commit, across resets of the WAL and recoveries
/// of its index, so it identifies a commit.
package struct FrameChecksum: Hashable, Sendable {
    package let first: UInt32
    package let second: UInt32

    package init(_ first: UInt32, _ second: UInt32) {
        self.first = first
        self.second = second
    }

    /// The checksum of a WAL without a commit.
    package static let none = FrameChecksum(0, 0)

    /// The byte order of the summed words, given by the WAL's magic number or its index.
    package enum WordOrder: Sendable {
        case little, big
    }

    /// Returns the checksum continued over `bytes`, a whole number of 8-byte pairs
    /// (https://sqlite.org/fileformat2.html, §4.2).
    package func adding(_ bytes: UnsafeRawBufferPointer, _ order: WordOrder) -> FrameChecksum {
        var first = first
        var second = second
        let isNative = (order == .little) == (UInt32(littleEndian: 1) == 1)
        for offset in stride(from: 0, to: bytes.count & ~7, by: 8) {
            let one = bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
            let two = bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
            first &+= (isNative ? one : one.byteSwapped) &+ second
            second &+= (isNative ? two : two.byteSwapped) &+ first
        }
        return FrameChecksum(first, second)
    }

    func adding(_ bytes: ArraySlice<UInt8>, _ order: WordOrder) -> FrameChecksum {
        bytes.withUnsafeBytes { adding($0, order) }
    }
}
