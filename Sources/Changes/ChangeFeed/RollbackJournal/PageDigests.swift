import LinuxSystem

/// A digest of each page of a store in rollback mode. It tells later which pages were written where no journal that was
/// held does (`JournalWatch`): one that persists, is truncated, or is gone by the time it would be opened.
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
                let digest = Self.digest(page)
                let index = digests.count
                digests.append(digest)
                if let former, index >= former.digests.count || former.digests[index] != digest {
                    try changed(UInt32(index + 1), page)
                }
            }
        }
    }

    /// Records pages that changed. Those beyond the former end must be among them.
    mutating func update(_ pages: ChangedPages) throws {
        let missing = Int(pages.pageCount) - digests.count
        if missing < 0 { digests.removeLast(-missing) } else { digests += [Int](repeating: 0, count: missing) }
        for page in pages.pages { digests[Int(page) - 1] = Self.digest(try pages.content(of: page)) }
    }

    /// Its seed is random, so that nobody can make two pages with one digest.
    private static func digest(_ page: UnsafeRawBufferPointer) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: page)
        return hasher.finalize()
    }
}
