import StoreRelocation

extension MergeSchema {
    /// Finds an order in which each table comes after those that its keys refer to, and after all that it refers to if
    /// possible. Throws `RelocationFailure` if keys refer to each other.
    mutating func sort() throws {
        var rest = Array(tables.indices)
        var done: Set<Int> = []
        while !rest.isEmpty {
            let ready = rest.filter { tables[$0].keyReferences.isSubset(of: done) }
            // A circle is broken at a table that keys identify, and before the tables that only lead into it.
            let reachable = Dictionary(uniqueKeysWithValues: rest.map { ($0, reached(from: $0, among: Set(rest))) })
            func rank(_ index: Int) -> Int {
                let isLast = reachable[index]?.allSatisfy { reachable[$0]?.contains(index) ?? false } ?? true
                return (isLast ? 0 : 2) + (tables[index].entities.contains(where: \.comparesWholeRows) ? 1 : 0)
            }
            guard
                let next = ready.first(where: { tables[$0].references.subtracting([$0]).isSubset(of: done) })
                    ?? ready.min(by: { (rank($0), $0) < (rank($1), $1) })
            else {
                let names = rest.map { tables[$0].name }.joined(separator: ", ")
                throw RelocationFailure.merge(
                    "unknown_merge_key", "the keys of these tables refer to each other, or to themselves: \(names)",
                    remedy: "name a key without the relationship: --merge-key NAME=a,b")
            }
            order.append(next)
            done.insert(next)
            rest.removeAll { $0 == next }
        }
    }

    /// Returns the tables that references lead to from a table, over any number of steps.
    private func reached(from start: Int, among rest: Set<Int>) -> Set<Int> {
        var found: Set<Int> = []
        var next = [start]
        while let index = next.popLast() {
            for target in tables[index].references.intersection(rest) where found.insert(target).inserted {
                next.append(target)
            }
        }
        return found.subtracting([start])
    }
}
