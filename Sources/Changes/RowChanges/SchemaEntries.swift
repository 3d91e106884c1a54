import SQLiteFormat

extension TreeMap {
    /// Reads the schema of a state, without a map of its pages. Throws `Contradiction` and what the state throws.
    package static func schema(of state: any DatabaseState, _ format: PageFormat) throws -> [SchemaEntry] {
        var (cells, pages): ([Cell], [UInt32]) = ([], [1])
        // A damaged page may link to one above it.
        var budget = state.pageCount
        while let page = pages.popLast() {
            guard page >= 1, page <= state.pageCount, budget > 0 else { throw Contradiction.malformed(page: page) }
            budget -= 1
            try state.withPage(page) { bytes in
                guard let node = BTreePage(bytes, page: page, usableSize: format.usableSize) else {
                    throw Contradiction.malformed(page: page)
                }
                try Cell.append(node, page: page, to: &cells)
                guard node.kind.isInterior else { return }
                pages.append(node.lastChild)
                for index in 0..<node.cellCount {
                    guard let child = node.child(index) else { throw Contradiction.malformed(page: page) }
                    pages.append(child)
                }
            }
        }
        var buffer: [UInt8] = []
        return try cells.map { cell in
            try state.withPayload(cell, usableSize: format.usableSize, buffer: &buffer) {
                guard let entry = SchemaEntry(record: $0, format.encoding) else {
                    throw Contradiction.malformed(page: cell.page)
                }
                return entry
            }
        }
    }
}
