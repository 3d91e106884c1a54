import SQLiteFormat

/// Where a row lies in one state of a database.
struct Cell {
    /// The rowid, or 0 in a tree without rowids.
    let rowid: Int64
    /// The page that has the cell.
    let page: UInt32
    /// The cell's place among those of the page.
    let index: UInt16
    /// The first overflow page, or 0.
    let overflow: UInt32
    /// The offset of the payload on the page, in bytes.
    let offset: UInt32
    /// The length of the payload's part on the page, in bytes.
    let localLength: UInt32
    /// The length of the whole payload in bytes.
    let length: UInt32

    init(_ payload: BTreePage.Payload, rowid: Int64, page: UInt32, index: Int) {
        self.rowid = rowid
        self.page = page
        self.index = UInt16(truncatingIfNeeded: index)
        overflow = payload.overflow
        offset = UInt32(payload.local.lowerBound)
        localLength = UInt32(payload.local.count)
        length = UInt32(payload.length)
    }

    /// The range of the payload's part on the page.
    var local: Range<Int> { Int(offset)..<Int(offset) + Int(localLength) }

    /// Appends the cells of a page that are rows: all but those of a rowid table's interior pages.
    static func append(_ node: BTreePage, page: UInt32, to cells: inout [Cell]) throws(Contradiction) {
        guard node.kind != .tableInterior else { return }
        cells.reserveCapacity(cells.count + node.cellCount)
        for index in 0..<node.cellCount { cells.append(try Cell(node, index, page: page)) }
    }

    /// Reads a cell of a page.
    init(_ node: BTreePage, _ index: Int, page: UInt32) throws(Contradiction) {
        guard index < node.cellCount, let found = node.row(index) else { throw .malformed(page: page) }
        self.init(found.payload, rowid: found.rowid, page: page, index: index)
    }

    var place: CellPlace { CellPlace(page: page, index: index) }
}

/// Where a cell is found again. A step may have millions of rows.
struct CellPlace {
    let page: UInt32
    let index: UInt16
}

extension DatabaseState {
    /// Reads the cell of a place.
    func cell(_ place: CellPlace, usableSize: Int) throws -> Cell {
        try withPage(place.page) {
            guard let node = BTreePage($0, page: place.page, usableSize: usableSize) else {
                throw Contradiction.malformed(page: place.page)
            }
            return try Cell(node, Int(place.index), page: place.page)
        }
    }

    /// Calls `body` with the values of a cell's key, which are the first fields of its record.
    func withKey<Result>(
        _ cell: Cell, _ key: [KeyField], usableSize: Int, buffer: inout [UInt8],
        _ body: ([RowRecord.Field]) throws -> Result
    ) throws -> Result {
        func found(_ bytes: UnsafeRawBufferPointer) throws -> Result? {
            guard let record = RowRecord(bytes, first: key.count) else { return nil }
            return try body(zip(key, record.fields).map { $0.value($1) })
        }
        // Mostly, the key lies on the page.
        let local = try withPage(cell.page) { try found(UnsafeRawBufferPointer(rebasing: $0[cell.local])) }
        if let local { return local }
        let whole = try withPayload(cell, usableSize: usableSize, buffer: &buffer, found)
        guard let whole else { throw Contradiction.malformed(page: cell.page) }
        return whole
    }

    /// Calls `body` with the payload of a cell, which is gathered in `buffer` if it has overflow pages.
    func withPayload<Result>(
        _ cell: Cell, usableSize: Int, buffer: inout [UInt8], _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        if cell.overflow == 0 {
            return try withPage(cell.page) { try body(UnsafeRawBufferPointer(rebasing: $0[cell.local])) }
        }
        try withBytes(of: cell.page) { try gather(cell, $0, usableSize: usableSize, into: &buffer) }
        return try buffer.withUnsafeBytes(body)
    }

    /// Calls `body` with the rowid and the payload of the cell at a place, as `withPayload` does.
    func withRow(
        _ place: CellPlace, usableSize: Int, buffer: inout [UInt8],
        _ body: (Int64, UnsafeRawBufferPointer) throws -> Void
    ) throws {
        try withBytes(of: place.page) { bytes in
            guard let node = BTreePage(bytes, page: place.page, usableSize: usableSize) else {
                throw Contradiction.malformed(page: place.page)
            }
            let cell = try Cell(node, Int(place.index), page: place.page)
            if cell.overflow == 0 { return try body(cell.rowid, UnsafeRawBufferPointer(rebasing: bytes[cell.local])) }
            try gather(cell, bytes, usableSize: usableSize, into: &buffer)
            try buffer.withUnsafeBytes { try body(cell.rowid, $0) }
        }
    }

    /// Gathers the payload of a cell that has overflow pages.
    private func gather(
        _ cell: Cell, _ page: UnsafeRawBufferPointer, usableSize: Int, into buffer: inout [UInt8]
    ) throws {
        buffer.removeAll(keepingCapacity: true)
        buffer.reserveCapacity(Int(cell.length))
        buffer.append(contentsOf: page[cell.local])
        try forEachOverflowPage(of: cell, usableSize: usableSize) { _, bytes in
            let count = min(usableSize - 4, Int(cell.length) - buffer.count)
            buffer.append(contentsOf: bytes[4..<4 + count])
        }
    }

    /// Calls `body` with each page of a cell's overflow chain, and its bytes. The payload's length ends the chain.
    func forEachOverflowPage(
        of cell: Cell, usableSize: Int, _ body: (UInt32, UnsafeRawBufferPointer) throws -> Void
    ) throws {
        var page = cell.overflow
        var rest = Int(cell.length) - Int(cell.localLength)
        while rest > 0 {
            guard page >= 2, page <= pageCount else { throw Contradiction.malformed(page: cell.page) }
            page = try withPage(page) {
                try body(page, $0)
                return $0.word(0)
            }
            rest -= usableSize - 4
        }
    }
}
