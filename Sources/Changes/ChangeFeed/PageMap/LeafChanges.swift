import SQLiteFormat

/// The fast path for most transactions, which write only leaves.
extension PageMap {
    /// Applies one transaction, and returns the tables that own or owned its pages. An error invalidates the map.
    mutating func apply(_ transaction: WALTransaction) throws -> Set<ExactName> {
        if let names = chargeLeaves(transaction) { return names }
        let pages = transaction.pages()
        return try apply(pages, pages.changed)
    }

    /// Returns the owners of the pages if each is a leaf that keeps its place and links to nothing, so that the map
    /// stays as it is. Returns nil in any other case.
    private mutating func chargeLeaves(_ transaction: WALTransaction) -> Set<ExactName>? {
        let count = transaction.pageCount
        guard Int(count) == roles.count - 1 else { return nil }
        var trees = SmallSet()
        let areLeaves = transaction.allSatisfy { page, content in
            guard page > 1, page <= count else { return false }
            let role = roles[Int(page)]
            guard role.kind == .node, role.tree != SchemaTrees.ownTree,
                isStillLinked(page, role.tree, pageCount: count),
                BTreePage.isWholeLeaf(content, format)
            else { return false }
            return trees.insert(role.tree)
        }
        guard areLeaves else { return nil }
        if let lastCharge, trees.isSame(as: lastCharge.trees) { return lastCharge.names }
        let sorted = trees.elements
        let found = names(sorted)
        lastCharge = (sorted, found)
        return found
    }

    /// Returns the tree of a page that is a node of a table's tree; nil for any other page. A call would copy the map's
    /// references.
    @inline(__always) func treeOfTable(_ page: UInt32) -> UInt32? {
        guard page > 1, Int(page) < roles.count else { return nil }
        let role = roles[Int(page)]
        return role.kind == .node && role.tree != SchemaTrees.ownTree ? UInt32(truncatingIfNeeded: role.tree) : nil
    }

    /// True if the link to the page still holds, given that only leaves were written.
    private func isStillLinked(_ page: UInt32, _ tree: Int, pageCount: UInt32) -> Bool {
        let parent = parents[Int(page)]
        if parent == 0 { return schema.hasRoot(page, tree) }
        return parent <= pageCount && roles[Int(parent)].kind != .free
    }
}

/// Up to four numbers in insertion order, without a heap allocation.
private struct SmallSet {
    private var first = 0
    private var second = 0
    private var third = 0
    private var fourth = 0
    private var count = 0

    /// Returns false if there is no room.
    mutating func insert(_ new: Int) -> Bool {
        for index in 0..<count where self[index] == new { return true }
        switch count {
        case 0: first = new
        case 1: second = new
        case 2: third = new
        case 3: fourth = new
        default: return false
        }
        count += 1
        return true
    }

    private subscript(index: Int) -> Int {
        switch index {
        case 0: first
        case 1: second
        case 2: third
        default: fourth
        }
    }

    var elements: [Int] { (0..<count).map { self[$0] } }

    func isSame(as other: [Int]) -> Bool {
        guard other.count == count else { return false }
        for index in 0..<count where self[index] != other[index] { return false }
        return true
    }
}

extension BTreePage {
    /// True if the page is a well-formed leaf without overflow cells. Not for page 1.
    ///
    /// A commit waits for this before its subscribers are notified, so it looks at as little of each cell as it can.
    static func isWholeLeaf(_ bytes: UnsafeRawBufferPointer, _ format: PageFormat) -> Bool {
        let usable = format.usableSize
        guard let kind = Kind(rawValue: bytes[0]), !kind.isInterior, usable <= bytes.count else { return false }
        let isTable = kind.isTable
        let count = Int(UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: 3, as: UInt16.self)))
        let pointersEnd = 8 + 2 * count
        guard pointersEnd <= usable else { return false }
        let maxPayload = isTable ? usable - 35 : (usable - 12) * 64 / 255 - 23
        let maxShortPayload = min(maxPayload, 0x7F)
        for index in 0..<count {
            let offset = Int(UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: 8 + 2 * index, as: UInt16.self)))
            guard offset >= pointersEnd, offset + 4 <= usable else { return false }
            let first = Int(bytes[offset])
            // One byte of length, at most nine of the key, and the payload fit: the key needn't be read.
            if first <= maxShortPayload, offset + 10 + first <= usable { continue }
            guard let length = payloadLength(bytes, at: offset, hasKey: isTable, end: usable),
                length.value <= maxPayload, length.end + length.value <= usable
            else { return false }
        }
        return true
    }

    /// Returns a leaf cell's payload length and the payload's offset. Returns nil if the length can't be read or is 16
    /// KiB or more.
    private static func payloadLength(
        _ bytes: UnsafeRawBufferPointer, at offset: Int, hasKey: Bool, end: Int
    ) -> (value: Int, end: Int)? {
        var length = Int(bytes[offset])
        var next = offset + 1
        if length >= 0x80 {
            let low = Int(bytes[next])
            guard low < 0x80 else { return nil }
            length = (length & 0x7F) << 7 | low
            next += 1
        }
        guard hasKey else { return (length, next) }
        // The key is a varint of at most nine bytes.
        let last = min(next + 8, end - 1)
        while next < last, bytes[next] >= 0x80 { next += 1 }
        return (length, next + 1)
    }
}
