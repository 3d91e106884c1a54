import CXXHash
import LinuxSystem

/// The checksums of the copy's pages, four bytes a page, in a file beside it. They tell a page that isn't what was
/// written: a fault of the disk, or another program's write. They are no defence against forged content.
final class PageSums {
    private let file: OwnFile
    private var sums: [UInt32]
    /// The pages whose sums aren't written yet.
    private var unwritten: [UInt32] = []
    /// The number of sums that the file has; nil if it isn't known.
    private var fileCount: Int?
    /// The longest gap between two sums that are written together, in sums.
    private static let gap = 1024

    /// Reads the sums of so many pages. One that the file lacks is of no page. Throws `SystemError`.
    init(_ file: OwnFile, pageCount: UInt32) throws(SystemError) {
        self.file = file
        let bytes = try file.descriptor.read(count: 4 * Int(pageCount), at: 0, path: file.path)
        sums = bytes.withUnsafeBytes { buffer in
            (0..<buffer.count / 4).map {
                UInt32(littleEndian: buffer.loadUnaligned(fromByteOffset: 4 * $0, as: UInt32.self))
            }
        }
        resize(to: pageCount)
    }

    private static func sum(_ number: UInt32, _ page: UnsafeRawBufferPointer) -> UInt32 {
        UInt32(truncatingIfNeeded: gs_hash_bytes(page.baseAddress, page.count, UInt64(number)))
    }

    /// True if the page is what was recorded.
    func admits(_ number: UInt32, _ page: UnsafeRawBufferPointer) -> Bool {
        number <= sums.count && sums[Int(number) - 1] == Self.sum(number, page)
    }

    func record(_ number: UInt32, _ page: UnsafeRawBufferPointer) {
        sums[Int(number) - 1] = Self.sum(number, page)
        unwritten.append(number)
    }

    /// Records that pages are zeros.
    func recordZeros(_ numbers: ClosedRange<UInt32>, length: Int) {
        withUnsafeTemporaryAllocation(byteCount: length, alignment: 8) {
            $0.initializeMemory(as: UInt8.self, repeating: 0)
            for number in numbers { record(number, UnsafeRawBufferPointer($0)) }
        }
    }

    /// Sets the number of pages. New ones have no sum until they are recorded.
    func resize(to pageCount: UInt32) {
        let count = Int(pageCount)
        if count < sums.count {
            sums.removeLast(sums.count - count)
        } else {
            sums.append(contentsOf: repeatElement(0, count: count - sums.count))
        }
    }

    /// Writes what was recorded, in few pieces, and the length. Throws `SystemError`.
    func write() throws(SystemError) {
        let numbers = unwritten.filter { $0 <= sums.count }.sorted()
        var start = 0
        while start < numbers.count {
            var end = start
            while end + 1 < numbers.count, Int(numbers[end + 1] - numbers[end]) <= Self.gap { end += 1 }
            var bytes: [UInt8] = []
            for sum in sums[Int(numbers[start]) - 1..<Int(numbers[end])] {
                withUnsafeBytes(of: sum.littleEndian) { bytes.append(contentsOf: $0) }
            }
            try file.descriptor.write(bytes, at: 4 * Int64(numbers[start] - 1), path: file.path)
            start = end + 1
        }
        // Cut off are the sums of pages that the copy no longer has.
        if fileCount != sums.count { try file.descriptor.truncate(to: 4 * Int64(sums.count), path: file.path) }
        fileCount = sums.count
        unwritten.removeAll(keepingCapacity: true)
    }

    func synchronize() throws(SystemError) { try file.descriptor.synchronize(path: file.path) }
}
