import Glibc
import LinuxSystem
import SystemPackage

/// The format of a rollback journal (https://sqlite.org/fileformat2.html, §3).
package enum RollbackJournal {
    /// True if a transaction may have to be rolled back from the journal. When a transaction ends, SQLite zeroes or
    /// truncates the journal's header, or removes the journal (https://sqlite.org/pragma.html#pragma_journal_mode).
    package static func isHot(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        guard let found = try directory.status(name), found.size > 0 else { return false }
        guard found.kind == .regular else { return true }
        do throws(SystemError) {
            let descriptor = try directory.open(name, flags: O_RDONLY)
            let start = try descriptor.read(count: 1, at: 0, path: directory.path.appending(name))
            return start.first.map { $0 != 0 } ?? false
        } catch {
            // The transaction ended between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }

    /// True if readers roll a transaction back from the journal. Before the transaction writes the database, the first
    /// header counts the records.
    package static func hasRecords(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        guard let found = try directory.status(name), found.kind == .regular, found.size > 0 else { return false }
        do throws(SystemError) {
            let journal = try directory.open(name, flags: O_RDONLY)
            return Part(try journal.read(count: Part.headerLength, at: 0)).map { $0.recordCount > 0 } ?? false
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }

    /// Returns the database's change counter before the transaction of a hot journal, if the transaction has changed
    /// page 1. Returns nil if it hasn't, or if the journal is too large to be searched for that page.
    package static func originalChangeCounter(
        _ name: FilePath.Component, in directory: Directory
    ) throws(SystemError) -> UInt32? {
        let journal: Descriptor
        do throws(SystemError) { journal = try directory.open(name, flags: O_RDONLY) } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
        var (offset, records) = (Int64(0), 0)
        // Each part of the journal that was synced by itself has a header.
        while let part = Part(try journal.read(count: Part.headerLength, at: offset)) {
            offset += Int64(part.sectorSize)
            for _ in 0..<part.recordCount {
                records += 1
                guard records <= maximumRecords else { return nil }
                let number = try journal.read(count: 4, at: offset)
                guard number.count == 4 else { return nil }
                if number == [0, 0, 0, 1] {
                    let record = try journal.read(count: part.pageSize + 8, at: offset)
                    guard record.count == part.pageSize + 8, part.isValid(record) else { return nil }
                    return self.number(record, at: 4 + 24)
                }
                offset += Int64(part.pageSize) + 8
            }
            offset = part.end(offset)
        }
        return nil
    }

    /// True if the journal of an open transaction proves the state before it: it has all records that its headers
    /// count, and no end was cut off. With `synchronous = OFF`, headers count none, and a missing end isn't seen.
    package static func isWhole(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        let journal = try directory.open(name, flags: O_RDONLY)
        let (path, size) = (directory.path.appending(name), try journal.status().size)
        guard let first = Part(try journal.read(count: Part.headerLength, at: 0, path: path)) else { return false }
        let pages = try JournaledPages(pageSize: first.pageSize, size: size) { (count, offset) throws(SystemError) in
            try journal.read(count: count, at: offset, path: path)
        }
        return pages?.isOpen ?? false
    }

    /// The records to search. A program that is killed as it commits may have left millions.
    private static let maximumRecords = 1 << 14

    /// The header of a part of a journal.
    struct Part {
        static let headerLength = 28
        /// The number of records; `.max` for all that follow. 0 until the part is synced.
        let recordCount: UInt32
        let nonce: UInt32
        /// The database's size in pages before the transaction.
        let originalPageCount: UInt32
        let sectorSize: Int
        let pageSize: Int

        init?(_ header: [UInt8]) {
            guard header.count == Self.headerLength, header.starts(with: magic) else { return nil }
            recordCount = number(header, at: 8)
            nonce = number(header, at: 12)
            originalPageCount = number(header, at: 16)
            sectorSize = Int(number(header, at: 20))
            pageSize = Int(number(header, at: 24))
            guard (32...65536).contains(sectorSize), (512...65536).contains(pageSize) else { return nil }
        }

        /// True for the header of a part that isn't synced yet, which has neither the magic number nor a count. When a
        /// transaction ends whose journal persists, the whole header becomes zeros.
        static func isUnsynced(_ header: [UInt8]) -> Bool {
            header.count == headerLength && header[..<12].allSatisfy { $0 == 0 } && header[12...].contains { $0 != 0 }
        }

        /// True if the record's checksum, a sum of every 200th byte of the page, is right. A journal that persists may
        /// hold records of former transactions.
        func isValid(_ record: [UInt8]) -> Bool {
            RollbackJournal.nonce(of: record) == nonce
        }

        /// The offset of the next part, which begins with a sector.
        func end(_ offset: Int64) -> Int64 {
            (offset + Int64(sectorSize) - 1) / Int64(sectorSize) * Int64(sectorSize)
        }
    }

    /// Returns the number that a header has if the record is one of its part: the difference of the record's checksum
    /// and the sum of every 200th byte of its page.
    static func nonce(of record: [UInt8]) -> UInt32 {
        let pageSize = record.count - 8
        var nonce = number(record, at: 4 + pageSize)
        for index in stride(from: pageSize - 200, to: 0, by: -200) { nonce = nonce &- UInt32(record[4 + index]) }
        return nonce
    }

    static func number(_ bytes: [UInt8], at offset: Int) -> UInt32 {
        bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }

    private static let magic: [UInt8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]

    /// Returns the path of the super-journal that `bytes`, a journal's end, names. A journal ends with the name, its
    /// length, the sum of its characters, and the magic number that also begins the journal (readSuperJournal,
    /// pager.c). Returns nil if there is no name or one that SQLite would reject.
    package static func superJournal(namedAtEndOf bytes: [UInt8]) -> FilePath? {
        guard bytes.count > 16, bytes.suffix(8) == magic[...] else { return nil }
        let length = Int(number(bytes, fromEnd: 16))
        guard length > 0, length <= bytes.count - 16 else { return nil }
        let name = bytes.dropLast(16).suffix(length)
        let sum = name.reduce(UInt32(0)) { $0 &+ UInt32(bitPattern: Int32(CChar(truncatingIfNeeded: $1))) }
        return sum == number(bytes, fromEnd: 12) ? FilePath(bytes: name) : nil
    }

    /// The length of a super-journal's name with the fields around it, which begin with the number of the lock page.
    package static func length(ofSuperJournal name: FilePath) -> Int64 { Int64(name.bytes.count) + 20 }

    private static func number(_ bytes: [UInt8], fromEnd: Int) -> UInt32 {
        bytes.suffix(fromEnd).prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }
}
