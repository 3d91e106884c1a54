/// The first 100 bytes of a SQLite database (https://sqlite.org/fileformat2.html, §1.3).
package struct DatabaseHeader: Equatable, Sendable {
    package enum JournalMode: String, Sendable {
        case rollback
        case writeAhead = "wal"

        /// `wal` or `delete`, as SQLite calls what a file can say of itself; nil for all else.
        package init?(word: String) {
            switch word {
            case "wal": self = .writeAhead
            case "delete": self = .rollback
            default: return nil
            }
        }

        /// The word that `init(word:)` takes.
        package var word: String { self == .writeAhead ? "wal" : "delete" }
    }

    /// Bytes, a power of two between 512 and 65,536.
    package let pageSize: Int
    package let journalMode: JournalMode
    /// Moved by each transaction in rollback mode; in WAL mode only when page 1 is written.
    package let changeCounter: UInt32
    /// Pages of the database; 0 when an old SQLite wrote it and did not say.
    package let pageCount: UInt32
    /// The change counter at which `pageCount` was right.
    package let versionValidFor: UInt32

    /// Bytes that are needed.
    package static let length = 100
    private static let magic = Array("SQLite format 3\0".utf8)

    /// Nil when the bytes don't begin a SQLite 3 database.
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

    /// Bytes that a file with this header has at least, where the header says how many pages there are
    /// (https://sqlite.org/fileformat2.html, §1.3.8). SQLite itself takes what is missing of the last page for zeros.
    package var leastSize: Int64 {
        changeCounter == versionValidFor ? Int64(pageCount) * Int64(pageSize) : 0
    }

    private static func integer(_ bytes: [UInt8], at offset: Int) -> UInt32 {
        bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }
}
