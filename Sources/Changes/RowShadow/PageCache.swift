/// Pages in memory, by their numbers. Of those that nobody reads, one that wasn't used lately gives way.
///
/// A pending page is later than the file's. It stays until it is written or dropped.
final class PageCache {
    private struct Slot {
        /// 0 if it has none.
        var number: UInt32 = 0
        var readers = 0
        var isRecent = false
        var isPending = false
        let memory: UnsafeMutableRawBufferPointer
    }

    private let pageSize: Int
    private let capacity: Int
    // No access lasts while a page is read: a check of each would cost more than to find the page.
    @exclusivity(unchecked) private var slots: [Slot] = []
    @exclusivity(unchecked) private var places: [UInt32: Int] = [:]
    /// The place of the page that was read last: rows of one page are read one after another.
    @exclusivity(unchecked) private var lastPlace = 0
    /// The next slot that may give way.
    private var hand = 0
    /// The places of the pending pages.
    private var pending: [Int] = []

    var pendingCount: Int { pending.count }

    /// - Parameter capacity: The number of pages that are kept. Pending ones may be more.
    init(pageSize: Int, capacity: Int) {
        (self.pageSize, self.capacity) = (pageSize, capacity)
    }

    deinit { for slot in slots { slot.memory.deallocate() } }

    /// Calls `body` with a page, which `read` reads unless it is here.
    func with<Result>(
        _ number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result,
        read: (UnsafeMutableRawBufferPointer) throws -> Void
    ) throws -> Result {
        let place: Int
        if lastPlace < slots.count, slots[lastPlace].number == number {
            place = lastPlace
        } else if let known = places[number] {
            place = known
        } else {
            place = takeSlot()
            try read(slots[place].memory)
            slots[place].number = number
            places[number] = place
        }
        lastPlace = place
        slots[place].isRecent = true
        slots[place].readers += 1
        defer { slots[place].readers -= 1 }
        return try body(UnsafeRawBufferPointer(slots[place].memory))
    }

    /// Sets a page, which is pending from then on. Nobody may read it meanwhile.
    func set(_ number: UInt32, to bytes: UnsafeRawBufferPointer) {
        let place = places[number] ?? takeSlot()
        slots[place].memory.copyMemory(from: bytes)
        slots[place].number = number
        slots[place].isRecent = true
        if !slots[place].isPending { pending.append(place) }
        slots[place].isPending = true
        places[number] = place
    }

    /// Calls `body` with each pending page.
    func forEachPending(_ body: (UInt32, UnsafeRawBufferPointer) throws -> Void) rethrows {
        for place in pending { try body(slots[place].number, UnsafeRawBufferPointer(slots[place].memory)) }
    }

    /// Records that the file has the pending pages.
    func settle() {
        for place in pending { slots[place].isPending = false }
        pending.removeAll(keepingCapacity: true)
    }

    /// Drops pages. Nobody may read them meanwhile.
    func removeAll(where shouldRemove: (UInt32) -> Bool = { _ in true }) {
        for place in slots.indices where slots[place].number != 0 && shouldRemove(slots[place].number) {
            places[slots[place].number] = nil
            (slots[place].number, slots[place].isPending, slots[place].isRecent) = (0, false, false)
        }
        pending.removeAll { !slots[$0].isPending }
    }

    /// Returns a slot without a page. If all are in use, there is one more from then on.
    private func takeSlot() -> Int {
        if slots.count >= capacity {
            for _ in 0..<2 * slots.count {
                let place = hand
                hand = (hand + 1) % slots.count
                if slots[place].readers > 0 || slots[place].isPending { continue }
                if slots[place].isRecent {
                    slots[place].isRecent = false
                    continue
                }
                if slots[place].number != 0 { places[slots[place].number] = nil }
                slots[place].number = 0
                return place
            }
        }
        slots.append(Slot(memory: .allocate(byteCount: max(pageSize, 1), alignment: 8)))
        return slots.count - 1
    }
}
