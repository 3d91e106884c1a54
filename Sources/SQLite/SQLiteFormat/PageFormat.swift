import Glibc

/// The header fields that describe every page of a database (https://sqlite.org/fileformat2.html, §1.3).
package struct PageFormat: Equatable, Sendable {
    /// The text encoding of a database.
    package enum Encoding: UInt32 {
        case utf8 = 1
        case utf16LittleEndian
        case utf16BigEndian
    }

    /// The page size in bytes.
    package let pageSize: Int
    /// The page size without the space that extensions reserve at each page's end, in bytes.
    package let usableSize: Int
    let hasPointerMap: Bool
    /// The text encoding.
    package let encoding: Encoding

    /// Reads the format from page 1. Returns nil if it has no valid header.
    package init?(_ first: UnsafeRawBufferPointer) {
        guard let header = DatabaseHeader(Array(first.prefix(DatabaseHeader.length))), first.count == header.pageSize
        else { return nil }
        pageSize = header.pageSize
        usableSize = pageSize - Int(first[20])
        guard usableSize >= 480 else { return nil }
        hasPointerMap = first.word(52) != 0
        // The field is 0 until the first table is created.
        encoding = Encoding(rawValue: first.word(56)) ?? .utf8
    }

    /// True if pages are as long, and as much of each may be used.
    package func hasSamePages(as other: PageFormat) -> Bool {
        pageSize == other.pageSize && usableSize == other.usableSize
    }

    /// The page with the lock bytes (§1.4), which is never written.
    package static func lockPage(pageSize: Int) -> UInt32 { UInt32(0x4000_0000 / pageSize) + 1 }

    /// True if no b-tree, overflow chain or freelist can use the page: a pointer map page (§1.8), or the page with the
    /// lock bytes (§1.4).
    package func isReserved(_ page: UInt32) -> Bool {
        let lockPage = Self.lockPage(pageSize: pageSize)
        if page == lockPage { return true }
        guard hasPointerMap, page >= 2 else { return false }
        let span = UInt32(usableSize / 5 + 1)
        let map = (page - 2) / span * span + 2
        return page == (map == lockPage ? map + 1 : map)
    }
}

extension UnsafeRawBufferPointer {
    /// True if both have the same bytes.
    package func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard let first = baseAddress, let second = other.baseAddress, first != second else { return true }
        return memcmp(first, second, count) == 0
    }

    /// Returns four bytes in SQLite's big-endian order.
    @inlinable @inline(__always) package func word(_ offset: Int) -> UInt32 {
        UInt32(bigEndian: loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    /// Returns two bytes in SQLite's big-endian order.
    @inlinable @inline(__always) package func half(_ offset: Int) -> Int {
        Int(self[offset]) << 8 | Int(self[offset + 1])
    }

    /// Decodes a variable-length integer (§1.6). Returns its value and the offset after it, or nil if it doesn't end
    /// before `end`.
    package func varint(_ offset: Int, end: Int) -> (value: UInt64, next: Int)? {
        guard offset < end else { return nil }
        var value = UInt64(self[offset])
        // Most are short.
        if value < 0x80 { return (value, offset + 1) }
        value &= 0x7F
        for index in 1..<9 {
            guard offset + index < end else { return nil }
            let byte = self[offset + index]
            if index == 8 { return (value << 8 | UInt64(byte), offset + 9) }
            value = value << 7 | UInt64(byte & 0x7F)
            if byte & 0x80 == 0 { return (value, offset + index + 1) }
        }
        return nil
    }

    /// Returns the length of a value in a record, by its serial type (§2.1).
    package static func length(ofSerial serial: UInt64) -> UInt64 {
        switch serial {
        case 0...4: serial
        case 5: 6
        case 6, 7: 8
        case 8...11: 0
        default: (serial - 12) / 2
        }
    }
}
