import Glibc

/// A page's content without its longest run of zeros, which is most of a small table's page. A program may follow
/// thousands of stores, and keeps the schema pages of each.
struct CompactPage: Sendable {
    /// The bytes before and after the run.
    private let bytes: [UInt8]
    /// The offset of the run, and its length.
    private let runStart: Int
    private let runLength: Int

    /// The page's size in bytes.
    var count: Int { bytes.count + runLength }

    init(_ content: UnsafeRawBufferPointer) {
        var longest = 0..<0
        var start = 0
        for (offset, byte) in content.enumerated() where byte != 0 {
            if offset - start > longest.count { longest = start..<offset }
            start = offset + 1
        }
        if content.count - start > longest.count { longest = start..<content.count }
        bytes = Array(content[..<longest.lowerBound]) + content[longest.upperBound...]
        (runStart, runLength) = (longest.lowerBound, longest.count)
    }

    /// The whole content.
    var expanded: [UInt8] {
        bytes[..<runStart] + [UInt8](repeating: 0, count: runLength) + bytes[runStart...]
    }

    /// True if the content is the same from the offset `start` on.
    func isSame(as content: UnsafeRawBufferPointer, from start: Int) -> Bool {
        guard content.count == count, start < count, let page = content.baseAddress else {
            return content.count == count
        }
        let runEnd = runStart + runLength
        return bytes.withUnsafeBytes { own in
            Self.isSame(own, page, start..<max(start, runStart))
                && Self.isZero(page, max(start, runStart)..<max(start, runEnd))
                && Self.isSame(own, page, max(start, runEnd)..<count, offset: -runLength)
        }
    }

    /// `offset`: where the range is in `own`, relative to its place in the page.
    private static func isSame(
        _ own: UnsafeRawBufferPointer, _ page: UnsafeRawPointer, _ range: Range<Int>, offset: Int = 0
    ) -> Bool {
        guard !range.isEmpty, let base = own.baseAddress else { return true }
        return memcmp(base + range.lowerBound + offset, page + range.lowerBound, range.count) == 0
    }

    private static func isZero(_ page: UnsafeRawPointer, _ range: Range<Int>) -> Bool {
        guard !range.isEmpty else { return true }
        let first = page + range.lowerBound
        // Each byte is the one before it.
        return first.load(as: UInt8.self) == 0 && memcmp(first, first + 1, range.count - 1) == 0
    }

    /// Returns the 32-bit big-endian number at an offset.
    func word(_ offset: Int) -> UInt32 { expanded.withUnsafeBytes { $0.word(offset) } }
}
