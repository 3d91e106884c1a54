import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Gives the cells of one store back that a move has changed (`StoreRewrite`). A cell is changed only if it is proved
/// to be the one, and holds exactly what was written; all others are counted.
struct StoreRestoration {
    let path: FilePath
    /// The store, relative to the moved directory.
    let name: FilePath
    /// Its path at the place that the directory leaves.
    let origin: FilePath
    let cells: [RewrittenCell]

    /// Changes a staged store that nobody else has open, in one transaction. Throws `StoreError`, and
    /// `RelocationFailure` if the result isn't exactly what was asked for.
    func run() throws -> StoreRewrite.Result {
        let store = try StoreWriter(path)
        try store.disableTriggers()
        return try store.transaction(.immediate) { try perform(store) }
    }

    private func perform(_ store: SQLiteConnection) throws -> StoreRewrite.Result {
        var result = StoreRewrite.Result()
        let schema = try DatabaseSchema(store)
        for (table, cells) in Dictionary(grouping: cells, by: \.table).sorted(by: { $0.key < $1.key }) {
            guard let found = schema.tables.first(where: { $0.name == table }), found.kind != .virtual,
                let reading = TableReading(found, try TextEncoding(store))
            else {
                result.left.add(cells, .table)
                continue
            }
            let missing = cells.filter { !reading.columns.contains($0.column) }
            result.left.add(missing, .column)
            try restore(cells.filter { reading.columns.contains($0.column) }, reading, store, &result)
        }
        return result
    }

    private struct Place: Hashable {
        let row: String
        let column: Int
    }

    private func restore(
        _ cells: [RewrittenCell], _ reading: TableReading, _ store: SQLiteConnection,
        _ result: inout StoreRewrite.Result
    ) throws {
        typealias Value = CellChanges.Value
        let indexes = Dictionary(
            zip(reading.columns, reading.columns.indices), uniquingKeysWith: { first, _ in first })
        var keyed: [Place: RewrittenCell] = [:]
        var nameless: [Value: [RewrittenCell]] = [:]
        for cell in cells {
            guard let column = indexes[cell.column] else { continue }
            if let row = cell.row {
                keyed[Place(row: row, column: column)] = cell
            } else {
                nameless[Value(column: column, text: Array(cell.new)), default: []].append(cell)
            }
        }
        // More cells with a value than were written: which of them were, nothing tells.
        let counts = try CellChanges.counts(of: Set(nameless.keys), reading, store)
        for (value, written) in nameless
        where written.contains(where: \.isShared) || (counts[value] ?? 0) > written.count {
            result.left.add(written, .ambiguous)
            nameless[value] = nil
        }
        let change = try CellChanges(reading, store) { row, column, text in
            if let row, let cell = keyed[Place(row: row, column: column)] {
                return cell.new.elementsEqual(text) ? Array(cell.old) : nil
            }
            return nameless[Value(column: column, text: text)]?.first.map { Array($0.old) }
        }
        if !change.cells.isEmpty { try change.write(store, name, origin) }
        for cell in change.cells {
            result.columns.add(name, reading.table.name, reading.columns[cell.column], cell.old, cell.new)
        }
        countChanged(Array(keyed.values) + nameless.values.joined(), reading, &result)
    }

    /// Counts the cells that the program has changed or removed since, a column at a time.
    private func countChanged(
        _ provable: [RewrittenCell], _ reading: TableReading, _ result: inout StoreRewrite.Result
    ) {
        for (column, cells) in Dictionary(grouping: provable, by: { ExactName($0.column) }) {
            let given =
                result.columns.first {
                    $0.table.hasSameBytes(as: reading.table.name) && $0.column.hasSameBytes(as: column.text)
                }?.count ?? 0
            result.left.add(Array(cells.dropFirst(given)), .changed)
        }
    }
}

extension [LeftCells] {
    /// Counts cells that stay, a column at a time.
    mutating func add(_ cells: [RewrittenCell], _ reason: LeftCells.Reason) {
        for cell in cells {
            let place = firstIndex {
                $0.store == cell.store && $0.table.hasSameBytes(as: cell.table)
                    && $0.column.hasSameBytes(as: cell.column) && $0.reason == reason
            }
            if let place {
                self[place].count += 1
            } else {
                append(LeftCells(store: cell.store, table: cell.table, column: cell.column, reason: reason))
            }
        }
    }
}
