import SQLiteFormat

/// The cells of a rowid table's touched pages, in the order of their rowids.
struct CellCursor<State: DatabaseState> {
    private let state: State
    private let usableSize: Int
    /// The touched pages that are still to be read; the next one is the last.
    private var pages: [UInt32]
    private var cells: [Cell] = []
    private var next = 0
    private var lastRowid: Int64?

    init(_ state: State, usableSize: Int, root: UInt32?, touched: PageSet) {
        self.state = state
        self.usableSize = usableSize
        pages = root.map { touched.contains($0) ? [$0] : [] } ?? []
    }

    /// Returns the next cell, or nil at the end. Throws if the rowids don't ascend.
    mutating func nextCell(_ touched: PageSet) throws -> Cell? {
        while next == cells.count {
            guard let page = pages.popLast() else { return nil }
            cells.removeAll(keepingCapacity: true)
            next = 0
            try state.withPage(page) { bytes in
                guard let node = BTreePage(bytes, page: page, usableSize: usableSize) else {
                    throw Contradiction.malformed(page: page)
                }
                try Cell.append(node, page: page, to: &cells)
                guard node.kind.isInterior else { return }
                if touched.contains(node.lastChild) { pages.append(node.lastChild) }
                for index in stride(from: node.cellCount - 1, through: 0, by: -1) {
                    guard let child = node.child(index) else { throw Contradiction.malformed(page: page) }
                    if touched.contains(child) { pages.append(child) }
                }
            }
        }
        let cell = cells[next]
        next += 1
        if let lastRowid, lastRowid >= cell.rowid { throw Contradiction.malformed(page: cell.page) }
        lastRowid = cell.rowid
        return cell
    }
}
