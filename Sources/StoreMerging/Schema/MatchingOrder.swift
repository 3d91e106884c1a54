import StoreRelocation

extension MergeSchema {
    /// Finds an order in which each table comes after those that its keys refer to, and after all that it refers to if
    /// possible. Throws `RelocationFailure` if keys refer to each other.
    mutating func sort() throws {
        var rest = Array(tables.indices)
        var done: Set<Int> = []
        while !rest.isEmpty {
            let ready = rest.filter { tables[$0].keyReferences.isSubset(of: done) }
            guard
                let next = ready.first(where: { tables[$0].references.subtracting([$0]).isSubset(of: done) })
                    ?? ready.first
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
}
