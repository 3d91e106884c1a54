import LinuxSystem

/// A digest of each page of a store in rollback mode. It tells later which pages were written: unlike a write-ahead
/// log, a rollback journal is gone by the time a commit is noticed.
struct PageDigests: Sendable, Equatable {
    let pageSize: Int
    private var digests: [Int] = []

    /// The largest store whose pages are digested, in bytes. A commit then costs some milliseconds at most.
    static let maximumSize = 16 << 20

    private static let pagesPerRead = 64

    /// Reads all pages, and calls `changed` with each whose digest differs from that in `former`.
    ///
    /// Throws `Unattributable.disturbed` if the file is shorter, and what `changed` and the reading throw.
    init(
        _ database: SharedDescriptor, pageSize: Int, pageCount: UInt32, former: PageDigests? = nil,
        changed: (UInt32, UnsafeRawBufferPointer) throws -> Void = { _, _ in }
    ) throws {
        self.pageSize = pageSize
        digests.reserveCapacity(Int(pageCount))
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: pageSize * Self.pagesPerRead, alignment: 8)
        defer { buffer.deallocate() }
        while digests.count < Int(pageCount) {
            let wanted = min(Self.pagesPerRead, Int(pageCount) - digests.count)
            let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[..<(wanted * pageSize)])
            let read = try database.read(into: piece, at: Int64(digests.count) * Int64(pageSize))
            guard read == piece.count else { throw Unattributable.disturbed }
            for start in stride(from: 0, to: read, by: pageSize) {
                let page = UnsafeRawBufferPointer(rebasing: piece[start..<start + pageSize])
                // Its seed is random, so that nobody can make two pages with one digest.
                var hasher = Hasher()
                hasher.combine(bytes: page)
                let digest = hasher.finalize()
                let index = digests.count
                digests.append(digest)
                if let former, index >= former.digests.count || former.digests[index] != digest {
                    try changed(UInt32(index + 1), page)
                }
            }
        }
    }
}
