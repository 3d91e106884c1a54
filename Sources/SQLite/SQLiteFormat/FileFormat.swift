import Glibc

/// The format of a file that is expected to be a store, detected from its first bytes.
package enum FileFormat: Equatable, Sendable, CaseIterable {
    /// Zero bytes long.
    case empty
    case sqlite3
    /// Begins like a SQLite 3 database but has an invalid header.
    case damagedSQLite3
    case sqlite2
    /// SQLite's side files, given instead of their database.
    case writeAheadLog
    case rollbackJournal
    case coreDataXML
    /// A binary property list. Core Data's binary store is one, and so are other archives.
    case binaryPropertyList
    /// No visible structure, and a size that a database can have: encrypted, or random bytes.
    case encrypted
    /// Only zero bytes, as some file systems leave a file after a crash.
    case zeros
    case compressed
    case text
    case other

    /// The number of first bytes that `init(firstBytes:size:)` needs.
    package static let sampleLength = 4096

    /// Detects the format. `firstBytes` holds the file's first bytes, at least `sampleLength` of them unless the file
    /// is shorter. `size` is the size of the whole file.
    package init(firstBytes: [UInt8], size: Int64) {
        let sample = firstBytes.prefix(Self.sampleLength)
        if sample.isEmpty {
            self = .empty
        } else if let signature = Self.signatures.first(where: { sample.starts(with: $0.bytes) }) {
            self =
                signature.format == .sqlite3 && DatabaseHeader(firstBytes) == nil ? .damagedSQLite3 : signature.format
        } else if sample.allSatisfy({ $0 == 0 }) {
            self = .zeros
        } else if XMLPrologue(sample).isCoreDataStore {
            self = .coreDataXML
        } else if Self.isText(sample) {
            self = .text
        } else if size.isMultiple(of: 512), Self.entropy(sample) >= Self.minimumRandomEntropy(sample.count) {
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

    /// True if the sample is UTF-8 without control characters. The last character may be cut off.
    private static func isText(_ sample: ArraySlice<UInt8>) -> Bool {
        for cut in 0...min(3, sample.count - 1) {
            guard let text = String(validating: sample.dropLast(cut), as: UTF8.self) else { continue }
            return text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || (0x09...0x0D).contains($0) }
        }
        return false
    }

    /// Returns the Shannon entropy of the sample in bits per byte.
    private static func entropy(_ sample: ArraySlice<UInt8>) -> Double {
        var counts = [Int](repeating: 0, count: 256)
        for byte in sample { counts[Int(byte)] += 1 }
        return counts.filter { $0 > 0 }.reduce(0) { sum, count in
            let probability = Double(count) / Double(sample.count)
            return sum - probability * log2(probability)
        }
    }

    /// Returns the entropy above which a sample counts as random. On average, random bytes have log2(e) * 255 / (2 *
    /// count) bits less than 8; a tenth of a bit allows for chance.
    private static func minimumRandomEntropy(_ count: Int) -> Double {
        8 - 1.4427 * 255 / (2 * Double(count)) - 0.1
    }
}

extension FileFormat: CustomStringConvertible {
    /// The format as a phrase that completes "not a SQLite database, but …".
    package var description: String {
        switch self {
        case .empty: "an empty file"
        case .sqlite3: "a SQLite 3 database"
        case .damagedSQLite3: "a SQLite 3 database with a damaged header"
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

    /// The format's identifier for scripts.
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

    /// True if the file may be a store that only its own program can read, so that its bytes can be moved but not
    /// inspected.
    package var mayBeOpaque: Bool { self == .encrypted }
}
