import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The changes of the commits that are still in a store's write-ahead log: which changes were one commit.
///
/// No trigger sees where a transaction ends, but each commit that records changes writes the last leaf of `GS_CHANGE`.
/// The highest number there is that of the commit's last change. A page counts if the nonce of one of its rows is the
/// one that SQL reads under that number. Before the first commit in the log, nothing is known.
struct CommitRanges {
    /// The last change of the commit before, and that of the commit.
    private var ranges: [(after: Int64, upTo: Int64)] = []

    /// A log longer than this isn't read.
    private static let maxLogSize: Int64 = 64 << 20

    /// Reads the log. The reader's own lock keeps it from being overwritten.
    init(_ reader: StoreReader, lastChange: Int64) throws {
        let location = reader.location
        let log: Descriptor
        do throws(SystemError) {
            log = try location.directory.open(location.name.wal, flags: O_RDONLY)
        } catch {
            // There is no log, or this user may not read it.
            return
        }
        guard try log.status(path: location.path).size <= Self.maxLogSize else { return }
        let nonce = try reader.prepare("SELECT nonce FROM main.GS_CHANGE WHERE number = ?1")
        /// The pages of the commit that is being read. A page may have been written more than once.
        var pages: [UInt32: LeafPage] = [:]
        var former: Int64?
        try WriteAheadLog.forEachFrame(log, path: location.path) { page, content, isCommit in
            pages[page] = LeafPage(content, page: page)
            guard isCommit else { return true }
            defer { pages = [:] }
            var last: Int64?
            var isCertain = true
            for found in pages.values {
                guard case .changes(let number, let row?) = found else {
                    isCertain = false
                    continue
                }
                // What was committed after the state that is read is of no interest.
                guard number <= lastChange else { return false }
                nonce.reset()
                try nonce.bind([.integer(row.number)])
                if try nonce.step() && nonce.integer(0) == row.nonce {
                    last = max(last ?? .min, number)
                } else {
                    isCertain = false
                }
                nonce.reset()
            }
            guard isCertain else {
                // A page that can't be told from the last leaf may hold later changes of this commit.
                former = nil
                return true
            }
            guard let last, last > former ?? .min else { return true }
            if let former { ranges.append((former, last)) }
            former = last
            return true
        }
    }

    /// Returns the number of the last change of the commit that a change belongs to; nil if that isn't known.
    func commit(of number: Int64) -> Int64? {
        var (low, high) = (0, ranges.count)
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].upTo < number { low = middle + 1 } else { high = middle }
        }
        guard low < ranges.count, ranges[low].after < number else { return nil }
        return ranges[low].upTo
    }
}

/// A page that is, or may be, a leaf of `GS_CHANGE`.
private enum LeafPage {
    /// A page with records of that form: its highest number, and the last of its rows whose nonce is on the page
    /// itself. A row's nonce is on overflow pages if its key is long, and 0 if the row is no change.
    case changes(last: Int64, row: (number: Int64, nonce: Int64)?)
    case unreadable

    /// Returns nil for any other page.
    init?(_ content: UnsafeRawBufferPointer, page: UInt32) {
        guard let leaf = BTreePage(content, page: page, usableSize: content.count), leaf.kind == .tableLeaf,
            leaf.cellCount > 0
        else { return nil }
        self = .unreadable
        guard let last = leaf.rowid(leaf.cellCount - 1) else { return }
        for index in (0..<leaf.cellCount).reversed() {
            guard let payload = leaf.payload(index), let number = leaf.rowid(index) else { return }
            guard let record = ChangeRecord(UnsafeRawBufferPointer(rebasing: content[payload.local])) else {
                return nil
            }
            if let nonce = record.nonce, nonce != 0 {
                self = .changes(last: last, row: (number, nonce))
                return
            }
        }
        self = .changes(last: last, row: nil)
    }
}

/// The beginning of a record of `GS_CHANGE` (https://sqlite.org/fileformat2.html, §2.1).
private struct ChangeRecord {
    /// The nonce; nil if it isn't on the page.
    let nonce: Int64?

    /// Returns nil for a record of another table.
    init?(_ record: UnsafeRawBufferPointer) {
        guard let (length, first) = record.varint(0, end: record.count), length <= record.count else { return nil }
        var (header, serials): (Int, [UInt64]) = (first, [])
        while header < Int(length) {
            guard let (serial, next) = record.varint(header, end: Int(length)) else { return nil }
            serials.append(serial)
            header = next
        }
        // number, table_id, operation, key, columns, nonce, time, author
        guard serials.count == 8, serials[0] == 0, [1, 2, 5].allSatisfy({ Self.isInteger(serials[$0]) }),
            serials[6] == 7 || Self.isInteger(serials[6])
        else { return nil }
        let start = serials[..<5].reduce(UInt64(length)) { $0 &+ UnsafeRawBufferPointer.length(ofSerial: $1) }
        let size = Int(UnsafeRawBufferPointer.length(ofSerial: serials[5]))
        guard start <= UInt64(record.count), Int(start) + size <= record.count else {
            nonce = nil
            return
        }
        switch serials[5] {
        case 8: nonce = 0
        case 9: nonce = 1
        default:
            let bytes = record[Int(start)..<Int(start) + size]
            let sign: Int64 = (bytes.first ?? 0) & 0x80 == 0 ? 0 : -1
            nonce = bytes.reduce(sign) { $0 << 8 | Int64($1) }
        }
    }

    private static func isInteger(_ serial: UInt64) -> Bool { (1...6).contains(serial) || serial == 8 || serial == 9 }
}
