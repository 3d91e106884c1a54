import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// The copy of a store's pages, in a file of groupstore's own. Page 1 stands at its start.
final class ShadowPages: DatabaseState {
    private let file: Descriptor
    private let path: FilePath
    let pageSize: Int
    private(set) var pageCount: UInt32
    private let page: HeldPage
    /// The checksums of the pages; nil for a reader that trusts them.
    private let sums: PageSums?
    /// True if the copy was only just made, so that what the store has tells which of its pages are right.
    private var isUnchecked: Bool

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
        page = HeldPage(length: pageSize)
    }

    func withPage<Result>(_ number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        return try page.with(number, body) {
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

    /// Records that a page of a new copy is the store's.
    func confirm(_ number: UInt32, _ bytes: UnsafeRawBufferPointer) {
        if isUnchecked { sums?.record(number, bytes) }
    }

    /// Completes a new copy, each page of which was confirmed or applied. Throws `SystemError`.
    func seal() throws(SystemError) {
        try sums?.write()
        isUnchecked = false
    }

    /// Reads pages from `first` on, as many as the buffer holds; what the file doesn't have is left as it is. Returns
    /// the number of bytes.
    @discardableResult
    func read(_ first: UInt32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try file.read(into: buffer, at: Int64(first - 1) * Int64(pageSize), path: path)
    }

    /// Writes pages, and sets the size. Each is passed to `body` once.
    func apply(_ staged: StagedPages) throws {
        page.forget()
        sums?.resize(to: staged.pageCount)
        try staged.forEach { number, bytes in
            guard number <= staged.pageCount else { return }
            try file.write(bytes, at: Int64(number - 1) * Int64(pageSize), path: path)
            sums?.record(number, bytes)
        }
        try sums?.write()
        try file.truncate(to: Int64(staged.pageCount) * Int64(pageSize), path: path)
        pageCount = staged.pageCount
    }

    func synchronize() throws(SystemError) {
        try file.synchronize(path: path)
        try sums?.synchronize()
    }
}

/// The bytes of the page that was read last.
final class HeldPage {
    private let buffer: UnsafeMutableRawBufferPointer
    private var number: UInt32 = 0
    private var isLent = false

    init(length: Int) { buffer = .allocate(byteCount: max(length, 1), alignment: 8) }

    deinit { buffer.deallocate() }

    func forget() { number = 0 }

    /// Calls `body` with a page, which `read` reads unless it is held.
    func with<Result>(
        _ wanted: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result,
        read: (UnsafeMutableRawBufferPointer) throws -> Void
    ) throws -> Result {
        if number == wanted {
            let wasLent = isLent
            isLent = true
            defer { isLent = wasLent }
            return try body(UnsafeRawBufferPointer(buffer))
        }
        guard !isLent else {
            return try withUnsafeTemporaryAllocation(byteCount: buffer.count, alignment: 8) {
                try read($0)
                return try body(UnsafeRawBufferPointer($0))
            }
        }
        number = 0
        try read(buffer)
        number = wanted
        isLent = true
        defer { isLent = false }
        return try body(UnsafeRawBufferPointer(buffer))
    }
}
