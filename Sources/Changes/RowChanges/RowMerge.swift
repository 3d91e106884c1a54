import SQLiteFormat

extension TreeMap {
    /// Merges the touched rows of a rowid table in the order of their rowids, and returns those that differ.
    mutating func mergeRows(
        _ pair: Pair, _ old: any DatabaseState, _ new: any DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        // If the leaves were read in another order, the links from the root lead to them in theirs.
        let root = pair.before.map { [$0.root] } ?? []
        let oldPages: [UInt32] =
            walk.ordersOldLeaves ? walk.oldLeaves.reversed() : root.filter(sets.oldTouched.contains)
        let newPages: [UInt32] = walk.newLeaves.reversed()
        return try withUnsafeTemporaryAllocation(byteCount: 2 * walk.usableSize, alignment: 8) { memory in
            let (first, second) = (memory[..<walk.usableSize], memory[walk.usableSize...])
            var former = CellCursor(old, .init(rebasing: first), oldPages)
            var latter = CellCursor(new, .init(rebasing: second), newPages)
            return try mergeRows(&former, &latter, pair, old, new, &walk)
        }
    }

    private mutating func mergeRows(
        _ former: inout CellCursor, _ latter: inout CellCursor, _ pair: Pair, _ old: any DatabaseState,
        _ new: any DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        var rows: [PageDifference.CellPair] = []
        // A map of a whole store has no use for its rows, which would fill the memory.
        let collectsRows = pair.tree == Self.schemaTree || walk.collectsRows
        try former.advance(sets.oldTouched)
        try latter.advance(sets.newTouched)
        while true {
            switch (former.cell, latter.cell) {
            case (nil, nil): return rows
            case (let first?, let second?) where first.rowid == second.rowid:
                if pair.listsAllRows || !CellCursor.passEqualCells(&former, &latter) {
                    let isSameHere = former.local(first).hasSameBytes(as: latter.local(second))
                    let isSame = try isSame(first, second, isSameHere: isSameHere, pair, old, new, &walk)
                    if !isSame || pair.listsAllRows, collectsRows {
                        rows.append(.init(before: first.place, after: second.place))
                    }
                }
                try former.advance(sets.oldTouched)
                try latter.advance(sets.newTouched)
            case (let first?, let second) where second.map({ first.rowid < $0.rowid }) ?? true:
                try leaveChain(first, pair, old, &walk)
                if collectsRows { rows.append(.init(before: first.place, after: nil)) }
                try former.advance(sets.oldTouched)
            case (_, let second?):
                try claimChain(second, pair, new, &walk)
                if collectsRows { rows.append(.init(before: nil, after: second.place)) }
                try latter.advance(sets.newTouched)
            // The second case has it.
            case (_?, nil): return rows
            }
        }
    }

    /// Matches the touched records of a table WITHOUT ROWID, and returns those that differ: first those that are gone.
    /// Their order depends on collations, which only the program that defines them knows; so they are found by hash.
    mutating func matchRecords(
        _ pair: Pair, _ old: any DatabaseState, _ new: any DatabaseState, _ walk: inout Walk
    ) throws -> [PageDifference.CellPair] {
        let key = walk.key(of: pair)
        var former = RecordIndex()
        try forEachCell(of: sets.oldTouched, in: old, walk) {
            former.add($0.place, hash: try Self.hash($0, key, old, walk))
        }
        former.sort()
        var came: [PageDifference.CellPair] = []
        let newTouched = sets.newTouched
        for page in newTouched.members {
            for cell in try cells(of: page, in: new, walk) {
                var counterpart: Cell?
                var isSame = false
                if !former.isEmpty {
                    for number in former.numbers(of: try Self.hash(cell, key, new, walk)) {
                        let candidate = try old.cell(former.places[number], usableSize: walk.usableSize)
                        isSame = try isEqual(candidate, cell, pair, old, new, walk)
                        let isPaired = try isSame || Self.hasSameKey(candidate, cell, key, old, new, walk)
                        if !isPaired { continue }
                        former.take(number)
                        counterpart = candidate
                        break
                    }
                }
                if isSame, let counterpart {
                    try moveChain(counterpart, cell, pair, old, new, &walk)
                    if pair.listsAllRows { came.append(.init(before: counterpart.place, after: cell.place)) }
                    continue
                }
                if let counterpart { try leaveChain(counterpart, pair, old, &walk) }
                try claimChain(cell, pair, new, &walk)
                if walk.collectsRows { came.append(.init(before: counterpart?.place, after: cell.place)) }
            }
        }
        var rows: [PageDifference.CellPair] = []
        for place in former.rest {
            let cell = try old.cell(place, usableSize: walk.usableSize)
            try leaveChain(cell, pair, old, &walk)
            if walk.collectsRows { rows.append(.init(before: place, after: nil)) }
        }
        if rows.isEmpty { return came }
        rows.append(contentsOf: came)
        return rows
    }

    /// Returns a hash of a record's key, or of the whole record if the key isn't known.
    private static func hash(
        _ cell: Cell, _ key: [KeyField]?, _ state: any DatabaseState, _ walk: Walk
    ) throws -> UInt32 {
        var buffer: [UInt8] = []
        var hasher = Hasher()
        if let key {
            try state.withKey(cell, key, usableSize: walk.usableSize, buffer: &buffer) {
                hasher.combine($0)
            }
        } else {
            try state.withPayload(cell, usableSize: walk.usableSize, buffer: &buffer) { hasher.combine(bytes: $0) }
        }
        return UInt32(truncatingIfNeeded: hasher.finalize())
    }

    private static func hasSameKey(
        _ before: Cell, _ after: Cell, _ key: [KeyField]?, _ old: any DatabaseState, _ new: any DatabaseState,
        _ walk: Walk
    ) throws -> Bool {
        guard let key else { return false }
        var (former, latter): ([UInt8], [UInt8]) = ([], [])
        let usableSize = walk.usableSize
        return try old.withKey(before, key, usableSize: usableSize, buffer: &former) { values in
            try new.withKey(after, key, usableSize: usableSize, buffer: &latter) { $0 == values }
        }
    }

    private func cells(of page: UInt32, in state: any DatabaseState, _ walk: Walk) throws -> [Cell] {
        var cells: [Cell] = []
        try walk.withNode(page, in: state) { try Cell.append($0, page: page, to: &cells) }
        return cells
    }

    private func forEachCell(
        of touched: PageSet, in state: any DatabaseState, _ walk: Walk, _ body: (Cell) throws -> Void
    ) throws {
        for page in touched.members { try cells(of: page, in: state, walk).forEach(body) }
    }

    // MARK: - Payloads and their chains

    private mutating func isSame(
        _ before: Cell, _ after: Cell, isSameHere: Bool, _ pair: Pair, _ old: any DatabaseState,
        _ new: any DatabaseState, _ walk: inout Walk
    ) throws -> Bool {
        let isSame = try isEqual(before, after, isSameHere: isSameHere, pair, old, new, walk)
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

    /// Returns true if two cells of records have the same payload.
    private func isEqual(
        _ before: Cell, _ after: Cell, _ pair: Pair, _ old: any DatabaseState, _ new: any DatabaseState, _ walk: Walk
    ) throws -> Bool {
        let isSameHere = try old.withPage(before.page) { first in
            try new.withPage(after.page) { second in
                UnsafeRawBufferPointer(rebasing: first[before.local]).hasSameBytes(
                    as: UnsafeRawBufferPointer(rebasing: second[after.local]))
            }
        }
        return try isEqual(before, after, isSameHere: isSameHere, pair, old, new, walk)
    }

    /// Returns true if two cells have the same payload.
    ///
    /// - Parameter isSameHere: True if their parts on the pages are the same.
    private func isEqual(
        _ before: Cell, _ after: Cell, isSameHere: Bool, _ pair: Pair, _ old: any DatabaseState,
        _ new: any DatabaseState, _ walk: Walk
    ) throws -> Bool {
        guard isSameHere, before.length == after.length, before.localLength == after.localLength else { return false }
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
        _ before: Cell, _ after: Cell, _ pair: Pair, _ old: any DatabaseState, _ new: any DatabaseState,
        _ walk: inout Walk
    ) throws {
        guard before.overflow != 0 else { return }
        if hasSameChain(before, after, pair) { return walk.kept.append((after.overflow, after.page)) }
        try leaveChain(before, pair, old, &walk)
        try claimChain(after, pair, new, &walk)
    }

    private func leaveChain(_ cell: Cell, _ pair: Pair, _ old: any DatabaseState, _ walk: inout Walk) throws {
        guard cell.overflow != 0 else { return }
        try old.forEachOverflowPage(of: cell, usableSize: walk.usableSize) { page, _ in
            walk.left.append((page, pair.tree))
        }
    }

    private func claimChain(_ cell: Cell, _ pair: Pair, _ new: any DatabaseState, _ walk: inout Walk) throws {
        guard cell.overflow != 0 else { return }
        var parent = cell.page
        try new.forEachOverflowPage(of: cell, usableSize: walk.usableSize) { page, _ in
            walk.claimed.append((page, parent, pair.tree))
            parent = page
        }
    }
}

/// The records of a table's earlier state, found by hash. A record takes seventeen bytes.
private struct RecordIndex {
    private(set) var places: [CellPlace] = []
    private var isTaken: [Bool] = []
    private var order: [(hash: UInt32, number: UInt32)] = []

    var isEmpty: Bool { places.isEmpty }

    mutating func add(_ place: CellPlace, hash: UInt32) {
        order.append((hash, UInt32(places.count)))
        places.append(place)
        isTaken.append(false)
    }

    /// Call it after the last `add`.
    mutating func sort() { order.sort { $0 < $1 } }

    /// The records with that hash that are not taken.
    func numbers(of hash: UInt32) -> [Int] {
        var (low, high) = (0, order.count)
        while low < high {
            let middle = (low + high) / 2
            if order[middle].hash < hash { low = middle + 1 } else { high = middle }
        }
        return order[low...].prefix { $0.hash == hash }.map { Int($0.number) }.filter { !isTaken[$0] }
    }

    mutating func take(_ number: Int) { isTaken[number] = true }

    /// Those that are not taken, in the order in which they were added.
    var rest: some Sequence<CellPlace> { places.indices.lazy.filter { !isTaken[$0] }.map { places[$0] } }
}
