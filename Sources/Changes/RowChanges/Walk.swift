import SQLiteFormat

/// What the walks of a difference's trees found.
struct Walk {
    let usableSize: Int
    let collectsRows: Bool
    private let keyFields: (SchemaEntry) -> [KeyField]?
    /// The pages that trees no longer have where they had them.
    var left: [(page: UInt32, tree: UInt32)] = []
    /// Clean pages, and the pages that link to them now.
    var kept: [(page: UInt32, parent: UInt32)] = []
    /// The pages that trees have now.
    var claimed: [(page: UInt32, parent: UInt32, tree: UInt32)] = []
    /// The clean pages of one tree that a walk has met and left out, by height; leaves have height 0.
    var oldClean: [[UInt32]] = []
    var newClean: [[(page: UInt32, parent: UInt32)]] = []
    /// The leaves of one tree that the walks have read, in the order of their rows.
    var oldLeaves: [UInt32] = []
    var newLeaves: [UInt32] = []
    /// False if the earlier state's leaves are in another order.
    var ordersOldLeaves = true

    init(usableSize: Int, collectsRows: Bool, key: @escaping (SchemaEntry) -> [KeyField]?) {
        self.usableSize = usableSize
        self.collectsRows = collectsRows
        keyFields = key
    }

    /// Returns the fields of the key of a table WITHOUT ROWID; nil if they aren't known, or aren't the same in both
    /// states.
    func key(of pair: Pair) -> [KeyField]? {
        guard collectsRows, let before = pair.before, let after = pair.after, let key = keyFields(after) else {
            return nil
        }
        return before == after || keyFields(before) == key ? key : nil
    }

    /// The height of a tree: the number of links from its root to a leaf, which is the same for all leaves.
    func height(of root: UInt32, in state: any DatabaseState) throws -> Int {
        var (page, height) = (root, 0)
        while true {
            let child: UInt32? = try withNode(page, in: state) {
                guard $0.kind.isInterior else { return nil }
                guard $0.cellCount > 0 else { return $0.lastChild }
                guard let child = $0.child(0) else { throw Contradiction.malformed(page: page) }
                return child
            }
            guard let child else { return height }
            page = child
            height += 1
            // https://sqlite.org/fileformat2.html, §1.6: no tree that fits into a database is as high.
            guard height < 32 else { throw Contradiction.malformed(page: root) }
        }
    }

    func withNode<Result>(
        _ page: UInt32, in state: any DatabaseState, _ body: (BTreePage) throws -> Result
    ) throws -> Result {
        guard page >= 1, page <= state.pageCount else { throw Contradiction.malformed(page: page) }
        return try state.withPage(page) {
            guard let node = BTreePage($0, page: page, usableSize: usableSize) else {
                throw Contradiction.malformed(page: page)
            }
            return try body(node)
        }
    }

    /// The children of a page at `height`, in order; none of a leaf.
    ///
    /// - Parameter pages: Leaves out all others. Nil: leaves out none.
    func children(
        of page: UInt32, height: Int, hasRowids: Bool, in state: any DatabaseState, among pages: PageSet? = nil
    ) throws -> [UInt32] {
        try withNode(page, in: state) { node in
            guard node.kind.isInterior == (height > 0), node.kind.isTable == hasRowids else {
                throw Contradiction.malformed(page: page)
            }
            guard height > 0 else { return [] }
            var children: [UInt32] = []
            if pages == nil { children.reserveCapacity(node.cellCount + 1) }
            for index in 0..<node.cellCount {
                guard let child = node.child(index) else { throw Contradiction.malformed(page: page) }
                if pages?.contains(child) ?? true { children.append(child) }
            }
            if pages?.contains(node.lastChild) ?? true { children.append(node.lastChild) }
            return children
        }
    }
}

extension TreeMap {
    /// Walks a table in both states, and returns the rows that differ.
    mutating func compare(
        _ pair: Pair, _ old: any DatabaseState, _ new: any DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        sets.oldTouched.removeAll()
        sets.newTouched.removeAll()
        (walk.oldLeaves, walk.newLeaves, walk.ordersOldLeaves) = ([], [], true)
        let (oldRoot, newRoot) = (pair.before?.root, pair.after?.root)
        if let oldRoot, oldRoot == newRoot, !sets.dirty.contains(oldRoot) { return [] }
        let oldHeight = try oldRoot.map { try walk.height(of: $0, in: old) } ?? 0
        let newHeight = try newRoot.map { try walk.height(of: $0, in: new) } ?? 0
        walk.oldClean = Array(repeating: [], count: max(oldHeight, newHeight) + 1)
        walk.newClean = Array(repeating: [], count: max(oldHeight, newHeight) + 1)
        if let oldRoot, oldRoot == newRoot, oldHeight == newHeight, pair.hasRowids {
            try descend(oldRoot, parent: 0, oldHeight, pair, old, new, &walk)
        } else {
            if let oldRoot { try openOld(oldRoot, oldHeight, pair, old, &walk) }
            if let newRoot { try openNew(newRoot, parent: 0, newHeight, pair, new, &walk) }
        }
        try pairClean(pair, old, &walk)
        return pair.hasRowids
            ? try mergeRows(pair, old, new, &walk) : try matchRecords(pair, old, new, &walk)
    }

    /// Follows the links of interior pages that are the same in both states to those that differ.
    private mutating func descend(
        _ page: UInt32, parent: UInt32, _ height: Int, _ pair: Pair, _ old: any DatabaseState,
        _ new: any DatabaseState, _ walk: inout Walk
    ) throws {
        guard height > 0, !sets.written.contains(page) else {
            try openOld(page, height, pair, old, &walk)
            return try openNew(page, parent: parent, height, pair, new, &walk)
        }
        sets.oldTouched.insert(page)
        sets.newTouched.insert(page)
        for child in try walk.children(of: page, height: height, hasRowids: true, in: new, among: sets.dirty) {
            try descend(child, parent: page, height - 1, pair, old, new, &walk)
        }
    }

    /// Opens a page of the earlier state, and those below it that are dirty.
    private mutating func openOld(
        _ page: UInt32, _ height: Int, _ pair: Pair, _ old: any DatabaseState, _ walk: inout Walk
    ) throws {
        if !sets.dirty.contains(page) { return walk.oldClean[height].append(page) }
        try readOld(page, height, pair, old, &walk)
    }

    private mutating func readOld(
        _ page: UInt32, _ height: Int, _ pair: Pair, _ old: any DatabaseState, _ walk: inout Walk
    ) throws {
        guard sets.oldTouched.insert(page) else { throw Contradiction.linkedTwice(page: page) }
        walk.left.append((page, pair.tree))
        if height == 0 { walk.oldLeaves.append(page) }
        for child in try walk.children(of: page, height: height, hasRowids: pair.hasRowids, in: old) {
            try openOld(child, height - 1, pair, old, &walk)
        }
    }

    /// Opens a page of the later state, and those below it that aren't the tree's clean ones.
    private mutating func openNew(
        _ page: UInt32, parent: UInt32, _ height: Int, _ pair: Pair, _ new: any DatabaseState, _ walk: inout Walk
    ) throws {
        guard page >= 1, page <= new.pageCount else { throw Contradiction.malformed(page: parent) }
        if owners[Int(page)] == pair.tree, !sets.dirty.contains(page) {
            return walk.newClean[height].append((page, parent))
        }
        guard sets.newTouched.insert(page) else { throw Contradiction.linkedTwice(page: page) }
        walk.claimed.append((page, parent, pair.tree))
        if height == 0 { walk.newLeaves.append(page) }
        for child in try walk.children(of: page, height: height, hasRowids: pair.hasRowids, in: new) {
            try openNew(child, parent: page, height - 1, pair, new, &walk)
        }
    }

    /// Cancels the clean pages that both walks left out, from the top down. One that only the earlier state has is
    /// opened. One that only the later state has can't be: all that it could hang from in the earlier state is open.
    private mutating func pairClean(_ pair: Pair, _ old: any DatabaseState, _ walk: inout Walk) throws {
        for height in walk.oldClean.indices.reversed() {
            let (former, latter) = (walk.oldClean[height], walk.newClean[height])
            if former.isEmpty && latter.isEmpty { continue }
            // Mostly, they come in the same order.
            var rest: [UInt32: UInt32] = [:]
            if former.count == latter.count, zip(former, latter).allSatisfy({ $0 == $1.page }) {
                walk.kept.append(contentsOf: latter)
                continue
            }
            for (page, parent) in latter {
                guard rest.updateValue(parent, forKey: page) == nil else { throw Contradiction.linkedTwice(page: page) }
            }
            for page in former {
                if let parent = rest.removeValue(forKey: page) {
                    walk.kept.append((page, parent))
                } else {
                    walk.ordersOldLeaves = false
                    try readOld(page, height, pair, old, &walk)
                }
            }
            if let page = rest.keys.first { throw Contradiction.linkedTwice(page: page) }
        }
    }
}

/// A field of the key of a table WITHOUT ROWID.
package enum KeyField: Sendable {
    case plain
    /// Of a column of REAL affinity: a whole number may be stored as an integer, and is a real nevertheless.
    case real

    func value(_ field: RowRecord.Field) -> RowRecord.Field {
        if self == .real, case .integer(let number) = field { return .real(Double(number)) }
        return field
    }
}
