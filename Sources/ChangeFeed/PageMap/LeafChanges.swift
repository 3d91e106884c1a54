import SQLiteFormat

/// The short way for what most transactions write.
extension PageMap {
    /// Takes in one transaction, and returns whose its pages were and are. After an error the map is worth nothing.
    mutating func apply(_ transaction: WALTransaction) throws -> Set<String> {
        if let names = chargeLeaves(transaction) { return names }
        let pages = transaction.pages()
        return try apply(pages, pages.changed)
    }

    /// Whose the pages are where each is a leaf that stays where it was and leads nowhere: the map stays as it is. Nil when it
    /// takes more to say it.
    private mutating func chargeLeaves(_ transaction: WALTransaction) -> Set<String>? {
        let count = transaction.pageCount
        guard Int(count) == roles.count - 1 else { return nil }
        var trees = SmallSet()
        let areLeaves = transaction.allSatisfy { page, content in
            guard page > 1, page <= count else { return false }
            let role = roles[Int(page)]
            guard role.kind == .node, role.tree != StoreSchema.own, standsUnlessWritten(page, role.tree, count),
                BTreePage.isWholeLeaf(content, format)
            else { return false }
            return trees.insert(role.tree)
        }
        guard areLeaves else { return nil }
        if let chargedLast, trees.isSame(as: chargedLast.trees) { return chargedLast.names }
        let sorted = trees.elements
        let found = names(sorted)
        chargedLast = (sorted, found)
        return found
    }

    /// Whether what leads to the page still does, if that was not written: and it was not, where leaves alone were.
    private func standsUnlessWritten(_ page: UInt32, _ tree: Int, _ pageCount: UInt32) -> Bool {
        let parent = parents[Int(page)]
        if parent == 0 { return schema.hasRoot(page, tree) }
        return parent <= pageCount && roles[Int(parent)].kind != .free
    }
}

/// Some numbers, in the order they came. Nothing is allocated for it.
private struct SmallSet {
    private var first = 0
    private var second = 0
    private var third = 0
    private var fourth = 0
    private var count = 0

    /// False when there is no room.
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
    /// Whether the page is a well-formed leaf whose cells are all on it. Not for page 1.
    static func isWholeLeaf(_ bytes: UnsafeRawBufferPointer, _ format: PageFormat) -> Bool {
        guard let kind = Kind(rawValue: bytes[0]), !kind.isInterior else { return false }
        let usable = format.usableSize
        let count = bytes.half(3)
        let pointersEnd = 8 + 2 * count
        guard pointersEnd <= usable else { return false }
        let most = kind.isTable ? usable - 35 : (usable - 12) * 64 / 255 - 23
        for index in 0..<count {
            let offset = bytes.half(8 + 2 * index)
            guard offset >= pointersEnd, offset + 4 <= usable,
                let length = payloadLength(bytes, at: offset, hasKey: kind.isTable, end: usable), length.value <= most,
                length.end + length.value <= usable
            else { return false }
        }
        return true
    }

    /// A leaf cell's payload length, and where the payload begins. Nil when it can't be told, or is 16 KiB or more.
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
        // The key is a varint of nine bytes at most.
        let last = min(next + 8, end - 1)
        while next < last, bytes[next] >= 0x80 { next += 1 }
        return (length, next + 1)
    }
}
