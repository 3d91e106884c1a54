/// A b-tree page, parsed in place (https://sqlite.org/fileformat2.html, §1.6). Every value is checked before use.
package struct BTreePage {
    /// The kind of a page, as in the first byte of its header.
    package enum Kind: UInt8 {
        case indexInterior = 2
        case tableInterior = 5
        case indexLeaf = 10
        case tableLeaf = 13

        @inlinable package var isInterior: Bool { self == .indexInterior || self == .tableInterior }
        @inlinable package var isTable: Bool { self == .tableInterior || self == .tableLeaf }
    }

    /// A cell's payload: its total length, the part on this page, and the page on which the rest begins.
    package struct Payload {
        /// The total length in bytes.
        package let length: Int
        /// The bytes of the payload on this page.
        package let local: Range<Int>
        /// The first overflow page, or 0 if the whole payload is on this page.
        package let overflow: UInt32
    }

    package let kind: Kind
    // Other modules' loops over children have no calls.
    @usableFromInline let bytes: UnsafeRawBufferPointer
    @usableFromInline let usableSize: Int
    @usableFromInline let header: Int
    /// The number of the page's cells.
    package let cellCount: Int

    /// Parses a page. Returns nil if it is not a b-tree page. Page 1 begins with the database header.
    package init?(_ bytes: UnsafeRawBufferPointer, page: UInt32, _ format: PageFormat) {
        self.init(bytes, page: page, usableSize: format.usableSize)
    }

    /// Parses a page whose usable size is known. Returns nil if it is not a b-tree page.
    package init?(_ bytes: UnsafeRawBufferPointer, page: UInt32, usableSize: Int) {
        guard bytes.count >= max(usableSize, 480) else { return nil }
        header = page == 1 ? 100 : 0
        guard let kind = Kind(rawValue: bytes[header]) else { return nil }
        self.kind = kind
        self.bytes = bytes
        self.usableSize = usableSize
        cellCount = bytes.half(header + 3)
        guard pointers + 2 * cellCount <= usableSize else { return nil }
    }

    @inlinable @inline(__always) var pointers: Int { header + (kind.isInterior ? 12 : 8) }

    /// The child after the last cell of an interior page.
    package var lastChild: UInt32 { bytes.word(header + 8) }

    @inlinable @inline(__always) func cell(_ index: Int) -> Int? {
        let offset = bytes.half(pointers + 2 * index)
        return offset >= pointers + 2 * cellCount && offset + 4 <= usableSize ? offset : nil
    }

    /// Returns the child before a cell of an interior page, or nil if the cell lies outside the page.
    @inlinable @inline(__always) package func child(_ index: Int) -> UInt32? { cell(index).map(bytes.word) }

    /// Returns a cell's payload, or nil if the cell does not lie within the page. Cells of an interior table page have
    /// none.
    package func payload(_ index: Int) -> Payload? { row(index)?.payload }

    /// Returns a cell's payload, and its rowid, which is 0 but in a table's leaf; or nil as `payload`.
    package func row(_ index: Int) -> (payload: Payload, rowid: Int64)? {
        guard var offset = cell(index) else { return nil }
        if kind == .indexInterior { offset += 4 }
        guard let (length, next) = bytes.varint(offset, end: usableSize), length <= 0x7FFF_FFFF else { return nil }
        offset = next
        var rowid: Int64 = 0
        if kind == .tableLeaf {
            guard let (value, next) = bytes.varint(offset, end: usableSize) else { return nil }
            (rowid, offset) = (Int64(bitPattern: value), next)
        }
        let local = localLength(Int(length))
        let isWhole = local == Int(length)
        guard offset + local + (isWhole ? 0 : 4) <= usableSize else { return nil }
        let payload = Payload(
            length: Int(length), local: offset..<offset + local, overflow: isWhole ? 0 : bytes.word(offset + local))
        return (payload, rowid)
    }

    /// Returns how many first cells of a table's leaf another state of the page has at the same places, with the same
    /// bytes, and the rowid of the last of them. They have no overflow pages, and their rowids ascend. Returns nil if
    /// there are none.
    package func equalCells(as other: BTreePage?) -> (count: Int, lastRowid: Int64)? {
        guard let other, kind == .tableLeaf, other.kind == .tableLeaf, header == other.header,
            usableSize == other.usableSize
        else { return nil }
        // From here to the end of the page, all bytes are the same. A new cell comes before the former ones.
        var same = usableSize
        while same - 8 >= pointers,
            bytes.loadUnaligned(fromByteOffset: same - 8, as: UInt64.self)
                == other.bytes.loadUnaligned(fromByteOffset: same - 8, as: UInt64.self)
        { same -= 8 }
        var found: (count: Int, lastRowid: Int64)?
        for index in 0..<min(cellCount, other.cellCount) {
            guard let offset = cell(index), offset >= same, offset == other.cell(index), let row = row(index),
                row.payload.overflow == 0, found.map({ $0.lastRowid < row.rowid }) ?? true
            else { break }
            found = (index + 1, row.rowid)
        }
        return found
    }

    /// Returns the rowid of a cell of a table's leaf, or nil if the page isn't one or the cell lies outside the page.
    package func rowid(_ index: Int) -> Int64? { kind == .tableLeaf ? row(index)?.rowid : nil }

    /// Returns the key that separates the child of a table's interior page from the next one; nil if the page isn't one
    /// or the cell lies outside the page.
    package func key(_ index: Int) -> UInt64? {
        guard kind == .tableInterior, let offset = cell(index) else { return nil }
        return bytes.varint(offset + 4, end: usableSize)?.value
    }

    /// The first page of each overflow chain of a table's leaf; nil if the page isn't one or is malformed.
    package var overflowPages: [UInt32]? {
        guard kind == .tableLeaf else { return nil }
        var pages: [UInt32] = []
        for index in 0..<cellCount {
            guard let offset = cell(index) else { return nil }
            // A payload whose length has one byte is shorter than 128 bytes, and lies on its page.
            if bytes[offset] < 0x80 { continue }
            guard let payload = payload(index) else { return nil }
            if payload.overflow != 0 { pages.append(payload.overflow) }
        }
        return pages
    }

    private func localLength(_ length: Int) -> Int {
        let maxLocal = kind == .tableLeaf ? usableSize - 35 : (usableSize - 12) * 64 / 255 - 23
        if length <= maxLocal { return length }
        let minLocal = (usableSize - 12) * 32 / 255 - 23
        let fitting = minLocal + (length - minLocal) % (usableSize - 4)
        return fitting <= maxLocal ? fitting : minLocal
    }
}

/// The pages that one b-tree page links to.
package struct PageLinks {
    /// The child pages, in key order.
    package private(set) var children: [UInt32] = []
    /// The first page of each overflow chain.
    package private(set) var overflow: [UInt32] = []

    /// Collects the links of `page`. Returns nil if the page is malformed.
    package init?(_ page: BTreePage) {
        if page.kind.isInterior {
            children.reserveCapacity(page.cellCount + 1)
            for index in 0..<page.cellCount {
                guard let child = page.child(index) else { return nil }
                children.append(child)
            }
            children.append(page.lastChild)
        }
        guard page.kind != .tableInterior else { return }
        for index in 0..<page.cellCount {
            guard let payload = page.payload(index) else { return nil }
            if payload.overflow != 0 { overflow.append(payload.overflow) }
        }
    }
}
