import SQLiteStore

/// Something that no two rows of a table have in common: where a statement says OR REPLACE, a row gives way to one that
/// has the same, and no DELETE trigger tells of it (https://sqlite.org/lang_conflict.html).
struct UniqueRule: Equatable {
    /// One of the columns or expressions that must differ.
    struct Part: Equatable {
        /// In SQL, of a row in the table.
        let stored: String
        /// In SQL, of the row that comes: `NEW`.
        let coming: String
        let collation: String?
        /// NULL becomes a default value, and what comes isn't known before the statement is over.
        let isReplacedByDefault: Bool
    }

    /// 0: the row's key.
    let number: Int
    let parts: [Part]
    /// Of a partial index: what a row must be to be in it. It isn't asked of the row that comes unless an expression
    /// may fail where it isn't met: a row that is noted without need is still there afterwards.
    let storedCondition: String?
    /// Those that an UPDATE must assign before the rule can matter.
    let columns: [String]
    /// Those that the app can drop together with the index.
    let droppable: [String]
    /// Whether what comes is compared with something, and so by an affinity and a collation.
    let isCompared: Bool

    /// Whether its expressions may fail for a row that isn't in the partial index.
    let mayFail: Bool
    /// Whether it is computed from the row's number, which isn't known before SQLite gives a new row one.
    let needsRowid: Bool
    /// Whether versions before 3 recorded it exactly: it has columns alone.
    let isPlain: Bool

    /// What is the same in the row that comes before the statement and after it; it needn't differ from other values.
    var identity: String {
        let known = parts.filter { !$0.isReplacedByDefault }.map(\.coming)
        switch known.count {
        case 0: return "''"
        case 1: return lenient(known[0])
        default: return lenient(known.map(QuotedValues.expression).joined(separator: "||','||"))
        }
    }

    /// Whether the value isn't known before the statement is over.
    var isReplacedByDefault: Bool { parts.contains(where: \.isReplacedByDefault) }

    /// Of the rows in the table: has the same as the one that comes.
    var conflict: String { ([sameness] + (storedCondition.map { ["(\($0))"] } ?? [])).joined(separator: " AND ") }

    /// Of the row that came: has something else than was worked out of it before.
    var surprise: String {
        let differs = (parts.map { "\($0.stored) IS NOT NULL" } + ["(\(sameness)) IS NOT 1"]).joined(separator: " AND ")
        guard let storedCondition else { return differs }
        return mayFail
            ? "(CASE WHEN \(storedCondition) THEN \(differs) END)" : "(\(storedCondition)) AND \(differs)"
    }

    private var sameness: String {
        parts.map { part in
            let collation = part.collation.map { " COLLATE \(StoreTable.quote($0))" } ?? ""
            return "\(part.stored) = \(part.coming)\(collation)"
        }.joined(separator: " AND ")
    }

    /// The SQL of an expression that is NULL where one of the droppable columns is gone, and no error: a name that neither
    /// the table nor NEW has any more is found further out (https://sqlite.org/lang_altertable.html, DROP COLUMN).
    func lenient(_ expression: String) -> String {
        guard !droppable.isEmpty else { return expression }
        let nothing = droppable.map { "NULL AS \(StoreTable.quote($0))" }.joined(separator: ", ")
        return "(SELECT (SELECT \(expression)) FROM (SELECT \(nothing)) AS new)"
    }
}

extension UniqueRule {
    /// The rules of a table: its key first.
    static func all(
        key: RecordedTable.Key, indexes: [UniqueIndex], row: IncomingRow
    ) -> [UniqueRule] {
        var rules: [UniqueRule] = []
        if case .rowid(let name, _) = key {
            let part = Part(stored: name, coming: "NEW.\(name)", collation: nil, isReplacedByDefault: false)
            let names = ["rowid", "_rowid_", "oid"] + (row.alias.map { [$0] } ?? [])
            rules.append(
                UniqueRule(
                    number: 0, parts: [part], storedCondition: nil, columns: names, droppable: [], isCompared: false,
                    mayFail: false, needsRowid: false, isPlain: true))
        }
        // The key's index first: its rule is number 0 where there is no rowid.
        let isKey = { (index: UniqueIndex) in rules.isEmpty && index.isPrimaryKey }
        for index in indexes.filter(isKey) + indexes.filter({ !isKey($0) }) {
            rules.append(UniqueRule(index, number: rules.count, row: row))
        }
        return rules
    }

    private init(_ index: UniqueIndex, number: Int, row: IncomingRow) {
        let expressions = index.terms.compactMap(\.expression)
        let named =
            index.terms.compactMap(\.column)
            + (expressions + [index.condition ?? ""]).flatMap(row.mentioned)
        let sources = row.sources(of: named)
        let computed = expressions + sources.compactMap { row.generated[$0.lowercased()] }
        // SQLite computes nothing of a row that a partial index leaves out.
        let condition = computed.contains(where: SQLText.mayFail) ? index.condition : nil
        func guarded(_ value: String, by condition: String?) -> String {
            condition.map { "(CASE WHEN \($0) THEN \(value) END)" } ?? value
        }
        let comingCondition = condition.map(row.value(ofExpression:))
        parts = index.terms.map { term in
            let isDefault = row.isReplacedByDefault(
                row.sources(of: term.column.map { [$0] } ?? row.mentioned(in: term.expression ?? "")))
            if let column = term.column {
                return Part(
                    stored: StoreTable.quote(column), coming: guarded(row.value(of: column), by: comingCondition),
                    collation: term.collation, isReplacedByDefault: isDefault)
            }
            let expression = term.expression ?? "NULL"
            return Part(
                stored: "(\(expression))", coming: guarded(row.value(ofExpression: expression), by: comingCondition),
                collation: term.collation, isReplacedByDefault: isDefault)
        }
        self.number = number
        storedCondition = index.condition
        mayFail = condition != nil
        columns = sources.filter { !row.isGenerated($0) }
        droppable = index.isDroppable ? sources : []
        isCompared = mayFail || computed.contains(where: SQLText.compares)
        needsRowid = !computed.isEmpty && sources.contains { $0 == row.alias }
        isPlain = computed.isEmpty && index.condition == nil
    }
}
