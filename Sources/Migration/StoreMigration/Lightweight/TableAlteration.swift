import CoreDataStore
import SQLiteFormat

/// The statements that alter a table in place: they drop, add and rename columns, and update rows.
struct TableAlteration {
    let statements: [String]
    /// The names, in lower case, of the table's columns that are dropped or updated. Indexes of other columns stay
    /// valid.
    let writtenColumns: Set<String>
    /// The statement that updates each object's entity number; nil if some keep theirs.
    let renumbering: String?
    /// The number of dropped columns. SQLite drops each in a pass of its own.
    let dropCount: Int
    /// The number of columns that are added or renamed. SQLite reads the table's whole statement for each.
    let parsedCount: Int
    /// True if rows are updated.
    let updatesRows: Bool

    /// - Parameters:
    ///   - numbers: The entities' new numbers by their old ones.
    ///   - columnNames: The names of the table's columns.
    init(_ table: TableMigration, of source: TableLayout, numbers: [Int64: Int64], columnNames: [String]) {
        let family = Set(table.numbers.keys)
        let name = source.name.sqlName
        let number = EntityNumberExpression(table.numbers, of: "Z_ENT")
        // Only rows of the table's entities are updated, so for a single entity all get the same number.
        let soleNumber = table.numbers.count == 1 ? table.numbers.values.first.map(String.init) : nil
        var updates = number.isIdentity ? [] : [(column: "Z_ENT", value: soleNumber ?? number.text)]
        for column in table.columns where column.unchangedSource == nil {
            if column.onlySource == nil, column.values.isEmpty { continue }
            updates.append((column.column.name, column.expression(numbers, family: family)))
        }
        // Columns may exchange names: a name that is in use is assigned by way of an unused one.
        let taken = Set(columnNames.map { $0.lowercased() })
        var renamings = Renamings()
        for column in table.columns {
            guard let from = column.onlySource, !from.hasSameBytes(as: column.column.name) else { continue }
            renamings.add(from, column.column.name, isTaken: taken.contains(column.column.name.lowercased()))
        }
        var added: [String] = []
        for column in table.columns where column.onlySource == nil {
            let isTaken = taken.contains(column.column.name.lowercased())
            let addedName = isTaken ? "_C_\(added.count)" : column.column.name
            added.append("ALTER TABLE \(name) ADD COLUMN \(addedName) \(column.column.type)")
            if isTaken { renamings.temporaryNames[column.column.name] = addedName }
        }
        var update: [String] = []
        if !updates.isEmpty {
            let sets = updates.map { "\((renamings.currentName(of: $0.column)).sqlName) = \($0.value)" }
            let condition = Self.condition(table, Set(updates.map(\.column)))
            update = ["UPDATE \(name) SET \(sets.joined(separator: ", "))\(condition)"]
        }
        let dropped = table.droppedColumns.map { "ALTER TABLE \(name) DROP COLUMN \($0.sqlName)" }
        // One pass over the rows, under the old names, before any column is renamed.
        statements =
            dropped + added + update
            + renamings.pairs.map { "ALTER TABLE \(name) RENAME COLUMN \($0.from.sqlName) TO \($0.to)" }
        dropCount = dropped.count
        parsedCount = added.count + renamings.pairs.count
        renumbering = table.numbers.allSatisfy { $0.key != $0.value } ? update.first : nil
        updatesRows = !updates.isEmpty
        writtenColumns = Set(
            (table.droppedColumns + updates.map { renamings.currentName(of: $0.column) }).map { $0.lowercased() })
    }

    /// Returns the `WHERE` clause that leaves out rows in which nothing changes.
    private static func condition(_ table: TableMigration, _ updated: Set<String>) -> String {
        var affected = Set(table.numbers.filter { $0.key != $0.value }.keys)
        let isRenumbered = !affected.isEmpty
        var changes: [String?] = []
        for column in table.columns where updated.contains(column.column.name) && column.unchangedSource == nil {
            let written = column.values.filter { !$0.value.isUnchangedColumn }
            affected.formUnion(column.clearedEntities)
            affected.formUnion(written.keys)
            changes += written.map(\.value.changeCondition) + (column.clearedEntities.isEmpty ? [] : [nil])
        }
        // A row of an unknown entity keeps its number.
        var terms = affected == Set(table.numbers.keys) && !isRenumbered ? [] : ["Z_ENT IN (\(affected.sorted().list))"]
        let known = Set(changes.compactMap(\.self))
        if !isRenumbered, !changes.contains(nil), !known.isEmpty {
            terms.append(known.sorted().disjunction)
        }
        return terms.isEmpty ? "" : " WHERE " + terms.joined(separator: " AND ")
    }

    private struct Renamings {
        private var direct: [(from: String, to: String)] = []
        private var away: [(from: String, to: String)] = []
        private var back: [(from: String, to: String)] = []
        /// The temporary names of new columns, by their final names.
        var temporaryNames: [String: String] = [:]

        mutating func add(_ from: String, _ to: String, isTaken: Bool) {
            guard isTaken else { return direct.append((from, to)) }
            let temporary = "_R_\(away.count)"
            away.append((from, temporary))
            back.append((temporary, to))
        }

        /// The renamings in the order in which they run.
        var pairs: [(from: String, to: String)] {
            let added = temporaryNames.sorted { $0.value < $1.value }.map { (from: $0.value, to: $0.key) }
            return away + direct + back + added
        }

        /// Returns a column's name before the renamings.
        func currentName(of name: String) -> String {
            let index = back.firstIndex { $0.to == name }
            return temporaryNames[name] ?? index.map { away[$0].from } ?? direct.first { $0.to == name }?.from ?? name
        }
    }
}

extension ColumnValue {
    /// True if the row already has the value.
    fileprivate var isUnchangedColumn: Bool { if case .column = self { true } else { false } }

    /// The SQL condition of rows in which the value changes; nil if it may change in any row.
    fileprivate var changeCondition: String? {
        switch self {
        case .marked(let name): name.sqlName + " IS NOT NULL"
        case .defaulting(.column(let name), _): name.sqlName + " IS NULL"
        case .column, .truncated, .defaulting, .entityNumber, .literal: nil
        }
    }
}
