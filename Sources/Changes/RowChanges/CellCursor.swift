import SQLiteFormat

/// The cells of a rowid table's touched pages, in the order of their rowids. A leaf is copied, so that both states have
/// theirs in memory while they are compared.
struct CellCursor {
    private let state: any DatabaseState
    /// The leaf's bytes: as many as a page uses.
    private let memory: UnsafeMutableRawBufferPointer
    /// The touched pages that are still to be read; the next one is the last.
    private var pages: [UInt32]
    private var leaf: BTreePage?
    private var page: UInt32 = 0
    /// The place of the next cell on the leaf.
    private var next = 0
    private var lastRowid: Int64?
    /// The cell that was read last; nil at the end.
    private(set) var cell: Cell?

    /// - Parameters:
    ///   - memory: The memory for a leaf, which no other cursor uses.
    ///   - pages: The touched leaves, the first one last, or a page above them.
    init(_ state: any DatabaseState, _ memory: UnsafeMutableRawBufferPointer, _ pages: [UInt32]) {
        self.state = state
        self.memory = memory
        self.pages = pages
    }

    /// Reads the next cell. Throws if the rowids don't ascend.
    mutating func advance(_ touched: PageSet) throws {
        while true {
            if let leaf, next < leaf.cellCount {
                let found = try Cell(leaf, next, page: page)
                next += 1
                try ascend(to: found.rowid)
                return cell = found
            }
            guard let page = pages.popLast() else { return (cell, leaf) = (nil, nil) }
            try open(page, touched)
        }
    }

    private mutating func ascend(to rowid: Int64) throws(Contradiction) {
        if let lastRowid, lastRowid >= rowid { throw .malformed(page: page) }
        lastRowid = rowid
    }

    /// Copies a leaf, or lists the touched children of an interior page.
    private mutating func open(_ page: UInt32, _ touched: PageSet) throws {
        (self.page, next, leaf) = (page, 0, nil)
        try state.withBytes(of: page) { bytes in
            guard bytes.count >= memory.count, let node = BTreePage(bytes, page: page, usableSize: memory.count) else {
                throw Contradiction.malformed(page: page)
            }
            guard node.kind.isInterior else {
                memory.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[..<memory.count]))
                return leaf = BTreePage(UnsafeRawBufferPointer(memory), page: page, usableSize: memory.count)
            }
            if touched.contains(node.lastChild) { pages.append(node.lastChild) }
            for index in stride(from: node.cellCount - 1, through: 0, by: -1) {
                guard let child = node.child(index) else { throw Contradiction.malformed(page: page) }
                if touched.contains(child) { pages.append(child) }
            }
        }
    }

    /// The bytes of the present cell's payload that lie on the leaf.
    func local(_ cell: Cell) -> UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[cell.local]) }

    /// Passes over the first cells of a leaf if the other state has the same cells there. Returns false if the cursors
    /// aren't at the first cell of the same page, or if these two differ.
    static func passEqualCells(_ former: inout CellCursor, _ latter: inout CellCursor) -> Bool {
        guard former.next == 1, latter.next == 1, former.page == latter.page,
            let equal = former.leaf?.equalCells(as: latter.leaf)
        else { return false }
        (former.next, former.lastRowid) = (equal.count, equal.lastRowid)
        (latter.next, latter.lastRowid) = (equal.count, equal.lastRowid)
        return true
    }
}
