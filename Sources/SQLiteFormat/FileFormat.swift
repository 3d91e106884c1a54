import Glibc

/// What a file that should be a store is, judged by how it begins.
package enum FileFormat: Equatable, Sendable, CaseIterable {
    /// Zero bytes.
    case empty
    case sqlite3
    /// Begins like a SQLite 3 database, but its header says what none can say.
    case damagedSQLite3
    case sqlite2
    /// SQLite's side files, named instead of their database.
    case writeAheadLog
    case rollbackJournal
    case coreDataXML
    /// A binary property list: Core Data's binary store is one, and so are other archives.
    case binaryPropertyList
    /// No structure to be seen, and a size that a database may have: encrypted, or random bytes.
    case encrypted
    /// Only zero bytes, as a file system may leave a file after a crash.
    case zeros
    case compressed
    case text
    case other

    /// How many of a file's first bytes are enough for `init(firstBytes:size:)`.
    package static let sampleLength = 4096

    /// `firstBytes` are as many of the file's first bytes as there are, up to `sampleLength` at least; `size` is the
    /// whole file's.
    package init(firstBytes: [UInt8], size: Int64) {
        let sample = firstBytes.prefix(Self.sampleLength)
        if sample.isEmpty {
            self = .empty
        } else if let known = Self.signatures.first(where: { sample.starts(with: $0.bytes) }) {
            self = known.format == .sqlite3 && DatabaseHeader(firstBytes) == nil ? .damagedSQLite3 : known.format
        } else if sample.allSatisfy({ $0 == 0 }) {
            self = .zeros
        } else if let text = Self.text(sample) {
            self = Self.isCoreDataXML(text) ? .coreDataXML : .text
        } else if size.isMultiple(of: 512), Self.entropy(sample) >= Self.leastRandomEntropy(sample.count) {
            self = .encrypted
        } else {
            self = .other
        }
    }

    private static let signatures: [(bytes: [UInt8], format: FileFormat)] = [
        (Array("SQLite format 3\0".utf8), .sqlite3),
        (Array("** This file contains an SQLite 2".utf8), .sqlite2),
        // https://sqlite.org/fileformat2.html, §4.1 and §3.
        ([0x37, 0x7F, 0x06, 0x82], .writeAheadLog), ([0x37, 0x7F, 0x06, 0x83], .writeAheadLog),
        ([0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7], .rollbackJournal),
        (Array("bplist".utf8), .binaryPropertyList),
        ([0x1F, 0x8B], .compressed), ([0x50, 0x4B, 0x03, 0x04], .compressed), ([0x28, 0xB5, 0x2F, 0xFD], .compressed),
        ([0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00], .compressed), (Array("BZh".utf8), .compressed),
    ]

    /// The sample as text when it is UTF-8 without control characters; a character cut off at its end is forgiven.
    private static func text(_ sample: ArraySlice<UInt8>) -> String? {
        for cut in 0...min(3, sample.count - 1) {
            guard let text = String(validating: sample.dropLast(cut), as: UTF8.self) else { continue }
            let isPlain = text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || (0x09...0x0D).contains($0) }
            return isPlain ? text : nil
        }
        return nil
    }

    /// The document element of Core Data's XML store is `database`.
    private static func isCoreDataXML(_ text: String) -> Bool {
        text.hasPrefix("<?xml") && (text.contains("<!DOCTYPE database") || text.contains("<database>"))
    }

    /// Shannon's entropy of the sample, in bits a byte.
    private static func entropy(_ sample: ArraySlice<UInt8>) -> Double {
        var counts = [Int](repeating: 0, count: 256)
        for byte in sample { counts[Int(byte)] += 1 }
        return counts.filter { $0 > 0 }.reduce(0) { sum, count in
            let share = Double(count) / Double(sample.count)
            return sum - share * log2(share)
        }
    }

    /// Random bytes have log2(e) * 255 / (2 * count) bits less than 8, on average; a tenth of a bit is for chance.
    private static func leastRandomEntropy(_ count: Int) -> Double {
        8 - 1.4427 * 255 / (2 * Double(count)) - 0.1
    }
}

extension FileFormat: CustomStringConvertible {
    /// For a message: "not a SQLite database, but …".
    package var description: String {
        switch self {
        case .empty: "an empty file"
        case .sqlite3: "a SQLite 3 database"
        case .damagedSQLite3: "what is left of a SQLite 3 database with a damaged header"
        case .sqlite2: "a SQLite 2 database"
        case .writeAheadLog: "a SQLite write-ahead log (-wal), whose database is another file"
        case .rollbackJournal: "a SQLite rollback journal (-journal), whose database is another file"
        case .coreDataXML: "a Core Data XML store"
        case .binaryPropertyList: "a binary property list, such as a Core Data binary store"
        case .encrypted: "an encrypted database or random bytes"
        case .zeros: "a file of zero bytes only"
        case .compressed: "a compressed file"
        case .text: "text"
        case .other: "a file of an unknown format"
        }
    }

    /// A word for scripts.
    package var code: String {
        switch self {
        case .empty: "empty"
        case .sqlite3: "sqlite3"
        case .damagedSQLite3: "sqlite3_damaged"
        case .sqlite2: "sqlite2"
        case .writeAheadLog: "sqlite_wal"
        case .rollbackJournal: "sqlite_journal"
        case .coreDataXML: "coredata_xml"
        case .binaryPropertyList: "binary_plist"
        case .encrypted: "encrypted"
        case .zeros: "zeros"
        case .compressed: "compressed"
        case .text: "text"
        case .other: "other"
        }
    }

    /// Whether it may be a store that only its own program can read, so that moving its bytes is moving the store.
    package var mayBeOpaque: Bool { self == .encrypted }
}
