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

    /// Of the words that are summed; the log's magic number, or its index, says which.
    package enum WordOrder: Sendable {
        case little, big
    }

    /// Goes on with a whole number of 8-byte pairs (https://sqlite.org/fileformat2.html, §4.2).
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
