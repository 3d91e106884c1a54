import FoundationEssentials
import GroupContainers
import LinuxSystem
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
    }
}

extension [RewrittenColumn] {
    /// Counts a changed cell, and keeps the first three values.
    mutating func add(_ store: FilePath, _ table: String, _ column: String, _ old: [UInt8], _ new: [UInt8]) {
        let place = firstIndex { $0.store == store && $0.table == table && $0.column == column }
        if place == nil { append(RewrittenColumn(store: store, table: table, column: column)) }
        let index = place ?? count - 1
        self[index].count += 1
        guard self[index].samples.count < 3 else { return }
        let sample = RewrittenColumn.Sample(
            old: PrintablePath(bytes: old).description, new: PrintablePath(bytes: new).description)
        self[index].samples.append(sample)
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
