import SQLiteFormat

/// A source of the pages of one state of a store.
protocol PageSource: AnyObject {
    /// The database's size in pages in that state.
    var pageCount: UInt32 { get }
    /// True if the page may differ from its former state.
    func isChanged(_ page: UInt32) -> Bool
    /// Returns the page's bytes, which are valid until the next call. Called for changed pages only.
    func content(of page: UInt32) throws -> UnsafeRawBufferPointer
}

/// The b-tree that each page of a store belongs to, kept current transaction by transaction.
///
/// Only the link to a page tells what the page is. The schema links to a tree's root, an interior page to its children,
/// a cell to its overflow chain, and page 1 and the freelist's trunks to free pages. Exactly one link leads to each
/// page. So a written page keeps its role if the page that links to it was not written. The roles of the other written
/// pages follow from the written pages, from the top down. Any contradiction invalidates the map: no map is better than
/// one that misses a table. The map takes eight bytes a page.
struct PageMap: Sendable {
    private(set) var format: PageFormat
    private(set) var roles: [PageRole]
    /// The page that links to each page, or 0 if the schema does.
    private(set) var parents: [UInt32]
    private(set) var schema = SchemaTrees()
    /// The last result of `chargeLeaves`, valid until the schema changes.
    var lastCharge: (trees: [Int], names: Set<ExactName>)?

    /// 32 MiB of map, and 16 GiB of store with pages of 4 KiB. Changes of a larger store aren't attributed to tables.
    static let maxPages = 4 << 20

    /// The change counter in the header of the mapped state.
    var changeCounter: UInt32? { schema.changeCounter }

    /// The size in pages of the mapped state.
    var pageCount: UInt32 { UInt32(roles.count - 1) }

    /// True for a leaf of the freelist.
    func isFree(_ page: UInt32) -> Bool { page <= pageCount && roles[Int(page)].kind == .free }

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

    /// Applies one transaction that wrote the pages `changed`, and returns the tables that own or owned them. An error
    /// invalidates the map.
    mutating func apply(_ source: some PageSource, _ changed: some Collection<UInt32>) throws -> Set<ExactName> {
        var pass = Pass(source: source, visited: [])
        pass.visited?.reserveCapacity(changed.count)
        let formerCount = roles.count - 1
        for page in changed where page <= formerCount { charge(roles[Int(page)], &pass) }
        if source.pageCount < formerCount {
            for page in Int(source.pageCount) + 1...formerCount { charge(roles[page], &pass) }
        }
        try resize(to: source.pageCount)

        // The freelist and the schema come first: they decide which of the other links still hold.
        if source.isChanged(1) { try visitFirst(&pass) }
        visitStillLinked(changed, in: &pass) { $0.kind == .trunk }
        try visitQueue(&pass)
        visitStillLinked(changed, in: &pass) { $0.kind.isContent && $0.tree == SchemaTrees.ownTree }
        try visitQueue(&pass)
        try refreshSchema(&pass)
        try visitQueue(&pass)
        visitStillLinked(changed, in: &pass) { _ in true }
        try visitQueue(&pass)
        for page in changed where page != 1 && !format.isReserved(page) && pass.visited?.contains(page) != true {
            throw Unattributable.unreached(page: page)
        }
        let names = names(pass.trees)
        return pass.names.isEmpty ? names : pass.names.union(names)
    }

    private mutating func resize(to count: UInt32) throws(Unattributable) {
        guard count <= Self.maxPages else { throw .tooLarge }
        let length = Int(count) + 1
        if length < roles.count {
            roles.removeLast(roles.count - length)
            parents.removeLast(parents.count - length)
        } else if length > roles.count {
            roles.append(contentsOf: repeatElement(.unknown, count: length - roles.count))
            parents.append(contentsOf: repeatElement(0, count: length - parents.count))
        }
    }

    func names(_ trees: some Collection<Int>) -> Set<ExactName> {
        // Usually there is one tree.
        if trees.count == 1, let tree = trees.first { return schema.charged(tree) }
        return trees.reduce(into: []) { $0.formUnion(schema.charged($1)) }
    }
}

/// A page's kind and the tree it belongs to.
struct PageRole: Equatable, Sendable {
    enum Kind: UInt32 {
        case unknown, node, overflow, trunk, free

        /// True if the page holds table content.
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

/// The results of a pass so far.
private struct Pass<Source: PageSource> {
    let source: Source
    /// The changed pages whose role is determined, or nil during the first read of all pages.
    var visited: Set<UInt32>?
    /// Visited pages whose links are still to be followed.
    var queue: [UInt32] = []
    var trees: Set<Int> = []
    var names: Set<ExactName> = []
}

extension PageMap {
    private func charge(_ role: PageRole, _ pass: inout Pass<some PageSource>) {
        if role.kind.isContent, role.tree != SchemaTrees.ownTree { pass.trees.insert(role.tree) }
    }

    /// Visits page 1: the header, the head of the freelist, and the root of the schema.
    private mutating func visitFirst(_ pass: inout Pass<some PageSource>) throws {
        let content = try pass.source.content(of: 1)
        guard let now = PageFormat(content), now == format else { throw Unattributable.formatChanged }
        let freelist = content.word(32)
        roles[1] = PageRole(.node, SchemaTrees.ownTree)
        try follow(1, content: content, in: &pass)
        if freelist != 0 { try link(freelist, as: .trunk, from: 1, in: &pass) }
    }

    /// Visits the changed pages that are still linked from the same page, with their former role.
    private func visitStillLinked(
        _ changed: some Collection<UInt32>, in pass: inout Pass<some PageSource>, where isWanted: (PageRole) -> Bool
    ) {
        for page in changed where page != 1 && pass.visited?.contains(page) == false {
            let role = roles[Int(page)]
            guard role.kind != .unknown, isWanted(role), isStillLinked(page, role, in: pass.source) else { continue }
            pass.visited?.insert(page)
            if role.kind != .free { pass.queue.append(page) }
        }
    }

    private func isStillLinked(_ page: UInt32, _ role: PageRole, in source: some PageSource) -> Bool {
        let parent = parents[Int(page)]
        if parent == 0 { return role.kind == .node && schema.hasRoot(page, role.tree) }
        // A page that was cut off, or was freed without being written, links to nothing any more.
        return parent <= source.pageCount && !source.isChanged(parent) && roles[Int(parent)].kind != .free
    }

    private mutating func visitQueue(_ pass: inout Pass<some PageSource>) throws {
        while let page = pass.queue.popLast() { try follow(page, content: pass.source.content(of: page), in: &pass) }
    }

    private mutating func follow(
        _ page: UInt32, content: UnsafeRawBufferPointer, in pass: inout Pass<some PageSource>
    ) throws {
        let role = roles[Int(page)]
        if role.tree == SchemaTrees.ownTree, role.kind.isContent { try schema.setPage(page, to: content) }
        switch role.kind {
        case .node:
            guard let node = BTreePage(content, page: page, format), let links = PageLinks(node) else {
                throw Unattributable.malformed(page: page)
            }
            for child in links.children { try link(child, as: role, from: page, in: &pass) }
            for child in links.overflow { try link(child, as: PageRole(.overflow, role.tree), from: page, in: &pass) }
        case .overflow:
            let next = content.word(0)
            if next != 0 { try link(next, as: role, from: page, in: &pass) }
        case .trunk:
            let next = content.word(0)
            let count = Int(content.word(4))
            guard count <= format.usableSize / 4 - 2 else { throw Unattributable.malformed(page: page) }
            for index in 0..<count { try link(content.word(8 + 4 * index), as: .free, from: page, in: &pass) }
            if next != 0 { try link(next, as: .trunk, from: page, in: &pass) }
        case .free, .unknown: break
        }
    }

    /// Records the role of `page` as given by the link on `parent`.
    private mutating func link(
        _ page: UInt32, as role: PageRole, from parent: UInt32, in pass: inout Pass<some PageSource>
    ) throws {
        guard page >= 2, page <= pass.source.pageCount, !format.isReserved(page) else {
            throw Unattributable.malformed(page: parent)
        }
        let former = roles[Int(page)]
        if pass.source.isChanged(page) {
            let isNew = pass.visited?.insert(page).inserted ?? (former == .unknown)
            guard isNew else { throw Unattributable.conflict(page: page) }
            charge(role, &pass)
            roles[Int(page)] = role
            if role.kind != .free { pass.queue.append(page) }
        } else if former != role {
            // A page need not be written to be freed. Any other change writes it.
            guard role.kind == .free else { throw Unattributable.conflict(page: page) }
            charge(former, &pass)
            roles[Int(page)] = role
        }
        parents[Int(page)] = parent
    }

    /// Charges the tables that a changed schema's entries name, and links the roots of new and moved trees.
    private mutating func refreshSchema(_ pass: inout Pass<some PageSource>) throws {
        // Their names before the change.
        let former = names(pass.trees)
        guard let update = try schema.refresh(format, isWritten: pass.source.isChanged) else { return }
        lastCharge = nil
        pass.names.formUnion(former)
        pass.names.formUnion(update.charged)
        for (root, tree) in update.roots { try link(root, as: PageRole(.node, tree), from: 0, in: &pass) }
    }
}
