import CXXHash
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A hash of a table as it lies in a database file: its leaf pages in the order of their keys, the overflow pages of
/// large rows, and the keys by which interior pages lead to the leaves. Two equal digests are of the same rows.
///
/// The numbers of pages in interior pages don't count, since SQLite may move a page. A row with overflow pages that
/// were moved makes another digest.
struct TableDigest: Equatable, Sendable {
    private let high: UInt64
    private let low: UInt64

    /// Reads the table. Returns nil if it is damaged or `isCancelled` returns true; throws `SystemError`.
    ///
    /// - Parameters:
    ///   - rootPage: The root page of the table's B-tree.
    ///   - path: A database file without a log or a hot journal.
    init?(of rootPage: Int64, in path: FilePath, isCancelled: @escaping () -> Bool = { false }) throws(SystemError) {
        guard let root = UInt32(exactly: rootPage), var walk = try TableWalk(path, isCancelled: isCancelled),
            try walk.visit(root)
        else { return nil }
        (high, low) = walk.digest
    }
}

/// A walk through the pages of a table, which hashes them.
private struct TableWalk: ~Copyable {
    /// More than the depth of any B-tree of SQLite.
    private static let maximumDepth = 20

    private let file: Descriptor
    private let path: FilePath
    private let pageSize: Int
    private let format: PageFormat
    private let isCancelled: () -> Bool
    private let hash: OpaquePointer?
    private let page: UnsafeMutableRawBufferPointer
    /// The number of pages that a walk without a cycle may still visit.
    private var remaining: Int64

    /// Returns nil if the file isn't a database.
    init?(_ path: FilePath, isCancelled: @escaping () -> Bool) throws(SystemError) {
        let file = try Descriptor(opening: path, flags: O_RDONLY)
        guard let header = DatabaseHeader(try file.read(count: DatabaseHeader.length, at: 0, path: path)) else {
            return nil
        }
        let first = try file.read(count: header.pageSize, at: 0, path: path)
        guard let format = first.withUnsafeBytes({ PageFormat($0) }) else { return nil }
        remaining = try file.status(path: path).size / Int64(header.pageSize)
        self.file = file
        self.path = path
        self.format = format
        self.isCancelled = isCancelled
        pageSize = header.pageSize
        page = .allocate(byteCount: header.pageSize, alignment: 8)
        hash = gs_hash_create()
    }

    deinit {
        gs_hash_free(hash)
        page.deallocate()
    }

    var digest: (UInt64, UInt64) {
        let digest = gs_hash_current(hash)
        return (digest.high64, digest.low64)
    }

    private func add(_ bytes: UnsafeRawBufferPointer) { gs_hash_update(hash, bytes.baseAddress, bytes.count) }

    /// Reads a page into memory. Returns false if it isn't in the file, or after more pages than the file has.
    private mutating func read(_ number: UInt32) throws(SystemError) -> Bool {
        remaining -= 1
        guard number > 0, remaining >= 0, !isCancelled() else { return false }
        return try file.read(into: page, at: Int64(number - 1) * Int64(pageSize), path: path) == pageSize
    }

    /// Hashes a page and those below it. Returns false if one of them is damaged.
    mutating func visit(_ number: UInt32, depth: Int = 0) throws(SystemError) -> Bool {
        guard depth < Self.maximumDepth, try read(number) else { return false }
        guard let node = BTreePage(UnsafeRawBufferPointer(page), page: number, format), node.kind.isTable else {
            return false
        }
        if node.kind == .tableLeaf {
            guard let chains = node.overflowPages else { return false }
            add(UnsafeRawBufferPointer(page))
            for first in chains { guard try visitChain(first) else { return false } }
            return true
        }
        var keys = [UInt64(node.cellCount)]
        for index in 0..<node.cellCount {
            guard let key = node.key(index) else { return false }
            keys.append(key)
        }
        guard let links = PageLinks(node) else { return false }
        let hash = hash
        keys.withUnsafeBytes { gs_hash_update(hash, $0.baseAddress, $0.count) }
        for child in links.children { guard try visit(child, depth: depth + 1) else { return false } }
        return true
    }

    /// Hashes an overflow chain, each page of which begins with the next one's number.
    private mutating func visitChain(_ first: UInt32) throws(SystemError) -> Bool {
        var next = first
        while next != 0 {
            guard try read(next) else { return false }
            add(UnsafeRawBufferPointer(page))
            next = UnsafeRawBufferPointer(page).word(0)
        }
        return true
    }
}
