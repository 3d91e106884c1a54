import LinuxSystem
import SystemPackage

/// The pages of a transaction in rollback mode, from its journal, which was opened before the transaction removed it.
///
/// A transaction writes the former content of a page into the journal before it changes the page. It leaves out only
/// pages that it takes from the end of the file, and leaves of the freelist, whose content nobody needs. A trunk of the
/// freelist lists its leaves, and the transaction changes the trunk that it takes a leaf from. So the pages that a
/// transaction may have changed are those in the journal, the leaves of trunks in it, and those beyond the former end.
package struct JournaledPages: Sendable {
    /// The database's size in pages before the transaction; nil if it has not written the database.
    package let originalPageCount: UInt32?
    /// The change counter before the transaction; nil if it has not changed page 1. A commit changes it, except in
    /// exclusive mode.
    package private(set) var changeCounter: UInt32?
    /// True if the journal ends as it does while its transaction is open: with a part that isn't synced yet, which
    /// begins when the one before is, or with one that counts no records.
    package private(set) var isOpen = false
    /// The offset in the journal of each page's former content.
    package private(set) var offsets: [UInt32: Int64] = [:]
    /// The leaves of the freelist that the transaction may have taken, and perhaps other pages.
    package private(set) var leaves: Set<UInt32> = []

    /// The least number of a page that a trunk of the freelist could have where a b-tree's page has its type.
    private static let firstAmbiguousPage: UInt32 = 0x0200_0000

    /// Reads the journal of a transaction that has ended, as far as it was synced: of one that was rolled back, only
    /// that may have been written to the database. Returns nil if it isn't known to be whole.
    ///
    /// - Parameters:
    ///   - size: The journal's size in bytes.
    ///   - read: Reads a number of bytes at an offset.
    package init?(
        pageSize: Int, size: Int64, _ read: (_ count: Int, _ offset: Int64) throws(SystemError) -> [UInt8]
    ) throws(SystemError) {
        let start = try read(RollbackJournal.Part.headerLength, 0)
        guard size > 0, !RollbackJournal.Part.isUnsynced(start) else {
            originalPageCount = nil
            isOpen = size > 0
            return
        }
        guard let first = RollbackJournal.Part(start),
            first.originalPageCount < Self.firstAmbiguousPage
        else { return nil }
        originalPageCount = first.originalPageCount
        let pageCount = first.originalPageCount
        let recordLength = pageSize + 8
        // Its number begins the name of a super-journal.
        let lockPage = PageFormat.lockPage(pageSize: pageSize)
        var offset: Int64 = 0
        parts: while offset + Int64(RollbackJournal.Part.headerLength) <= size {
            let header = try read(RollbackJournal.Part.headerLength, offset)
            if RollbackJournal.Part.isUnsynced(header) {
                isOpen = true
                break
            }
            guard let part = RollbackJournal.Part(header) else {
                // Only the name of a super-journal follows the last part.
                guard header.count >= 4, RollbackJournal.number(header, at: 0) == lockPage else { return nil }
                break
            }
            guard part.pageSize == pageSize, part.originalPageCount == pageCount else { return nil }
            offset += Int64(part.sectorSize)
            isOpen = part.recordCount == .max
            var count: UInt32 = 0
            while count < part.recordCount {
                guard offset + Int64(recordLength) <= size else {
                    guard part.recordCount == .max else { return nil }
                    break parts
                }
                let record = try read(recordLength, offset)
                guard record.count == recordLength else { return nil }
                let page = RollbackJournal.number(record, at: 0)
                if part.recordCount == .max, page == lockPage { break parts }
                guard page >= 1, page <= pageCount, page != lockPage, part.isValid(record) else { return nil }
                // A page comes again after a savepoint; the first one is the transaction's.
                if offsets[page] == nil {
                    offsets[page] = offset + 4
                    record[4..<4 + pageSize].withUnsafeBytes { add(page, $0, pageCount) }
                }
                offset += Int64(recordLength)
                count += 1
            }
            offset = part.end(offset)
        }
    }

    private mutating func add(_ page: UInt32, _ content: UnsafeRawBufferPointer, _ pageCount: UInt32) {
        if page == 1 { return changeCounter = content.word(24) }
        // If an overflow page looks like a trunk, some pages are compared in vain.
        let count = Int(content.word(4))
        guard content.word(0) <= pageCount, count <= content.count / 4 - 2 else { return }
        for place in 0..<count {
            let leaf = content.word(8 + 4 * place)
            guard leaf >= 2, leaf <= pageCount else { continue }
            leaves.insert(leaf)
        }
    }
}
