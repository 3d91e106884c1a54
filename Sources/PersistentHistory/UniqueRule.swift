import GRDB
import PersistentStore

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
    /// Of a partial index: what a row must be to be in it.
    let storedCondition: String?
    let comingCondition: String?
    /// Those that an UPDATE must assign before the rule can matter. They can't be dropped while it is there.
    let columns: [String]

    /// What is the same in the row that comes before the statement and after it; it needn't differ from other values.
    var identity: String {
        let known = parts.filter { !$0.isReplacedByDefault }.map(\.coming)
        switch known.count {
        case 0: return "''"
        case 1: return known[0]
        default: return known.map { "quote(\($0))" }.joined(separator: "||','||")
        }
    }

    /// Whether the value isn't known before the statement is over.
    var isReplacedByDefault: Bool { parts.contains(where: \.isReplacedByDefault) }

    /// Of the rows in the table: has the same as the one that comes.
    var conflict: String {
        var terms = parts.map { part in
            let collation = part.collation.map { " COLLATE \(StoreTable.quote($0))" } ?? ""
            return "\(part.stored) = \(part.coming)\(collation)"
        }
        if let storedCondition { terms.append("(\(storedCondition))") }
        if let comingCondition { terms.append(comingCondition) }
        return terms.joined(separator: " AND ")
    }
}

extension UniqueRule {
    static func all(
        key: RecordedTable.Key, alias: String?, indexes: [UniqueIndex], columns: [String], defaults: [String: String]
    ) throws -> [UniqueRule] {
        var rules: [UniqueRule] = []
        if case .rowid(let name, _) = key {
            let part = Part(stored: name, coming: "NEW.\(name)", collation: nil, isReplacedByDefault: false)
            let names = ["rowid", "_rowid_", "oid"] + (alias.map { [$0] } ?? [])
            rules.append(
                UniqueRule(number: 0, parts: [part], storedCondition: nil, comingCondition: nil, columns: names))
        }
        // The key's index first: its rule is number 0 where there is no rowid.
        let isKey = { (index: UniqueIndex) in rules.isEmpty && index.isPrimaryKey }
        for index in indexes.filter(isKey) + indexes.filter({ !isKey($0) }) {
            rules.append(UniqueRule(index, number: rules.count, columns: columns, defaults: defaults))
        }
        return rules
    }

    private init(_ index: UniqueIndex, number: Int, columns: [String], defaults: [String: String]) {
        var used: Set<String> = []
        let words = SQLText.identifiers(
            (index.terms.compactMap(\.expression) + [index.condition ?? ""]).joined(separator: " "))
        let mentioned = columns.filter { words.contains($0.lowercased()) }
        // In the inner query, the expression's names are those of the row that comes.
        let row = mentioned.map { name -> String in
            let quoted = StoreTable.quote(name)
            let standard = defaults[name.lowercased()]
            return (standard.map { "coalesce(NEW.\(quoted), \($0))" } ?? "NEW.\(quoted)") + " AS \(quoted)"
        }.joined(separator: ", ")
        let source = mentioned.isEmpty ? "SELECT NULL" : "SELECT \(row)"
        parts = index.terms.map { term in
            if let column = term.column {
                used.insert(column)
                let name = StoreTable.quote(column)
                let standard = defaults[column.lowercased()]
                return Part(
                    stored: name, coming: standard.map { "coalesce(NEW.\(name), \($0))" } ?? "NEW.\(name)",
                    collation: term.collation, isReplacedByDefault: standard != nil)
            }
            let expression = term.expression ?? "NULL"
            return Part(
                stored: "(\(expression))", coming: "(SELECT \(expression) FROM (\(source)))",
                collation: term.collation, isReplacedByDefault: mentioned.contains { defaults[$0.lowercased()] != nil })
        }
        self.number = number
        storedCondition = index.condition
        comingCondition = index.condition.map { "EXISTS (SELECT 1 FROM (\(source)) WHERE \($0))" }
        self.columns = columns.filter { used.contains($0) || mentioned.contains($0) }
    }
}

/// A unique index as SQLite describes it.
struct UniqueIndex {
    struct Term {
        /// Nil for an expression.
        let column: String?
        let expression: String?
        let collation: String?
    }

    let isPrimaryKey: Bool
    let terms: [Term]
    /// What stands behind WHERE.
    let condition: String?

    /// Throws `DatabaseError`.
    static func all(of table: String, in database: Database) throws -> [UniqueIndex] {
        try Row.fetchAll(
            database, sql: "SELECT name, origin, \"unique\" FROM pragma_index_list(?) ORDER BY seq", arguments: [table]
        ).filter { ($0["unique"] as Int?) == 1 }.map { row in
            let name = (row["name"] as String?) ?? ""
            let sql = try String.fetchOne(
                database, sql: "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?", arguments: [name])
            let text = sql.map(SQLText.indexParts)
            let terms = try Row.fetchAll(
                database, sql: "SELECT name, coll, cid FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno",
                arguments: [name])
            return UniqueIndex(
                isPrimaryKey: (row["origin"] as String?) == "pk",
                terms: terms.enumerated().map { place, term in
                    let isExpression = (term["cid"] as Int?) == -2
                    let written = text.flatMap { place < $0.terms.count ? $0.terms[place] : nil }
                    return Term(
                        column: isExpression ? nil : (term["name"] as String?) ?? "rowid",
                        expression: isExpression ? written : nil, collation: term["coll"])
                },
                condition: text?.condition)
        }
    }
}
