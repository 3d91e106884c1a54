import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
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

/// One changed cell, for `--undo`.
struct RewrittenCell: Codable, Equatable {
    let store: StoredPath
    let table: String
    /// The row: its rowid, or a hash of its primary key as it is after the change.
    let row: String
    let column: String
    let old: Data
    let new: Data
}

/// Changes the paths in the text of one store, and proves that nothing else changed.
///
/// Triggers don't run: they would change more than was asked for. Tables of virtual tables are left alone, because
/// their content is encoded; so are generated columns, which follow from the others.
struct StoreRewrite {
    let path: FilePath
    let name: FilePath
    /// Returns the new value of a cell, or nil if it stays: from the table, the row, the column and the text.
    let change: (_ table: String, _ row: String, _ column: String, _ text: [UInt8]) -> [UInt8]?

    struct Result {
        var columns: [RewrittenColumn] = []
        var cells: [RewrittenCell] = []
        /// Sentences about what was left alone.
        var notes: [String] = []
    }

    /// Changes a staged store that nobody else has open, in one transaction. Throws `StoreError`, and
    /// `RelocationFailure` if the result isn't exactly what was asked for.
    func run() throws -> Result {
        let store = try StoreWriter(path)
        try store.disableTriggers()
        return try store.transaction(.immediate) { try perform(store, writes: true) }
    }

    /// Looks for what `run` would change.
    func preview(_ connection: SQLiteConnection) throws -> Result { try perform(connection, writes: false) }

    private func perform(_ store: SQLiteConnection, writes: Bool) throws -> Result {
        var result = Result()
        let schema = try DatabaseSchema(store)
        for table in schema.tables where table.kind != .virtual && !table.isShadow {
            guard let reading = TableReading(table, try TextEncoding(store)) else {
                result.notes.append("\(PrintablePath(name)): table \(table.name) has no key to change a row by")
                continue
            }
            var expected = RowSum()
            var changes: [(key: [StoredValue], columns: [Int], values: [StoredValue])] = []
            try reading.forEachRow(store) { key, cells in
                var cells = cells
                var columns: [Int] = []
                let row = reading.name(of: key)
                var found: [(Int, [UInt8], [UInt8])] = []
                for (index, cell) in cells.enumerated() {
                    guard let text = reading.text(cell),
                        let new = change(table.name, row, reading.columns[index], text)
                    else { continue }
                    cells[index] = String(validating: new, as: UTF8.self).map { .text($0) } ?? .malformedText(new)
                    columns.append(index)
                    found.append((index, text, new))
                }
                expected.add(reading.identity(key, cells), cells)
                guard !columns.isEmpty else { return }
                changes.append((key, columns, columns.map { cells[$0] }))
                let changedRow = reading.name(of: reading.identity(key, cells))
                for (index, old, new) in found {
                    result.add(name, table.name, reading.columns[index], changedRow, old, new)
                }
            }
            guard writes, !changes.isEmpty else { continue }
            try check(table, schema, &result)
            for change in changes { try reading.update(store, change.key, change.columns, change.values) }
            var actual = RowSum()
            try reading.forEachRow(store) { key, cells in actual.add(key, cells) }
            guard actual == expected else {
                throw RelocationFailure.app(
                    .failed, "audit", "\(PrintablePath(name)): table \(table.name) differs from what was asked for",
                    "leave --rewrite out: the link at the old place serves the old paths")
            }
        }
        return result
    }

    private func check(_ table: DatabaseSchema.Table, _ schema: DatabaseSchema, _ result: inout Result) throws {
        if let collation = table.indexes.lazy.compactMap(\.unknownCollation).first {
            throw RelocationFailure.app(
                .badData, "collation",
                "\(PrintablePath(name)): an index of table \(table.name) is sorted by \(collation), which only its "
                    + "program knows", "leave --rewrite out: the link at the old place serves the old paths")
        }
        if schema.objects(.trigger).contains(where: { $0.table == table.name }) {
            result.notes.append("\(PrintablePath(name)): the triggers of table \(table.name) did not run")
        }
    }
}

extension StoreRewrite.Result {
    fileprivate mutating func add(
        _ store: FilePath, _ table: String, _ column: String, _ row: String, _ old: [UInt8], _ new: [UInt8]
    ) {
        cells.append(
            RewrittenCell(
                store: StoredPath(store), table: table, row: row, column: column, old: Data(old), new: Data(new)))
        let place = columns.firstIndex { $0.table == table && $0.column == column }
        if place == nil { columns.append(RewrittenColumn(store: store, table: table, column: column)) }
        let index = place ?? columns.count - 1
        columns[index].count += 1
        guard columns[index].samples.count < 3 else { return }
        let sample = RewrittenColumn.Sample(
            old: PrintablePath(bytes: old).description, new: PrintablePath(bytes: new).description)
        columns[index].samples.append(sample)
    }
}
