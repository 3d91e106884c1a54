import SQLiteFormat

/// Where the pages of one state of a store come from.
protocol PageSource: AnyObject {
    /// Pages of the database in that state.
    var pageCount: UInt32 { get }
    /// Whether it may differ from what it was in the state before.
    func isChanged(_ page: UInt32) -> Bool
    /// The page's bytes, valid until the next call. Asked for changed pages only.
    func content(of page: UInt32) throws -> UnsafeRawBufferPointer
}

/// Which b-tree each page of a store belongs to, kept current transaction by transaction.
///
/// A page says only by who leads to it what it is: the schema to a tree's root, an interior page to its children, a
/// cell to its overflow chain, page 1 and the freelist's trunks to what is free. Exactly one leads to each page. So of
/// the pages that a transaction wrote, those whose predecessor it did not write are what they were, and the others are
/// what the written pages say, from the top down. Whatever does not fit makes the map worthless: better none than one
/// that misses a table. It takes eight bytes a page.
struct PageMap: Sendable {
    private(set) var format: PageFormat
    private(set) var roles: [PageRole]
    /// Which page leads to each; 0 where the schema does.
    private(set) var parents: [UInt32]
    private(set) var schema = StoreSchema()
    /// What `chargeLeaves` said last, for as long as the schema stays.
    var chargedLast: (trees: [Int], names: Set<String>)?

    /// 32 MiB of map, and 16 GiB of store in pages of 4 KiB. A larger store's changes aren't told table by table.
    static let mostPages = 4 << 20

    /// The change counter in the header of the state that is known.
    var changeCounter: UInt32? { schema.changeCounter }

    /// Reads a whole store.
    init(_ source: some PageSource) throws {
        guard let format = PageFormat(try source.content(of: 1)) else { throw Unattributable.malformed(page: 1) }
        self.format = format
        roles = []
        parents = []
        var pass = Pass(source: source, visited: nil)
        try resize(to: source.pageCount)
        try visitFirst(&pass)
        try visitQueue(&pass)
        try refreshSchema(&pass)
        try visitQueue(&pass)
    }

    /// Takes in one transaction that wrote the pages `changed`, and returns whose they were and are. After an error
    /// the map is worth nothing.
    mutating func apply(_ source: some PageSource, _ changed: some Collection<UInt32>) throws -> Set<String> {
        var pass = Pass(source: source, visited: [])
        pass.visited?.reserveCapacity(changed.count)
        let formerCount = roles.count - 1
        for page in changed where page <= formerCount { charge(roles[Int(page)], &pass) }
        if source.pageCount < formerCount {
            for page in Int(source.pageCount) + 1...formerCount { charge(roles[page], &pass) }
        }
        try resize(to: source.pageCount)

        // First what is free and what the schema says: that decides which of the other links still stand.
        if source.isChanged(1) { try visitFirst(&pass) }
        visitStanding(changed, &pass) { $0.kind == .trunk }
        try visitQueue(&pass)
        visitStanding(changed, &pass) { $0.kind.isContent && $0.tree == StoreSchema.own }
        try visitQueue(&pass)
        try refreshSchema(&pass)
        try visitQueue(&pass)
        visitStanding(changed, &pass) { _ in true }
        try visitQueue(&pass)
        for page in changed where page != 1 && !format.isReserved(page) && pass.visited?.contains(page) != true {
            throw Unattributable.unreached(page: page)
        }
        let names = names(pass.trees)
        return pass.names.isEmpty ? names : pass.names.union(names)
    }

    private mutating func resize(to count: UInt32) throws(Unattributable) {
        guard count <= Self.mostPages else { throw .tooLarge }
        let length = Int(count) + 1
        if length < roles.count {
            roles.removeLast(roles.count - length)
            parents.removeLast(parents.count - length)
        } else if length > roles.count {
            roles.append(contentsOf: repeatElement(.unknown, count: length - roles.count))
            parents.append(contentsOf: repeatElement(0, count: length - parents.count))
        }
    }

    func names(_ trees: some Collection<Int>) -> Set<String> {
        // Mostly there is one.
        if trees.count == 1, let tree = trees.first { return schema.charged(tree) }
        return trees.reduce(into: []) { $0.formUnion(schema.charged($1)) }
    }
}

/// What a page is, and the tree it belongs to.
struct PageRole: Equatable, Sendable {
    enum Kind: UInt32 {
        case unknown, node, overflow, trunk, free

        /// Whether it holds what a table holds.
        var isContent: Bool { self == .node || self == .overflow }
    }

    private let raw: UInt32

    init(_ kind: Kind, _ tree: Int) { raw = kind.rawValue | UInt32(truncatingIfNeeded: tree) << 3 }

    static let unknown = PageRole(.unknown, 0)
    static let free = PageRole(.free, 0)
    static let trunk = PageRole(.trunk, 0)

    var kind: Kind { Kind(rawValue: raw & 7) ?? .unknown }
    var tree: Int { Int(raw >> 3) }
}

// MARK: - One pass over the pages of a state

/// What a pass has found so far.
private struct Pass<Source: PageSource> {
    let source: Source
    /// The changed pages whose role is certain; nil when all are read for the first time.
    var visited: Set<UInt32>?
    /// Visited, and their links still to be followed.
    var queue: [UInt32] = []
    var trees: Set<Int> = []
    var names: Set<String> = []
}

extension PageMap {
    private func charge(_ role: PageRole, _ pass: inout Pass<some PageSource>) {
        if role.kind.isContent, role.tree != StoreSchema.own { pass.trees.insert(role.tree) }
    }

    /// Page 1: the header, the freelist's beginning, and the root of the schema.
    private mutating func visitFirst(_ pass: inout Pass<some PageSource>) throws {
        let content = try pass.source.content(of: 1)
        guard let now = PageFormat(content), now == format else { throw Unattributable.formatChanged }
        let freelist = content.word(32)
        roles[1] = PageRole(.node, StoreSchema.own)
        try follow(1, content, &pass)
        if freelist != 0 { try link(freelist, .trunk, from: 1, &pass) }
    }

    /// Those of the changed pages whose predecessor still leads to them, as what they were.
    private func visitStanding(
        _ changed: some Collection<UInt32>, _ pass: inout Pass<some PageSource>, _ isWanted: (PageRole) -> Bool
    ) {
        for page in changed where page != 1 && pass.visited?.contains(page) == false {
            let role = roles[Int(page)]
            guard role.kind != .unknown, isWanted(role), stands(page, role, pass.source) else { continue }
            pass.visited?.insert(page)
            if role.kind != .free { pass.queue.append(page) }
        }
    }

    private func stands(_ page: UInt32, _ role: PageRole, _ source: some PageSource) -> Bool {
        let parent = parents[Int(page)]
        if parent == 0 { return role.kind == .node && schema.hasRoot(page, role.tree) }
        // One that was cut off, or became free without being written, leads nowhere any more.
        return parent <= source.pageCount && !source.isChanged(parent) && roles[Int(parent)].kind != .free
    }

    private mutating func visitQueue(_ pass: inout Pass<some PageSource>) throws {
        while let page = pass.queue.popLast() { try follow(page, pass.source.content(of: page), &pass) }
    }

    private mutating func follow(
        _ page: UInt32, _ content: UnsafeRawBufferPointer, _ pass: inout Pass<some PageSource>
    ) throws {
        let role = roles[Int(page)]
        if role.tree == StoreSchema.own, role.kind.isContent { try schema.take(content, as: page) }
        switch role.kind {
        case .node:
            guard let node = BTreePage(content, page: page, format), let links = PageLinks(node) else {
                throw Unattributable.malformed(page: page)
            }
            for child in links.children { try link(child, role, from: page, &pass) }
            for child in links.overflow { try link(child, PageRole(.overflow, role.tree), from: page, &pass) }
        case .overflow:
            let next = content.word(0)
            if next != 0 { try link(next, role, from: page, &pass) }
        case .trunk:
            let next = content.word(0)
            let count = Int(content.word(4))
            guard count <= format.usableSize / 4 - 2 else { throw Unattributable.malformed(page: page) }
            for index in 0..<count { try link(content.word(8 + 4 * index), .free, from: page, &pass) }
            if next != 0 { try link(next, .trunk, from: page, &pass) }
        case .free, .unknown: break
        }
    }

    /// `page` is what a page that was just read says.
    private mutating func link(
        _ page: UInt32, _ role: PageRole, from parent: UInt32, _ pass: inout Pass<some PageSource>
    ) throws {
        guard page >= 2, page <= pass.source.pageCount, !format.isReserved(page) else {
            throw Unattributable.malformed(page: parent)
        }
        let known = roles[Int(page)]
        if pass.source.isChanged(page) {
            let isNew = pass.visited?.insert(page).inserted ?? (known == .unknown)
            guard isNew else { throw Unattributable.conflict(page: page) }
            charge(role, &pass)
            roles[Int(page)] = role
            if role.kind != .free { pass.queue.append(page) }
        } else if known != role {
            // A page that becomes free need not be written; any other one would have been.
            guard role.kind == .free else { throw Unattributable.conflict(page: page) }
            charge(known, &pass)
            roles[Int(page)] = role
        }
        parents[Int(page)] = parent
    }

    /// Where the schema changed: charges what its entries name, and links the roots of new and moved trees.
    private mutating func refreshSchema(_ pass: inout Pass<some PageSource>) throws {
        // As they were called before.
        let former = names(pass.trees)
        guard let update = try schema.refresh(format) else { return }
        chargedLast = nil
        pass.names.formUnion(former)
        pass.names.formUnion(update.charged)
        for (root, tree) in update.roots { try link(root, PageRole(.node, tree), from: 0, &pass) }
    }
}
