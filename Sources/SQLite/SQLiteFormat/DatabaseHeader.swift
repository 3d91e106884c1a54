/// The first 100 bytes of a SQLite database (https://sqlite.org/fileformat2.html, §1.3).
package struct DatabaseHeader: Equatable, Sendable {
    /// The journal mode recorded in a database file.
    package enum JournalMode: String, Sendable {
        case rollback
        case writeAhead = "wal"

        /// Creates a mode from SQLite's word for it, `wal` or `delete`. Returns nil for any other word, because a file
        /// records no other mode.
        package init?(word: String) {
            switch word {
            case "wal": self = .writeAhead
            case "delete": self = .rollback
            default: return nil
            }
        }

        /// The word that `init(word:)` accepts.
        package var word: String { self == .writeAhead ? "wal" : "delete" }
    }

    /// The page size in bytes, a power of two from 512 to 65,536.
    package let pageSize: Int
    /// The journal mode that readers must use.
    package let journalMode: JournalMode
    /// The change counter. Each transaction in rollback mode increments it. In WAL mode only a write to page 1 does.
    package let changeCounter: UInt32
    /// The database's size in pages, or 0 if an old SQLite wrote it and did not record the size.
    package let pageCount: UInt32
    /// The change counter for which `pageCount` is valid.
    package let versionValidFor: UInt32

    /// The header's length in bytes.
    package static let length = 100
    package static let magic = Array("SQLite format 3\0".utf8)

    /// Parses a header. Returns nil if the bytes don't begin a SQLite 3 database.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count >= Self.length, bytes.starts(with: Self.magic) else { return nil }
        let size = Int(bytes[16]) << 8 | Int(bytes[17])
        pageSize = size == 1 ? 65536 : size
        guard (512...65536).contains(pageSize), pageSize & (pageSize - 1) == 0 else { return nil }
        guard (1...2).contains(bytes[18]), (1...2).contains(bytes[19]) else { return nil }
        journalMode = bytes[19] == 2 ? .writeAhead : .rollback
        changeCounter = Self.integer(bytes, at: 24)
        pageCount = Self.integer(bytes, at: 28)
        versionValidFor = Self.integer(bytes, at: 92)
    }

    /// The minimum size in bytes of a file with this header, or 0 if the header's page count is not valid
    /// (https://sqlite.org/fileformat2.html, §1.3.8). SQLite itself reads missing bytes of the last page as zeros.
    package var minimumSize: Int64 {
        changeCounter == versionValidFor ? Int64(pageCount) * Int64(pageSize) : 0
    }

    private static func integer(_ bytes: [UInt8], at offset: Int) -> UInt32 {
        bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }
}
