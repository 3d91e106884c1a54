import Glibc
import LinuxSystem
import SystemPackage

/// The end of a transaction whose journal persists (`journal_mode = PERSIST`, and `DELETE` in exclusive locking mode):
/// SQLite overwrites the first header with zeros, and leaves the records.
package enum EndedTransaction {
    /// Page 1 has the change counter that follows on the one in the journal.
    case committed
    /// The database has the content of every record.
    case rolledBack
    /// The journal has no record of page 1: in exclusive locking mode, only the first commit must change the counter.
    case ended
    /// Another transaction has begun, and has not written to the database.
    case followed

    /// Returns nil if the journal doesn't show that its transaction has ended: more than the first header is zero, the
    /// last part isn't synced and not rolled back, as while a transaction is open, or the database contradicts it.
    package init?(
        _ journal: FilePath.Component, of database: FilePath.Component, in directory: Directory
    ) throws(SystemError) {
        let file = try directory.open(journal, flags: O_RDONLY)
        let pages = try directory.open(database, flags: O_RDONLY)
        let path = directory.path.appending(journal)
        let start = try file.read(count: 65536 + 4, at: 0, path: path)
        if RollbackJournal.Part.isUnsynced(Array(start.prefix(RollbackJournal.Part.headerLength))) {
            self = .followed
            return
        }
        guard let header = DatabaseHeader(try pages.read(count: DatabaseHeader.length, at: 0)),
            let sector = Self.sectorSize(start)
        else { return nil }
        let pageSize = header.pageSize
        var (offset, counter, isSame, seen) = (Int64(sector), UInt32?.none, true, Set<UInt32>())
        /// Returns false if no valid record of the part is at the offset.
        func takeRecord(_ nonce: inout UInt32?) throws(SystemError) -> Bool {
            let record = try file.read(count: pageSize + 8, at: offset, path: path)
            guard record.count == pageSize + 8, RollbackJournal.number(record, at: 0) > 0 else { return false }
            let own = RollbackJournal.nonce(of: record)
            guard nonce == nil || nonce == own else { return false }
            nonce = own
            offset += Int64(record.count)
            let page = RollbackJournal.number(record, at: 0)
            guard seen.insert(page).inserted else { return true }
            if page == 1 { counter = RollbackJournal.number(record, at: 4 + 24) }
            if isSame {
                let present = try pages.read(count: pageSize, at: Int64(page - 1) * Int64(pageSize))
                isSame = present == Array(record[4..<4 + pageSize])
            }
            return true
        }
        var nonce: UInt32?
        while try takeRecord(&nonce) {}
        guard nonce != nil else { return nil }
        var isOpen = false
        while true {
            offset = (offset + Int64(sector) - 1) / Int64(sector) * Int64(sector)
            let next = try file.read(count: RollbackJournal.Part.headerLength, at: offset, path: path)
            isOpen = RollbackJournal.Part.isUnsynced(next)
            guard let part = RollbackJournal.Part(next), part.pageSize == pageSize, part.sectorSize == sector else {
                break
            }
            offset += Int64(sector)
            var nonce: UInt32? = part.nonce
            for _ in 0..<part.recordCount { guard try takeRecord(&nonce) else { break } }
        }
        switch (counter, isSame) {
        case (_, true): self = .rolledBack
        case (nil, false):
            guard !isOpen else { return nil }
            self = .ended
        case (let counter?, false):
            guard !isOpen, header.changeCounter == counter &+ 1 else { return nil }
            self = .committed
        }
    }

    /// Returns the length of the first header, of which all is zero; nil if no record follows it.
    private static func sectorSize(_ start: [UInt8]) -> Int? {
        guard let first = start.firstIndex(where: { $0 != 0 }) else { return nil }
        // The record begins with the page's number.
        let size = first & ~3
        return size >= 512 && size & (size - 1) == 0 ? size : nil
    }
}
