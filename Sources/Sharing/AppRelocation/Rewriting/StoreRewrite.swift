import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Changes the paths in the text of one store, and proves that nothing else changed.
///
/// Triggers don't run: they would change more than was asked for. Tables of virtual tables are left alone, because
/// their content is encoded; so are generated columns, which follow from the others.
struct StoreRewrite {
    let path: FilePath
    /// The store, relative to the moved directory.
    let name: FilePath
    /// Its path at the place that the directory leaves.
    let origin: FilePath
    let rewriter: PathRewriter

    struct Result {
        var columns: [RewrittenColumn] = []
        var cells: [RewrittenCell] = []
        /// Sentences about what was left alone.
        var notes: [String] = []
        /// The cells that `--undo` could not give back.
        var left: [LeftCells] = []
    }

    /// Changes a staged store that nobody else has open, in one transaction. Throws `StoreError`, and
    /// `RelocationFailure` if the result isn't exactly what was asked for.
    func run() throws -> Result {
        let store = try StoreWriter(path)
        try store.disableTriggers()
        return try store.transaction(.immediate) { try perform(store, writes: true) }
    }

    /// Looks for what `run` would change.
    func preview(_ connection: SQLiteConnection) throws -> Result {
        // Statements compile as they do in `run`.
        try connection.disableTriggers()
        return try perform(connection, writes: false)
    }

    private func perform(_ store: SQLiteConnection, writes: Bool) throws -> Result {
        var result = Result()
        let schema = try DatabaseSchema(store)
        for table in schema.tables where !table.isShadow {
            guard table.kind != .virtual else {
                result.notes.append("\(PrintablePath(name)): the content of virtual table \(table.name) is left alone")
                continue
            }
            guard let reading = TableReading(table, try TextEncoding(store)) else {
                result.notes.append(
                    "\(PrintablePath(name)): table \(table.name) has no key to change a row by, and is left alone")
                continue
            }
            var unread: [String: Int] = [:]
            let change = try CellChanges(reading, store) { _, column, text in
                let changes = rewriter.changes(text)
                if changes.isTooDeep { unread[reading.columns[column], default: 0] += 1 }
                return changes.applied(to: text)
            }
            result.notes += unread.sorted { $0.key < $1.key }.map { column, count in
                "\(PrintablePath(name)): in \(Counted(count, "text")) of column \(column) of table \(table.name), "
                    + "JSON that is quoted more than \(PathRewriter.maximumDepth) times is left alone"
            }
            for cell in change.cells {
                result.columns.add(name, table.name, reading.columns[cell.column], cell.old, cell.new)
            }
            guard !change.cells.isEmpty else { continue }
            if schema.objects(.trigger).contains(where: { $0.table == table.name }) {
                result.notes.append("\(PrintablePath(name)): the triggers of table \(table.name) don't run")
            }
            try change.check(store, name)
            if writes { try change.write(store, name, origin) }
            let cells = try records(of: change, store, written: writes)
            result.notes += notes(cells, table.name)
            if writes { result.cells += cells }
        }
        return result
    }

    /// Returns a sentence about cells that `--undo` can find by their value only.
    private func notes(_ cells: [RewrittenCell], _ table: String) -> [String] {
        let nameless = cells.filter { $0.row == nil }
        guard !nameless.isEmpty else { return [] }
        let shared = nameless.count(where: \.isShared)
        let store = PrintablePath(name)
        return [
            "\(store): \(Counted(nameless.count, "path")) of table \(table), in rows without a key, "
                + (shared == 0
                    ? "can be undone as long as no other row gets the same value"
                    : "of which \(shared) can't be undone: other rows have the same value")
        ]
    }

    /// Returns what `--undo` needs. A cell of a row without a key can be told from others only if no other cell of its
    /// column has its value.
    private func records(
        of change: CellChanges, _ store: SQLiteConnection, written: Bool
    ) throws -> [RewrittenCell] {
        typealias Value = CellChanges.Value
        let nameless = change.cells.filter { $0.row == nil }
        let former = Dictionary(grouping: nameless) { Value(column: $0.column, text: $0.new) }
        var counts = try CellChanges.counts(of: Set(former.keys), change.reading, store)
        if !written {
            for cell in change.cells { counts[Value(column: cell.column, text: cell.new), default: 0] += 1 }
        }
        return change.cells.map { cell in
            let value = Value(column: cell.column, text: cell.new)
            let alike = former[value] ?? []
            let isShared = counts[value] != alike.count || alike.contains { $0.old != cell.old }
            return RewrittenCell(
                store: StoredPath(name), table: change.reading.table.name, row: cell.row,
                column: change.reading.columns[cell.column], old: Data(cell.old), new: Data(cell.new),
                isShared: cell.row == nil && isShared)
        }
    }
}
