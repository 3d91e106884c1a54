import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// The copy of a store's pages, in a file of groupstore's own. Page 1 stands at its start.
///
/// What steps have changed is pending first: readers of single pages see it, and the file has it after `writePending`.
final class ShadowPages: DatabaseState {
    private let file: Descriptor
    private let path: FilePath
    let pageSize: Int
    private(set) var pageCount: UInt32
    private let cache: PageCache
    /// The size of the file in pages.
    private var fileCount: UInt32
    /// The checksums of the pages; nil for a reader that trusts them.
    private let sums: PageSums?
    /// True if the copy was only just made, so that what the store has tells which of its pages are right.
    private var isUnchecked: Bool
    /// The length of the pages that are kept in memory, in bytes.
    private static let cachedLength = 1 << 19

    /// - Parameter isNew: True if `sums` are to be recorded.
    init(
        _ file: consuming Descriptor, path: FilePath, pageSize: Int, pageCount: UInt32, sums: PageSums?, isNew: Bool
    ) {
        self.sums = sums
        isUnchecked = isNew
        self.file = file
        self.path = path
        self.pageSize = pageSize
        self.pageCount = pageCount
        fileCount = pageCount
        cache = PageCache(pageSize: pageSize, capacity: max(16, Self.cachedLength / max(pageSize, 1)))
    }

    func withBytes(of number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        try cache.with(number, body) {
            guard number <= fileCount else { return _ = $0.initializeMemory(as: UInt8.self, repeating: 0) }
            try read(number, into: $0)
            try check(number, UnsafeRawBufferPointer($0))
        }
    }

    /// Throws `RowShadowError.damaged` if a page that was read isn't what was written.
    func check(_ number: UInt32, _ bytes: UnsafeRawBufferPointer) throws {
        guard let sums, !isUnchecked else { return }
        guard sums.admits(number, bytes) else { throw RowShadowError.damaged(path) }
    }

    /// Throws `RowShadowError.damaged` if any page isn't what was written.
    func verify() throws {
        guard pageSize > 0 else { return }
        let (lockPage, step) = (PageFormat.lockPage(pageSize: pageSize), UInt32((1 << 20) / pageSize))
        try withUnsafeTemporaryAllocation(byteCount: Int(step) * pageSize, alignment: 8) { buffer in
            for first in stride(from: 1, through: pageCount, by: Int(step)) {
                let count = try read(first, into: buffer) / pageSize
                guard count >= min(Int(step), Int(pageCount - first) + 1) else { throw RowShadowError.damaged(path) }
                for place in 0..<count where first + UInt32(place) != lockPage {
                    let start = place * pageSize
                    try check(first + UInt32(place), UnsafeRawBufferPointer(rebasing: buffer[start..<start + pageSize]))
                }
            }
        }
    }

    /// Writes the pages of a view to a new copy, but those that the copy has as a clone of the view's database. Their
    /// sums are those of what was read, so that a page that wasn't written as it was read is found.
    func fill(from view: StoreView, isCloned: Bool, meanwhile: () throws -> Void) throws {
        guard pageSize > 0 else { return }
        let batch = (1 << 20) / pageSize
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: batch * pageSize, alignment: 4096)
        defer { memory.deallocate() }
        for first in stride(from: 1, through: pageCount, by: batch) {
            let count = min(batch, Int(pageCount - first) + 1)
            let part = UnsafeMutableRawBufferPointer(rebasing: memory[..<(count * pageSize)])
            try view.read(first, into: part)
            for place in 0..<count {
                let (number, start) = (first + UInt32(place), place * pageSize)
                let page = UnsafeRawBufferPointer(rebasing: part[start..<start + pageSize])
                sums?.record(number, page)
                if isCloned, view.isLogged(number) { try file.write(page, at: offset(number), path: path) }
            }
            // Holes stay holes.
            if !isCloned, !part.isZero {
                try file.write(UnsafeRawBufferPointer(part), at: offset(first), path: path)
                file.beginWriteback(at: offset(first), count: Int64(part.count))
            }
            try meanwhile()
        }
    }

    private func offset(_ number: UInt32) -> Int64 { Int64(number - 1) * Int64(pageSize) }

    /// Records that a page of a new copy is the store's.
    func confirm(_ number: UInt32, _ bytes: UnsafeRawBufferPointer) {
        if isUnchecked { sums?.record(number, bytes) }
    }

    /// Completes a new copy, each page of which was confirmed or applied. Throws `SystemError`.
    func seal() throws(SystemError) {
        try sums?.write()
        isUnchecked = false
    }

    /// Reads pages from `first` on, as many as the buffer holds, while none is pending; what the file doesn't have is
    /// left as it is. Returns the number of bytes.
    @discardableResult
    func read(_ first: UInt32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try file.read(into: buffer, at: offset(first), path: path)
    }

    /// The length of the pending pages in bytes.
    var pendingLength: Int { cache.pendingCount * pageSize }

    /// Takes pages, and the size. They are pending.
    func adopt(_ staged: StagedPages) throws {
        try staged.forEach { number, bytes in if number <= staged.pageCount { cache.set(number, to: bytes) } }
        if staged.pageCount < pageCount { cache.removeAll { $0 > staged.pageCount } }
        pageCount = staged.pageCount
    }

    /// Calls `body` with each pending page.
    func forEachPending(_ body: (UInt32, UnsafeRawBufferPointer) throws -> Void) rethrows {
        try cache.forEachPending(body)
    }

    /// Drops the pending pages. The file's size is the one that counts.
    func dropPending() {
        cache.removeAll()
        pageCount = fileCount
    }

    /// Writes the pending pages, and sets the size.
    func writePending() throws {
        try write { try cache.forEachPending($0) }
        cache.settle()
    }

    /// Writes pages, and sets the size.
    func apply(_ staged: StagedPages) throws {
        cache.removeAll()
        pageCount = staged.pageCount
        try write { body in try staged.forEach { if $0 <= staged.pageCount { try body($0, $1) } } }
    }

    private func write(_ forEach: ((UInt32, UnsafeRawBufferPointer) throws -> Void) throws -> Void) throws {
        sums?.resize(to: pageCount)
        // SQLite needn't write a page that a transaction both takes and frees.
        if fileCount < pageCount { sums?.recordZeros(fileCount + 1...pageCount, length: pageSize) }
        try forEach { number, bytes in
            try file.write(bytes, at: offset(number), path: path)
            sums?.record(number, bytes)
        }
        try sums?.write()
        if fileCount != pageCount { try file.truncate(to: Int64(pageCount) * Int64(pageSize), path: path) }
        fileCount = pageCount
    }

    func synchronize() throws(SystemError) {
        try file.synchronize(path: path)
        try sums?.synchronize()
    }
}
