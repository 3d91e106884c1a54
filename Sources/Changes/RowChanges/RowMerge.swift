import SQLiteFormat

extension TreeMap {
    /// Merges the touched rows of a rowid table in the order of their rowids, and returns those that differ.
    mutating func mergeRows(
        _ pair: Pair, _ old: some DatabaseState, _ new: some DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        var rows: [PageDifference.CellPair] = []
        // A map of a whole store has no use for its rows, which would fill the memory.
        let collectsRows = pair.tree == Self.schemaTree || walk.collectsRows
        let (oldTouched, newTouched) = (sets.oldTouched, sets.newTouched)
        var former = CellCursor(old, usableSize: walk.usableSize, root: pair.before?.root, touched: oldTouched)
        var latter = CellCursor(new, usableSize: walk.usableSize, root: pair.after?.root, touched: newTouched)
        var before = try former.nextCell(oldTouched)
        var after = try latter.nextCell(newTouched)
        while before != nil || after != nil {
            switch (before, after) {
            case (let first?, let second?) where first.rowid == second.rowid:
                if try !isSame(first, second, pair, old, new, &walk), collectsRows {
                    rows.append(.init(before: first, after: second))
                }
                before = try former.nextCell(oldTouched)
                after = try latter.nextCell(newTouched)
            case (let first?, let second) where second.map({ first.rowid < $0.rowid }) ?? true:
                try leaveChain(first, pair, old, &walk)
                if collectsRows { rows.append(.init(before: first, after: nil)) }
                before = try former.nextCell(oldTouched)
            case (_, let second?):
                try claimChain(second, pair, new, &walk)
                if collectsRows { rows.append(.init(before: nil, after: second)) }
                after = try latter.nextCell(newTouched)
            case (_, nil): break
            }
        }
        return rows
    }

    /// Matches the touched records of a table WITHOUT ROWID, and returns those that only one state has. Their order
    /// depends on collations, which only the program that defines them knows; so equal records are found by hash.
    mutating func matchRecords(
        _ pair: Pair, _ old: some DatabaseState, _ new: some DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        var buffer: [UInt8] = []
        var former: [Int: [Cell]] = [:]
        for cell in try cells(of: sets.oldTouched, in: old, walk) {
            let hash = try old.withPayload(cell, usableSize: walk.usableSize, buffer: &buffer) { Self.hash($0) }
            former[hash, default: []].append(cell)
        }
        var rows: [PageDifference.CellPair] = []
        for cell in try cells(of: sets.newTouched, in: new, walk) {
            let hash = try new.withPayload(cell, usableSize: walk.usableSize, buffer: &buffer) { Self.hash($0) }
            var match: Int?
            for (index, candidate) in (former[hash] ?? []).enumerated() where match == nil {
                if try isEqual(candidate, cell, pair, old, new, walk) { match = index }
            }
            if let match, let same = former[hash]?.remove(at: match) {
                try moveChain(same, cell, pair, old, new, &walk)
            } else {
                try claimChain(cell, pair, new, &walk)
                rows.append(.init(before: nil, after: cell))
            }
        }
        for cell in former.values.joined() {
            try leaveChain(cell, pair, old, &walk)
            rows.append(.init(before: cell, after: nil))
        }
        // What goes is told before what comes.
        rows = rows.filter { $0.after == nil } + rows.filter { $0.after != nil }
        return walk.collectsRows ? rows : []
    }

    private static func hash(_ bytes: UnsafeRawBufferPointer) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: bytes)
        return hasher.finalize()
    }

    private func cells(of touched: PageSet, in state: some DatabaseState, _ walk: Walk) throws -> [Cell] {
        var cells: [Cell] = []
        for page in touched.members {
            try walk.withNode(page, in: state) { try Cell.append($0, page: page, to: &cells) }
        }
        return cells
    }

    // MARK: - Payloads and their chains

    private mutating func isSame(
        _ before: Cell, _ after: Cell, _ pair: Pair, _ old: some DatabaseState, _ new: some DatabaseState,
        _ walk: inout Walk
    ) throws -> Bool {
        let isSame = try isEqual(before, after, pair, old, new, walk)
        if before.overflow != 0 || after.overflow != 0 {
            if isSame {
                try moveChain(before, after, pair, old, new, &walk)
            } else {
                try leaveChain(before, pair, old, &walk)
                try claimChain(after, pair, new, &walk)
            }
        }
        return isSame
    }

    /// Returns true if two cells have the same payload.
    private func isEqual(
        _ before: Cell, _ after: Cell, _ pair: Pair, _ old: some DatabaseState, _ new: some DatabaseState, _ walk: Walk
    ) throws -> Bool {
        guard before.length == after.length, before.localLength == after.localLength else { return false }
        let isSameHere = try old.withPage(before.page) { first in
            try new.withPage(after.page) { second in
                UnsafeRawBufferPointer(rebasing: first[before.local]).hasSameBytes(
                    as: UnsafeRawBufferPointer(rebasing: second[after.local]))
            }
        }
        guard isSameHere else { return false }
        if before.overflow == 0 || hasSameChain(before, after, pair) { return true }
        var (former, latter): ([UInt8], [UInt8]) = ([], [])
        return try old.withPayload(before, usableSize: walk.usableSize, buffer: &former) { first in
            try new.withPayload(after, usableSize: walk.usableSize, buffer: &latter) { first.hasSameBytes(as: $0) }
        }
    }

    /// True if the two cells link to the same overflow chain, and nothing of it differs.
    private func hasSameChain(_ before: Cell, _ after: Cell, _ pair: Pair) -> Bool {
        before.overflow == after.overflow && Int(before.overflow) < owners.count
            && owners[Int(before.overflow)] == pair.tree && !sets.dirty.contains(before.overflow)
    }

    private func moveChain(
        _ before: Cell, _ after: Cell, _ pair: Pair, _ old: some DatabaseState, _ new: some DatabaseState,
        _ walk: inout Walk
    ) throws {
        guard before.overflow != 0 else { return }
        if hasSameChain(before, after, pair) { return walk.kept.append((after.overflow, after.page)) }
        try leaveChain(before, pair, old, &walk)
        try claimChain(after, pair, new, &walk)
    }

    private func leaveChain(_ cell: Cell, _ pair: Pair, _ old: some DatabaseState, _ walk: inout Walk) throws {
        guard cell.overflow != 0 else { return }
        try old.forEachOverflowPage(of: cell, usableSize: walk.usableSize) { page, _ in
            walk.left.append((page, pair.tree))
        }
    }

    private func claimChain(_ cell: Cell, _ pair: Pair, _ new: some DatabaseState, _ walk: inout Walk) throws {
        guard cell.overflow != 0 else { return }
        var parent = cell.page
        try new.forEachOverflowPage(of: cell, usableSize: walk.usableSize) { page, _ in
            walk.claimed.append((page, parent, pair.tree))
            parent = page
        }
    }
}
