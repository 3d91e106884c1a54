import LinuxSystem
import SystemPackage

/// A write-ahead log read without its index, as SQLite does when it recovers one
/// (https://sqlite.org/fileformat2.html, §4.1 to §4.3).
package struct WriteAheadLog: Equatable, Sendable {
    /// Of the last commit in the log; `none` when there is none.
    package let checksum: FrameChecksum

    private static let headerLength = 32
    private static let frameHeaderLength = 24

    /// Walks the log's frames as far as they are valid. A log without a valid header holds no commit.
    package init(_ descriptor: borrowing Descriptor, path: FilePath) throws(SystemError) {
        let header = try descriptor.read(count: Self.headerLength, at: 0, path: path)
        guard let start = Start(header) else {
            checksum = .none
            return
        }
        var running = start.checksum
        var committed = FrameChecksum.none
        var offset = Int64(Self.headerLength)
        while true {
            let frame = try descriptor.read(
                count: Self.frameHeaderLength + start.pageSize, at: offset, path: path)
            guard frame.count == Self.frameHeaderLength + start.pageSize,
                frame[8..<16].elementsEqual(header[16..<24])
            else { break }
            running = start.order.sum(frame[0..<8], after: running)
            running = start.order.sum(frame[Self.frameHeaderLength...], after: running)
            guard running == FrameChecksum(bigEndian(frame, 16), bigEndian(frame, 20)) else { break }
            let isCommit = bigEndian(frame, 4) != 0
            if isCommit { committed = running }
            offset += Int64(frame.count)
        }
        checksum = committed
    }

    private struct Start {
        let order: ByteOrder
        let pageSize: Int
        let checksum: FrameChecksum

        init?(_ header: [UInt8]) {
            guard header.count == headerLength else { return nil }
            switch bigEndian(header, 0) {
            case 0x377F_0682: order = .little
            case 0x377F_0683: order = .big
            default: return nil
            }
            pageSize = Int(bigEndian(header, 8))
            guard (512...65536).contains(pageSize), pageSize & (pageSize - 1) == 0 else { return nil }
            checksum = order.sum(header[0..<24], after: .none)
            guard checksum == FrameChecksum(bigEndian(header, 24), bigEndian(header, 28)) else { return nil }
        }
    }

    /// Of the words that are summed; the log's magic number says which.
    private enum ByteOrder {
        case little, big

        /// The algorithm of §4.2, over a whole number of 8-byte pairs.
        func sum(_ bytes: ArraySlice<UInt8>, after previous: FrameChecksum) -> FrameChecksum {
            bytes.withUnsafeBytes { buffer in
                var first = previous.first
                var second = previous.second
                for offset in stride(from: 0, to: buffer.count & ~7, by: 8) {
                    first &+= word(buffer, offset) &+ second
                    second &+= word(buffer, offset + 4) &+ first
                }
                return FrameChecksum(first, second)
            }
        }

        private func word(_ buffer: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
            let value = buffer.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
            return self == .little ? UInt32(littleEndian: value) : UInt32(bigEndian: value)
        }
    }
}

private func bigEndian(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
    bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
}
