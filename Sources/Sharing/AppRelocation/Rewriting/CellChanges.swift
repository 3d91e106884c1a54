import CSQLite
import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Changes of one table's cells, found by one reading of all its rows, and proved by another.
struct CellChanges {
    struct Cell {
        /// The row, as `TableReading.name` names it after the change.
        let row: String?
        /// The place in the reading's columns.
        let column: Int
        let old: [UInt8]
        let new: [UInt8]
    }

    /// A text in a column.
    struct Value: Hashable {
        let column: Int
        let text: [UInt8]
    }

    let reading: TableReading
    private(set) var cells: [Cell] = []
    private typealias Row = (key: [StoredValue], columns: [Int], values: [StoredValue])
    private var rows: [Row] = []
    private var expected = RowSum()

    /// Reads the table. `change` returns the new text of a cell, or nil if it stays: from the row, the column's place
    /// and the text.
    init(
        _ reading: TableReading, _ store: SQLiteConnection,
        _ change: (_ row: String?, _ column: Int, _ text: [UInt8]) -> [UInt8]?
    ) throws {
        self.reading = reading
        try reading.forEachRow(store) { key, cells in add(key, cells, change) }
    }

    private mutating func add(
        _ key: [StoredValue], _ original: [StoredValue], _ change: (String?, Int, [UInt8]) -> [UInt8]?
    ) {
        let row = reading.name(key, original)
        var cells = original
        var found: [(column: Int, old: [UInt8], new: [UInt8])] = []
        for (index, cell) in original.enumerated() {
            guard let text = reading.text(cell), let new = change(row, index, text) else { continue }
            cells[index] = String(validating: new, as: UTF8.self).map { .text($0) } ?? .malformedText(new)
            found.append((index, text, new))
        }
        expected.add(reading.identity(key, cells), cells)
        guard !found.isEmpty else { return }
        rows.append((key, found.map(\.column), found.map { cells[$0.column] }))
        let changedRow = reading.name(reading.identity(key, cells), cells)
        self.cells += found.map { Cell(row: changedRow, column: $0.column, old: $0.old, new: $0.new) }
    }

    /// Throws `RelocationFailure` if the changes can't be written here: the table needs a collation or a function that
    /// only its program has. Changes nothing.
    func check(_ store: SQLiteConnection, _ name: FilePath) throws {
        let table = reading.table
        if let collation = table.indexes.lazy.compactMap(\.unknownCollation).first {
            throw RelocationFailure.app(
                .badData, "collation",
                "\(PrintablePath(name)): an index of table \(table.name) is sorted by \(collation), which only its "
                    + "program knows", "leave --rewrite out: the link at the old place serves the old paths")
        }
        let columns = Set(rows.flatMap(\.columns)).sorted().map { reading.columns[$0].sqlName }
        guard !columns.isEmpty else { return }
        do {
            // Compiled as the change is, and not run. For a read-only connection, SQLite compiles no CHECK.
            let assignments = columns.map { "\($0) = \($0)" }.joined(separator: ", ")
            _ = try store.prepare("UPDATE main.\(table.name.sqlName) SET \(assignments)")
        } catch StoreError.sqlite(let code, let message, _) where code == SQLITE_ERROR {
            throw RelocationFailure.app(
                .badData, "function", "\(PrintablePath(name)): table \(table.name) can't be changed here: \(message)",
                "leave --rewrite out: the link at the old place serves the old paths")
        }
    }

    /// Writes the changes, and reads the table again. Throws `RelocationFailure` if a constraint forbids one, or if
    /// anything else changed too.
    ///
    /// - Parameter origin: The path at which the user finds the store, to look at its rows.
    func write(_ store: SQLiteConnection, _ name: FilePath, _ origin: FilePath) throws {
        let table = reading.table
        var waiting = rows
        while !waiting.isEmpty {
            // A row may get the path of one that is changed after it.
            var refusals: [(row: Row, code: Int32, message: String)] = []
            for row in waiting {
                do {
                    try reading.update(store, row.key, row.columns, row.values)
                } catch StoreError.sqlite(let code, let message, _) where code & 0xFF == SQLITE_CONSTRAINT {
                    refusals.append((row, code, message))
                }
            }
            if let (row, code, message) = refusals.first, refusals.count == waiting.count {
                // SQLITE_CONSTRAINT_PRIMARYKEY, _UNIQUE and _ROWID, which Swift doesn't import.
                let isTaken = [6, 8, 10].contains(code >> 8)
                throw refused(row.columns, row.values, isTaken: isTaken, message, name, origin)
            }
            waiting = refusals.map(\.row)
        }
        var actual = RowSum()
        try reading.forEachRow(store) { key, cells in actual.add(key, cells) }
        guard actual == expected else {
            throw RelocationFailure.app(
                .failed, "audit", "\(PrintablePath(name)): table \(table.name) differs from what was asked for",
                "leave --rewrite out: the link at the old place serves the old paths")
        }
    }

    /// The failure of a row whose new path the table's constraints forbid.
    ///
    /// - Parameter isTaken: True if another row has the path.
    private func refused(
        _ columns: [Int], _ values: [StoredValue], isTaken: Bool, _ message: String, _ name: FilePath,
        _ origin: FilePath
    ) -> RelocationFailure {
        let table = reading.table.name
        let cells = zip(columns, values).compactMap { column, value in
            reading.text(value).map { (name: reading.columns[column], text: $0) }
        }
        let words = cells.map { "\($0.name) \(PrintablePath(bytes: $0.text))" }.joined(separator: ", ")
        let conditions = cells.compactMap { cell in
            String(validating: cell.text, as: UTF8.self).map { "\(cell.name.sqlName) = \($0.sqlText)" }
        }
        let query =
            isTaken
            ? "SELECT * FROM \(table.sqlName) WHERE \(conditions.joined(separator: " OR "))"
            : "SELECT sql FROM sqlite_schema WHERE name = \(table.sqlText)"
        let remedy =
            isTaken
            ? "change or remove the row that has it"
            : "leave --rewrite out: the link at the old place serves the old paths; this prints the table's rules"
        return .app(
            .badData, "constraint",
            "\(PrintablePath(name)): no row of table \(table) can get \(words): \(message)",
            "\(remedy): sqlite3 \(origin.shellWord) \(ShellText.word(Array(query.utf8)))")
    }

    /// Returns how many cells of the table hold each of the texts.
    static func counts(
        of values: Set<Value>, _ reading: TableReading, _ store: SQLiteConnection
    ) throws -> [Value: Int] {
        var counts: [Value: Int] = [:]
        guard !values.isEmpty else { return counts }
        try reading.forEachRow(store) { _, cells in
            for (index, cell) in cells.enumerated() {
                guard let text = reading.text(cell) else { continue }
                let value = Value(column: index, text: text)
                if values.contains(value) { counts[value, default: 0] += 1 }
            }
        }
        return counts
    }
}
