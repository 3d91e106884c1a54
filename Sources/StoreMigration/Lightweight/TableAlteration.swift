import CoreDataStore

/// What is done to a table that need not be made anew: columns are dropped, added and renamed, and rows get what is new.
struct TableAlteration {
    let statements: [String]
    /// The table's columns, in lower case, that are dropped or get other values: what isn't of them stays as it is.
    let written: Set<String>
    /// The statement that writes each object's entity number; nil where some keep theirs.
    let renumbering: String?
    /// Columns that go, each in a pass of its own.
    let drops: Int
    /// Whether rows get other values.
    let updates: Bool

    /// - Parameters:
    ///   - numbers: The entities' new numbers by their old ones.
    ///   - names: Those of the columns that the table has.
    init(_ table: TableMigration, of source: TableLayout, _ numbers: [Int64: Int64], having names: [String]) {
        let family = Set(table.numbers.keys)
        let name = source.name.sqlName
        let number = EntityNumberExpression(table.numbers, of: "Z_ENT")
        // Only rows of the table's entities are written: of one entity, all get the same number.
        let all = table.numbers.count == 1 ? table.numbers.values.first.map(String.init) : nil
        var updates = number.isIdentity ? [] : [(column: "Z_ENT", value: all ?? number.text)]
        for column in table.columns where column.carried == nil {
            if column.onlySource == nil, column.values.isEmpty { continue }
            updates.append((column.column.name, column.expression(numbers, family: family)))
        }
        // Names may be exchanged: one that is taken is reached through one that nobody has.
        let taken = Set(names.map { $0.lowercased() })
        var renamings = Renamings()
        for column in table.columns {
            guard let from = column.onlySource, !from.hasSameBytes(as: column.column.name) else { continue }
            renamings.add(from, column.column.name, isTaken: taken.contains(column.column.name.lowercased()))
        }
        var added: [String] = []
        for column in table.columns where column.onlySource == nil {
            let isTaken = taken.contains(column.column.name.lowercased())
            let given = isTaken ? "_C_\(added.count)" : column.column.name
            added.append("ALTER TABLE \(name) ADD COLUMN \(given) \(column.column.type)")
            if isTaken { renamings.given[column.column.name] = given }
        }
        var update: [String] = []
        if !updates.isEmpty {
            let sets = updates.map { "\((renamings.present($0.column)).sqlName) = \($0.value)" }
            let condition = Self.condition(table, Set(updates.map(\.column)))
            update = ["UPDATE \(name) SET \(sets.joined(separator: ", "))\(condition)"]
        }
        let dropped = table.dropped.map { "ALTER TABLE \(name) DROP COLUMN \($0.sqlName)" }
        // One pass over the rows, with the old names, before any is given away.
        statements =
            dropped + added + update
            + renamings.pairs.map { "ALTER TABLE \(name) RENAME COLUMN \($0.from.sqlName) TO \($0.to)" }
        drops = dropped.count
        renumbering = table.numbers.allSatisfy { $0.key != $0.value } ? update.first : nil
        self.updates = !updates.isEmpty
        written = Set((table.dropped + updates.map { renamings.present($0.column) }).map { $0.lowercased() })
    }

    /// Rows in which nothing changes are not written.
    private static func condition(_ table: TableMigration, _ updated: Set<String>) -> String {
        var touched = Set(table.numbers.filter { $0.key != $0.value }.keys)
        let isRenumbered = !touched.isEmpty
        var changes: [String?] = []
        for column in table.columns where updated.contains(column.column.name) && column.carried == nil {
            let written = column.values.filter { !$0.value.isPlain }
            touched.formUnion(column.excluded)
            touched.formUnion(written.keys)
            changes += written.map(\.value.change) + (column.excluded.isEmpty ? [] : [nil])
        }
        // A row of none of the table's entities keeps its number.
        var terms = touched == Set(table.numbers.keys) && !isRenumbered ? [] : ["Z_ENT IN (\(touched.sorted().list))"]
        let known = Set(changes.compactMap(\.self))
        if !isRenumbered, !changes.contains(nil), !known.isEmpty {
            terms.append("(" + known.sorted().joined(separator: " OR ") + ")")
        }
        return terms.isEmpty ? "" : " WHERE " + terms.joined(separator: " AND ")
    }

    private struct Renamings {
        private var direct: [(from: String, to: String)] = []
        private var away: [(from: String, to: String)] = []
        private var back: [(from: String, to: String)] = []
        /// The names that new columns have until the old ones are gone, by their own.
        var given: [String: String] = [:]

        mutating func add(_ from: String, _ to: String, isTaken: Bool) {
            guard isTaken else { return direct.append((from, to)) }
            let between = "_R_\(away.count)"
            away.append((from, between))
            back.append((between, to))
        }

        /// In the order in which they are done.
        var pairs: [(from: String, to: String)] {
            let added = given.sorted { $0.value < $1.value }.map { (from: $0.value, to: $0.key) }
            return away + direct + back + added
        }

        /// What a column is called before they are done.
        func present(_ name: String) -> String {
            let index = back.firstIndex { $0.to == name }
            return given[name] ?? index.map { away[$0].from } ?? direct.first { $0.to == name }?.from ?? name
        }
    }
}

extension ColumnValue {
    /// Whether the value is the one that the row has already.
    fileprivate var isPlain: Bool { if case .column = self { true } else { false } }

    /// In which rows it isn't, as a condition; nil where it may be in any.
    fileprivate var change: String? {
        switch self {
        case .marked(let name): name.sqlName + " IS NOT NULL"
        case .orElse(.column(let name), _): name.sqlName + " IS NULL"
        case .column, .whole, .orElse, .entityNumber, .literal: nil
        }
    }
}
