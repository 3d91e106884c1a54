/// What a database's header says of all its pages (https://sqlite.org/fileformat2.html, §1.3).
package struct PageFormat: Equatable, Sendable {
    package enum Encoding: UInt32 {
        case utf8 = 1
        case utf16LittleEndian
        case utf16BigEndian
    }

    /// Bytes.
    let pageSize: Int
    /// Without the space that extensions reserve at each page's end.
    package let usableSize: Int
    let hasPointerMap: Bool
    package let encoding: Encoding

    /// Nil when page 1 is none.
    package init?(_ first: UnsafeRawBufferPointer) {
        guard let header = DatabaseHeader(Array(first.prefix(DatabaseHeader.length))), first.count == header.pageSize
        else { return nil }
        pageSize = header.pageSize
        usableSize = pageSize - Int(first[20])
        guard usableSize >= 480 else { return nil }
        hasPointerMap = first.word(52) != 0
        // 0 until the first table is made.
        encoding = Encoding(rawValue: first.word(56)) ?? .utf8
    }

    /// Whether no b-tree, overflow chain or freelist can have the page: pointer map pages (§1.8), and the one that
    /// holds the lock bytes (§1.4).
    package func isReserved(_ page: UInt32) -> Bool {
        let lockPage = UInt32(0x4000_0000 / pageSize) + 1
        if page == lockPage { return true }
        guard hasPointerMap, page >= 2 else { return false }
        let span = UInt32(usableSize / 5 + 1)
        let map = (page - 2) / span * span + 2
        return page == (map == lockPage ? map + 1 : map)
    }
}

extension UnsafeRawBufferPointer {
    /// Four bytes, big-endian, as SQLite's formats have them.
    package func word(_ offset: Int) -> UInt32 {
        UInt32(bigEndian: loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    package func half(_ offset: Int) -> Int { Int(self[offset]) << 8 | Int(self[offset + 1]) }

    /// A variable-length integer (§1.6) and the offset behind it; nil when it doesn't end before `end`.
    func varint(_ offset: Int, end: Int) -> (value: UInt64, next: Int)? {
        var value: UInt64 = 0
        for index in 0..<9 {
            guard offset + index < end else { return nil }
            let byte = self[offset + index]
            if index == 8 { return (value << 8 | UInt64(byte), offset + 9) }
            value = value << 7 | UInt64(byte & 0x7F)
            if byte & 0x80 == 0 { return (value, offset + index + 1) }
        }
        return nil
    }
}
