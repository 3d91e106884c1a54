import SQLiteFormat

/// The table that owns each page of a database, kept current difference by difference.
///
/// Only the link to a page tells what the page is: the schema links to the root of a tree, an interior page to its
/// children, a cell to its overflow chain. So the map knows the owner of each page of a table, and the page that links
/// to it. Pages of indexes, free pages and those that aren't b-trees have no owner. The map takes eight bytes a page.
///
/// A difference needs two states and the pages that may differ between them. What the map adds is the certainty about
/// all others: a page is *dirty* if it or a page below it differs, overflow chains included.
///
/// - **Invariant A**: the whole subtree below a page that isn't dirty is the same in both states. Dirt goes up from
///   each page that differs, link by link, so nothing below a clean page differs.
/// - **Invariant B**: where the two walks end, they have left out the same clean pages, each at the same height. So the
///   rows that neither walk read are the same on both sides, and those that they read hold the whole difference.
package struct TreeMap: Sendable {
    /// A table of the mapped state.
    struct Tree {
        let entry: SchemaEntry
        let hasRowids: Bool
    }

    /// The tree of the schema itself.
    static let schemaTree: UInt32 = 1
    private static let schemaEntry = SchemaEntry(
        type: "table", name: "sqlite_schema", table: "sqlite_schema", root: 1, sql: "")

    /// The identifier of the tree that owns each page, or 0. A tree keeps its identifier when its root moves.
    var owners: [UInt32] = [0]
    /// The page that links to each page that has an owner; 0 if the schema does.
    var parents: [UInt32] = [0]
    private(set) var trees: [UInt32: Tree] = [:]
    private var entries: [Int64: SchemaEntry] = [:]
    private var lastTree = schemaTree
    /// The format of the mapped state, or nil if it is empty.
    package private(set) var format: PageFormat?
    var sets = Sets()

    /// Reads a whole state.
    package init(_ state: any DatabaseState) throws {
        _ = try advance(from: NoDatabase(), to: state, changed: [], collectsRows: false)
    }

    /// Advances the map from one state to another, and returns the difference. An error invalidates the map: read the
    /// later state anew.
    ///
    /// - Parameters:
    ///   - old: The state that the map describes.
    ///   - new: The later state.
    ///   - changed: The pages that may differ. Others of the earlier state don't. Pages beyond its end needn't be
    ///     named.
    ///   - collectsRows: False if only the map is wanted.
    ///   - key: Returns the fields of a table's key, for a table WITHOUT ROWID, whose records begin with them; nil if
    ///     it isn't known. Rows with the same key, by value and type, are told as one.
    ///   - keepsValues: Returns true if rows whose records are the same under both definitions of a table needn't be
    ///     told. Where it returns false, all rows of the table count as rows that differ.
    package mutating func advance(
        from old: any DatabaseState, to new: any DatabaseState, changed: [UInt32],
        collectsRows: Bool = true, key: @escaping (SchemaEntry) -> [KeyField]? = { _ in nil },
        keepsValues: (_ before: SchemaEntry, _ after: SchemaEntry) -> Bool = { _, _ in true }
    ) throws -> PageDifference {
        let format = try Self.commonFormat(old, new)
        self.format = format
        guard let format else { return PageDifference(tables: [], pages: [], usableSize: 0) }
        let oldCount = old.pageCount
        let charged = try markDirty(changed, old, new)
        var walk = Walk(usableSize: format.usableSize, collectsRows: collectsRows, key: key)
        resize(to: max(oldCount, new.pageCount))

        var tables: [PageDifference.Table] = []
        var pairs: [Pair] = []
        if oldCount == 0 || new.pageCount == 0 || charged.contains(Self.schemaTree) {
            let schema = Pair(
                tree: Self.schemaTree, before: oldCount == 0 ? nil : Self.schemaEntry,
                after: new.pageCount == 0 ? nil : Self.schemaEntry, hasRowids: true)
            let rows = try compare(schema, old, new, &walk)
            tables.append(.init(before: schema.before, after: schema.after, hasRowids: true, rows: rows))
            pairs = try updateSchema(rows, old, new, format)
            for index in pairs.indices {
                guard collectsRows, let before = pairs[index].before, let after = pairs[index].after,
                    !keepsValues(before, after)
                else { continue }
                pairs[index].listsAllRows = true
                // Then both walks read the whole tree.
                for page in owners.indices where owners[page] == pairs[index].tree { sets.dirty.insert(UInt32(page)) }
            }
        }
        let paired = Set(pairs.map(\.tree))
        for tree in charged where tree != Self.schemaTree && !paired.contains(tree) {
            guard let known = trees[tree] else { continue }
            pairs.append(Pair(tree: tree, before: known.entry, after: known.entry, hasRowids: known.hasRowids))
        }
        // A table that is gone may have had the name of another one.
        pairs.sort { ($0.order, $0.name, $0.tree) < ($1.order, $1.name, $1.tree) }
        for pair in pairs {
            let rows = try compare(pair, old, new, &walk)
            guard !rows.isEmpty || pair.before != pair.after else { continue }
            tables.append(.init(before: pair.before, after: pair.after, hasRowids: pair.hasRowids, rows: rows))
        }
        if !collectsRows { tables = [] }
        try update(walk, pageCount: new.pageCount)
        var pages = sets.written.members.filter { $0 <= new.pageCount }
        if oldCount < new.pageCount { pages.append(contentsOf: oldCount + 1...new.pageCount) }
        return PageDifference(tables: tables, pages: pages, usableSize: format.usableSize)
    }

    private static func commonFormat(_ old: any DatabaseState, _ new: any DatabaseState) throws -> PageFormat? {
        func format(_ state: any DatabaseState) throws -> PageFormat? {
            guard state.pageCount > 0 else { return nil }
            guard let format = try state.withPage(1, { PageFormat($0) }) else { throw Contradiction.malformed(page: 1) }
            return format
        }
        let (before, after) = (try format(old), try format(new))
        if let before, let after {
            // A step has one encoding, and its former texts would be read in the new one.
            guard before.hasSamePages(as: after), before.encoding == after.encoding else {
                throw Contradiction.formatChanged
            }
        }
        return after ?? before
    }

    /// Finds the pages that differ, and the dirty ones. Returns the trees that own any.
    private mutating func markDirty(
        _ changed: [UInt32], _ old: any DatabaseState, _ new: any DatabaseState
    ) throws -> Set<UInt32> {
        sets.written.removeAll()
        sets.dirty.removeAll()
        let common = min(old.pageCount, new.pageCount)
        for page in changed where page >= 1 && page <= common {
            let isSame = try old.withPage(page) { former in try new.withPage(page) { former.hasSameBytes(as: $0) } }
            if !isSame { sets.written.insert(page) }
        }
        // What was cut off is no longer what it was.
        if new.pageCount < old.pageCount {
            for page in new.pageCount + 1...old.pageCount where owners[Int(page)] != 0 { sets.written.insert(page) }
        }
        var charged: Set<UInt32> = []
        for page in sets.written.members where owners[Int(page)] != 0 {
            charged.insert(owners[Int(page)])
            var above = page
            while above != 0, sets.dirty.insert(above) { above = parents[Int(above)] }
        }
        return charged
    }

    private mutating func resize(to count: UInt32) {
        let length = Int(count) + 1
        if length < owners.count {
            owners.removeLast(owners.count - length)
            parents.removeLast(parents.count - length)
        } else {
            owners.append(contentsOf: repeatElement(0, count: length - owners.count))
            parents.append(contentsOf: repeatElement(0, count: length - parents.count))
        }
    }

    // MARK: - The schema

    /// Applies the changed rows of the schema, and returns the tables whose entries differ.
    private mutating func updateSchema(
        _ rows: [PageDifference.CellPair], _ old: any DatabaseState, _ new: any DatabaseState, _ format: PageFormat
    ) throws -> [Pair] {
        var buffer: [UInt8] = []
        for row in rows {
            if let before = row.before { entries[try old.cell(before, usableSize: format.usableSize).rowid] = nil }
            guard let place = row.after else { continue }
            let after = try new.cell(place, usableSize: format.usableSize)
            entries[after.rowid] = try new.withPayload(after, usableSize: format.usableSize, buffer: &buffer) {
                guard let entry = SchemaEntry(record: $0, format.encoding) else {
                    throw Contradiction.malformed(page: after.page)
                }
                return entry
            }
        }
        var former = trees
        var found = entries.values.filter { $0.type == "table" && $0.root != 0 }
        var pairs: [Pair] = []
        trees = [:]
        func pair<Key: Hashable>(by key: (SchemaEntry) -> Key) throws {
            var unpaired: [Key: UInt32] = [:]
            for (id, tree) in former { unpaired[key(tree.entry)] = id }
            var rest: [SchemaEntry] = []
            for entry in found {
                guard let id = unpaired[key(entry)], let tree = former[id],
                    try Self.hasRowids(entry.root, new, format) == tree.hasRowids
                else {
                    rest.append(entry)
                    continue
                }
                former[id] = nil
                trees[id] = Tree(entry: entry, hasRowids: tree.hasRowids)
                if tree.entry != entry {
                    pairs.append(Pair(tree: id, before: tree.entry, after: entry, hasRowids: tree.hasRowids))
                }
            }
            found = rest
        }
        // A table that was renamed keeps its root.
        try pair { ExactName($0.name) }
        try pair { $0.root }
        for (id, tree) in former {
            pairs.append(Pair(tree: id, before: tree.entry, after: nil, hasRowids: tree.hasRowids))
        }
        for entry in found {
            lastTree += 1
            let hasRowids = try Self.hasRowids(entry.root, new, format)
            trees[lastTree] = Tree(entry: entry, hasRowids: hasRowids)
            pairs.append(Pair(tree: lastTree, before: nil, after: entry, hasRowids: hasRowids))
        }
        return pairs
    }

    /// Returns true if the tree is one of rows with rowids, as the kind of its root tells.
    private static func hasRowids(_ root: UInt32, _ new: any DatabaseState, _ format: PageFormat) throws -> Bool {
        guard root >= 2, root <= new.pageCount else { throw Contradiction.malformed(page: root) }
        return try new.withPage(root) {
            guard let node = BTreePage($0, page: root, usableSize: format.usableSize) else {
                throw Contradiction.malformed(page: root)
            }
            return node.kind.isTable
        }
    }

    // MARK: - The links

    /// Gives the pages that changed hands to their new owners.
    private mutating func update(_ walk: Walk, pageCount: UInt32) throws {
        for (page, tree) in walk.left {
            guard owners[Int(page)] == tree else { throw Contradiction.linkedTwice(page: page) }
            owners[Int(page)] = 0
            parents[Int(page)] = 0
        }
        for (page, parent) in walk.kept {
            guard owners[Int(page)] != 0 else { throw Contradiction.linkedTwice(page: page) }
            parents[Int(page)] = parent
        }
        for (page, parent, tree) in walk.claimed {
            guard page >= 1, page <= pageCount else { throw Contradiction.malformed(page: parent) }
            guard owners[Int(page)] == 0 else { throw Contradiction.linkedTwice(page: page) }
            owners[Int(page)] = tree
            parents[Int(page)] = parent
        }
        if Int(pageCount) + 1 < owners.count {
            for page in Int(pageCount) + 1..<owners.count where owners[page] != 0 {
                throw Contradiction.unreached(page: UInt32(page))
            }
        }
        resize(to: pageCount)
    }

    /// Returns true if another map says the same of every page and every table.
    package func isSame(as other: TreeMap) -> Bool {
        // Identifiers of trees are those of each map.
        func root(_ tree: UInt32, in map: TreeMap) -> UInt32? {
            tree == 0 ? 0 : tree == Self.schemaTree ? 1 : map.trees[tree]?.entry.root
        }
        return parents == other.parents && entries == other.entries
            && owners.indices.allSatisfy { root(owners[$0], in: self) == root(other.owners[$0], in: other) }
    }
}

/// A table in both states; one of them may lack it.
struct Pair {
    let tree: UInt32
    let before: SchemaEntry?
    let after: SchemaEntry?
    let hasRowids: Bool
    /// True if rows with the same record are listed too.
    var listsAllRows = false

    var name: String { after?.name ?? before?.name ?? "" }

    var order: Int { after == nil ? 0 : before == nil ? 2 : 1 }
}

/// The sets of pages that a difference needs. They are kept, because emptying a set costs less than making one.
struct Sets: Sendable {
    /// The pages whose bytes differ.
    var written = PageSet()
    /// The pages that differ themselves or have one below them that does.
    var dirty = PageSet()
    /// The pages that the walk of one tree reads in each state.
    var oldTouched = PageSet()
    var newTouched = PageSet()
}
