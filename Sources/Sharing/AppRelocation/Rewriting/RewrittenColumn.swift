import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The cells of one column that hold an old path.
package struct RewrittenColumn: Sendable, Equatable {
    /// The store, relative to the moved directory.
    package let store: FilePath
    package let table: String
    package let column: String
    package internal(set) var count = 0
    /// The first three values, before and after.
    package internal(set) var samples: [Sample] = []

    package struct Sample: Sendable, Equatable {
        package let old: String
        package let new: String

        /// The bytes of a long value that are shown, and those of them before the first difference.
        private static let (length, lead) = (200, 60)

        /// Takes what surrounds the first difference of two values.
        init(_ old: [UInt8], _ new: [UInt8]) {
            let difference = zip(old, new).prefix { $0 == $1 }.count
            let start = Swift.max(old.count, new.count) > Self.length ? Swift.max(0, difference - Self.lead) : 0
            (self.old, self.new) = (Self.excerpt(of: old, from: start), Self.excerpt(of: new, from: start))
        }

        /// Returns a part of a text that begins and ends with whole characters.
        private static func excerpt(of text: [UInt8], from start: Int) -> String {
            func isWithin(_ index: Int) -> Bool { index < text.count && text[index] & 0xC0 == 0x80 }
            var (first, end) = (Swift.min(start, text.count), Swift.min(start + Self.length, text.count))
            while isWithin(first) { first += 1 }
            while isWithin(end) { end += 1 }
            let part = PrintablePath(bytes: Array(text[first..<Swift.max(first, end)])).description
            return (first > 0 ? "…" : "") + part + (end < text.count ? "…" : "")
        }
    }
}

extension [RewrittenColumn] {
    /// Counts a changed cell, and keeps the first three values.
    mutating func add(_ store: FilePath, _ table: String, _ column: String, _ old: [UInt8], _ new: [UInt8]) {
        let place = firstIndex {
            $0.store == store && $0.table.hasSameBytes(as: table) && $0.column.hasSameBytes(as: column)
        }
        if place == nil { append(RewrittenColumn(store: store, table: table, column: column)) }
        let index = place ?? count - 1
        self[index].count += 1
        guard self[index].samples.count < 3 else { return }
        self[index].samples.append(RewrittenColumn.Sample(old, new))
    }
}

/// One changed cell, for `--undo`.
struct RewrittenCell: Codable, Equatable {
    let store: StoredPath
    let table: String
    /// The row, by its declared key as it is after the change: an INTEGER PRIMARY KEY, or a hash of another key. Nil
    /// without one: `VACUUM` numbers such rows anew, and the cell is found by its value.
    let row: String?
    let column: String
    let old: Data
    let new: Data
    /// True for a cell without a row if its value is in other cells of the column too.
    var isShared = false
}
