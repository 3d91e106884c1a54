/// A set of pages that is filled and emptied once a difference: a bit a page, and a list of those that are set.
struct PageSet: Sendable {
    private var words: [UInt64] = []
    private(set) var members: [UInt32] = []

    func contains(_ page: UInt32) -> Bool {
        let word = Int(page >> 6)
        return word < words.count && words[word] & 1 << UInt64(page & 63) != 0
    }

    /// Inserts a page. Returns false if it was there.
    @discardableResult
    mutating func insert(_ page: UInt32) -> Bool {
        let word = Int(page >> 6)
        if word >= words.count { words.append(contentsOf: repeatElement(0, count: word + 1 - words.count)) }
        let bit: UInt64 = 1 << UInt64(page & 63)
        guard words[word] & bit == 0 else { return false }
        words[word] |= bit
        members.append(page)
        return true
    }

    mutating func removeAll() {
        for page in members { words[Int(page >> 6)] = 0 }
        members.removeAll(keepingCapacity: true)
    }
}
