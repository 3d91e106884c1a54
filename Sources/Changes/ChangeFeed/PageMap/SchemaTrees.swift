import SQLiteFormat

/// The content of `sqlite_schema`, kept current page by page, and the tables that each b-tree's changes are charged to.
struct SchemaTrees: Sendable {
    /// A b-tree. Its number is its index in the list, which stays when the tree is moved or renamed.
    private struct Tree {
        var entry: SchemaEntry
        /// The table and the virtual tables that show its content.
        var charged: Set<ExactName>
    }

    /// The number of `sqlite_schema`'s own b-tree.
    static let ownTree = 0
    /// SQLite's name for the schema table.
    static let name: ExactName = "sqlite_schema"

    /// The pages of the schema's b-tree and its overflow chains, by number.
    private var pages: [UInt32: CompactPage] = [:]
    private var size = 0
    private var entries: Set<SchemaEntry> = []
    private var trees: [Tree?] = [nil]
    private var isStale = false

    /// The most bytes of schema pages to keep, and the most trees to number. A larger schema isn't followed.
    private static let maxBytes = 64 << 20
    private static let maxTrees = 1 << 20

    /// The changes between two states of the schema.
    struct Update {
        /// The trees that are new or have another root page.
        var roots: [(root: UInt32, tree: Int)] = []
        var charged: Set<ExactName> = []
    }

    /// Returns the names that a change of the tree is charged to.
    func charged(_ tree: Int) -> Set<ExactName> { trees[tree]?.charged ?? [] }

    /// True if the tree's root is that page.
    func hasRoot(_ page: UInt32, _ tree: Int) -> Bool { trees[tree]?.entry.root == page }

    /// Stores the present content of a schema page.
    mutating func setPage(_ page: UInt32, to content: UnsafeRawBufferPointer) throws(Unattributable) {
        // Page 1 begins with the database header, which changes more often.
        let ignored = page == 1 ? 100 : 0
        if let known = pages[page], known.isSame(as: content, from: ignored) {
            if page == 1 { pages[page] = CompactPage(content) }
            return
        }
        isStale = true
        size += content.count - (pages[page]?.count ?? 0)
        guard size <= Self.maxBytes else { throw .tooLarge }
        pages[page] = CompactPage(content)
    }

    /// The database's change counter in the known content of page 1.
    var changeCounter: UInt32? { pages[1]?.word(24) }

    /// Re-reads the entries if a page has changed. Returns nil if none has.
    ///
    /// - Parameter isWritten: Returns whether the page may differ from its state before the change.
    mutating func refresh(
        _ format: PageFormat, isWritten: (UInt32) -> Bool
    ) throws(Unattributable) -> Update? {
        guard isStale else { return nil }
        isStale = false
        var reading = SchemaReading(pages: pages.mapValues(\.expanded), format: format)
        try reading.read(1)
        pages = pages.filter { reading.visited.contains($0.key) }
        size = pages.values.reduce(0) { $0 + $1.count }
        return try replace(with: reading.entries, isWritten: isWritten)
    }

    private mutating func replace(
        with new: [SchemaEntry], isWritten: (UInt32) -> Bool
    ) throws(Unattributable) -> Update {
        var update = Update()
        let now = Set(new)
        for entry in entries.symmetricDifference(now) where entry.type != "trigger" && entry.type != "view" {
            update.charged.insert(ExactName(entry.table))
        }
        update.charged.insert(Self.name)
        for name in update.charged {
            update.charged.formUnion(ExternalContentTables(Array(entries)).dependents(of: name))
        }
        entries = now

        let virtual = ExternalContentTables(new)
        for name in update.charged { update.charged.formUnion(virtual.dependents(of: name)) }
        var numbered: [(Int, SchemaEntry)] = []
        var former = FormerTrees(trees.map { $0?.entry })
        var unmatched = new.filter { $0.root != 0 }
        // Trees that stayed, perhaps under another's former name, then those moved by auto-vacuum or VACUUM, then
        // renamed ones.
        for match in FormerTrees.matchOrder {
            unmatched = unmatched.filter { entry in
                guard let number = former.claim(entry, by: match, isWritten: isWritten) else { return true }
                if trees[number]?.entry.root != entry.root { update.roots.append((entry.root, number)) }
                numbered.append((number, entry))
                return false
            }
        }
        for entry in unmatched {
            update.roots.append((entry.root, trees.count))
            numbered.append((trees.count, entry))
            trees.append(nil)
        }
        guard trees.count <= Self.maxTrees else { throw .tooLarge }
        for number in former.unclaimed { trees[number] = nil }
        var charges: [ExactName: Set<ExactName>] = [:]
        for (number, entry) in numbered {
            let table = ExactName(entry.table)
            let charged = charges[table] ?? virtual.dependents(of: table).union([table])
            charges[table] = charged
            trees[number] = Tree(entry: entry, charged: charged)
        }
        return update
    }
}

/// The trees that no entry of the new schema has claimed yet.
private struct FormerTrees {
    enum Match { case nameAndRoot, unwrittenRoot, name, root }
    static let matchOrder: [Match] = [.nameAndRoot, .unwrittenRoot, .name, .root]

    private var byRoot: [UInt32: Int] = [:]
    private var byName: [ExactName: Int] = [:]
    private(set) var unclaimed: Set<Int> = []

    init(_ entries: [SchemaEntry?]) {
        for (number, entry) in entries.enumerated() {
            guard let entry else { continue }
            byRoot[entry.root] = number
            byName[ExactName(entry.name)] = number
            unclaimed.insert(number)
        }
    }

    mutating func claim(_ entry: SchemaEntry, by match: Match, isWritten: (UInt32) -> Bool) -> Int? {
        let found =
            switch match {
            case .nameAndRoot: byRoot[entry.root].flatMap { byName[ExactName(entry.name)] == $0 ? $0 : nil }
            // A page that becomes another tree's root is written.
            case .unwrittenRoot: isWritten(entry.root) ? nil : byRoot[entry.root]
            case .name: byName[ExactName(entry.name)]
            case .root: byRoot[entry.root]
            }
        return found.flatMap { unclaimed.remove($0) }
    }
}

/// One walk over the schema's b-tree in the stored pages.
private struct SchemaReading {
    let pages: [UInt32: [UInt8]]
    let format: PageFormat
    private(set) var entries: [SchemaEntry] = []
    private(set) var visited: Set<UInt32> = []

    init(pages: [UInt32: [UInt8]], format: PageFormat) {
        self.pages = pages
        self.format = format
    }

    mutating func read(_ number: UInt32) throws(Unattributable) {
        guard let content = pages[number], visited.insert(number).inserted else { throw .schemaNotUnderstood }
        var children: [UInt32] = []
        var records: [[UInt8]]? = []
        content.withUnsafeBytes { bytes in
            guard let page = BTreePage(bytes, page: number, format), page.kind.isTable else { return records = nil }
            if page.kind.isInterior {
                guard let links = PageLinks(page) else { return records = nil }
                children = links.children
            } else {
                records = self.records(of: page, bytes)
            }
        }
        guard let records else { throw .schemaNotUnderstood }
        for record in records {
            guard let entry = record.withUnsafeBytes({ SchemaEntry(record: $0, format.encoding) }) else {
                throw .schemaNotUnderstood
            }
            entries.append(entry)
        }
        for child in children { try read(child) }
    }

    private mutating func records(of page: BTreePage, _ bytes: UnsafeRawBufferPointer) -> [[UInt8]]? {
        var records: [[UInt8]] = []
        for index in 0..<page.cellCount {
            guard let payload = page.payload(index) else { return nil }
            var record = Array(bytes[payload.local])
            var next = payload.overflow
            while record.count < payload.length {
                guard let content = pages[next], visited.insert(next).inserted else { return nil }
                record += content[4..<min(format.usableSize, 4 + payload.length - record.count)]
                next = content.withUnsafeBytes { $0.word(0) }
            }
            records.append(record)
        }
        return records
    }
}
