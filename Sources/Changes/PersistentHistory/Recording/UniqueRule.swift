import SQLiteFormat
import SQLiteStore

/// Values that no two rows of a table share. With OR REPLACE, a row is replaced by an incoming row that has the same
/// values, and no DELETE trigger fires (https://sqlite.org/lang_conflict.html).
struct UniqueRule: Equatable {
    /// One of the columns or expressions that must be unique.
    struct Part: Equatable {
        /// SQL of the value in an existing row.
        let stored: String
        /// SQL of the value in the incoming row, `NEW`.
        let incoming: String
        let collation: String?
        /// True if NULL becomes a default value, so that the incoming value isn't known before the statement ends.
        let isReplacedByDefault: Bool
    }

    /// The rule's number; 0 is the row's key.
    let number: Int
    let parts: [Part]
    /// The condition for existing rows of a partial index. The incoming row isn't tested against it unless an
    /// expression may fail where the condition is false: a candidate recorded without need is still there afterwards.
    let storedCondition: String?
    /// The columns of which an UPDATE must assign one before the rule can matter.
    let columns: [String]
    /// The columns that the app can drop together with the index.
    let droppable: [String]
    /// True if the incoming value is compared with something, so that affinity and collation matter.
    let isCompared: Bool

    /// True if the expressions may fail for a row outside the partial index.
    let mayFail: Bool
    /// True if the rule is computed from the rowid, which isn't known before SQLite assigns one to a new row.
    let needsRowid: Bool
    /// True if versions before 3 recorded the rule exactly: it has only columns.
    let isPlain: Bool

    /// SQL of a value that is the same in the incoming row before and after the statement. It needn't be unique.
    var identity: String {
        let known = parts.filter { !$0.isReplacedByDefault }.map(\.incoming)
        switch known.count {
        case 0: return "''"
        case 1: return lenient(known[0])
        default: return lenient(known.map(QuotedValues.expression).joined(separator: "||','||"))
        }
    }

    /// True if the value isn't known before the statement ends.
    var isReplacedByDefault: Bool { parts.contains(where: \.isReplacedByDefault) }

    /// The condition that an existing row conflicts with the incoming one.
    var conflict: String { ([equality] + (storedCondition.map { ["(\($0))"] } ?? [])).joined(separator: " AND ") }

    /// The condition that the row that was written differs from its prediction.
    var mismatch: String {
        let differs = (parts.map { "\($0.stored) IS NOT NULL" } + ["(\(equality)) IS NOT 1"]).joined(separator: " AND ")
        guard let storedCondition else { return differs }
        return mayFail
            ? "(CASE WHEN \(storedCondition) THEN \(differs) END)" : "(\(storedCondition)) AND \(differs)"
    }

    private var equality: String {
        parts.map { part in
            let collation = part.collation.map { " COLLATE \($0.sqlName)" } ?? ""
            return "\(part.stored) = \(part.incoming)\(collation)"
        }.joined(separator: " AND ")
    }

    /// Returns SQL of an expression that is NULL, instead of an error, if one of the droppable columns is gone: a name
    /// that neither the table nor NEW has any more is resolved in an outer query
    /// (https://sqlite.org/lang_altertable.html, DROP COLUMN).
    func lenient(_ expression: String) -> String {
        guard !droppable.isEmpty else { return expression }
        let nothing = droppable.map { "NULL AS \($0.sqlName)" }.joined(separator: ", ")
        return "(SELECT (SELECT \(expression)) FROM (SELECT \(nothing)) AS new)"
    }
}

extension UniqueRule {
    /// Returns the rules of a table, its key first.
    static func all(
        key: RecordedTable.Key, indexes: [UniqueIndex], row: IncomingRow
    ) -> [UniqueRule] {
        var rules: [UniqueRule] = []
        if case .rowid(let name, _) = key {
            let part = Part(stored: name, incoming: "NEW.\(name)", collation: nil, isReplacedByDefault: false)
            let names = DatabaseSchema.Table.rowidNames + (row.alias.map { [$0] } ?? [])
            rules.append(
                UniqueRule(
                    number: 0, parts: [part], storedCondition: nil, columns: names, droppable: [], isCompared: false,
                    mayFail: false, needsRowid: false, isPlain: true))
        }
        // The key's index comes first: its rule is number 0 if there is no rowid.
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
        let computed = expressions + sources.compactMap { row.generated[DatabaseSchema.key(of: $0)] }
        // SQLite computes no index expression for a row that a partial index leaves out.
        let condition = computed.contains(where: SQLText.mayFail) ? index.condition : nil
        func guarded(_ value: String, by condition: String?) -> String {
            condition.map { "(CASE WHEN \($0) THEN \(value) END)" } ?? value
        }
        let incomingCondition = condition.map(row.value(ofExpression:))
        parts = index.terms.map { term in
            let isDefault = row.isReplacedByDefault(
                row.sources(of: term.column.map { [$0] } ?? row.mentioned(in: term.expression ?? "")))
            if let column = term.column {
                return Part(
                    stored: column.sqlName, incoming: guarded(row.value(of: column), by: incomingCondition),
                    collation: term.collation, isReplacedByDefault: isDefault)
            }
            let expression = term.expression ?? "NULL"
            return Part(
                stored: "(\(expression))",
                incoming: guarded(row.value(ofExpression: expression), by: incomingCondition),
                collation: term.collation, isReplacedByDefault: isDefault)
        }
        self.number = number
        storedCondition = index.condition
        mayFail = condition != nil
        columns = sources.filter { !row.isGenerated($0) }
        droppable = index.isDroppable ? sources : []
        isCompared = mayFail || computed.contains(where: SQLText.compares)
        needsRowid = !computed.isEmpty && (row.alias.map(sources.containsExact) ?? false)
        isPlain = computed.isEmpty && index.condition == nil
    }
}
