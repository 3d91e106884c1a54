import RowChanges

extension StoreView {
    /// Calls `body` with each page that differs from the shadow's, or that the shadow doesn't have, and `meanwhile` now
    /// and then.
    ///
    /// Throws what `body` throws, `Disturbed` and `SystemError`; `RowShadowError.damaged` if a page of the shadow isn't
    /// what was written, and differs.
    func forEachDifference(
        from shadow: ShadowPages, _ body: (UInt32, UnsafeRawBufferPointer) throws -> Void,
        meanwhile: () throws -> Void = {}
    ) throws {
        let length = pageSize
        guard length > 0 else { return }
        let known = length == shadow.pageSize ? shadow.pageCount : 0
        let batch = max(1, (1 << 18) / length)
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 2 * batch * length, alignment: 4096)
        defer { memory.deallocate() }
        var first: UInt32 = 1
        while first <= pageCount {
            let count = min(batch, Int(pageCount - first) + 1)
            let now = UnsafeMutableRawBufferPointer(rebasing: memory[..<(count * length)])
            let former = UnsafeMutableRawBufferPointer(
                rebasing: memory[(batch * length)..<((batch + count) * length)])
            try read(first, into: now)
            let read = known >= first ? try shadow.read(first, into: former) : 0
            for place in 0..<count {
                let number = first + UInt32(place)
                let page = UnsafeRawBufferPointer(rebasing: now[(place * length)..<((place + 1) * length)])
                if number <= known {
                    let isRead = (place + 1) * length <= read
                    let kept = UnsafeRawBufferPointer(
                        rebasing: former[isRead ? place * length..<(place + 1) * length : 0..<0])
                    if page.hasSameBytes(as: kept) {
                        shadow.confirm(number, page)
                        continue
                    }
                    try shadow.check(number, kept)
                }
                try body(number, page)
            }
            first += UInt32(count)
            try meanwhile()
        }
    }
}
