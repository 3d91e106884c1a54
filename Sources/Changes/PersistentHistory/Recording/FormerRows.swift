import SQLiteStore

/// The triggers that record what a row held before it is updated, deleted or replaced.
///
/// Each records the row's image, as it is in the table then, in a row of `GS_CHANGE` of its own. A statement may leave
/// the row unchanged after all; then the image is still true at the row's next change.
///
/// They must not keep a column from being dropped or renamed, and a row is identified in two steps for that reason. The
/// columns are named as those of a query, `SELECT *`, which SQLite expands again each time; a name that this query
/// doesn't have any more is found in an outer one, whose value says so. SQLite renames neither of them.
struct FormerRows {
    let table: RecordedTable
    let number: Int64

    /// The largest number of columns of which an image is made: SQLite limits the depth of expressions.
    private static let maxColumns = 200
    /// Rows with more characters or bytes have no image. A value may take four times its length there.
    private static let maxLength = 1_000_000

    /// The name of the table in the query for the image.
    private static let imageName = "GS_FORMER"

    /// The letter and statement of each trigger. SQLite runs the newest trigger first, so these must be created last:
    /// a replaced row's image comes before it is noted as a candidate.
    var triggers: [(letter: String, body: String)] {
        guard table.columns.count <= Self.maxColumns else { return [] }
        return [("V", updated), ("W", deleted), ("Y", replacedByInsert), ("Z", replacedByUpdate)]
    }

    private var target: String { table.quotedName }

    private var updated: String { "BEFORE UPDATE ON \(target) BEGIN \(record("OLD")) END" }

    private var deleted: String { "BEFORE DELETE ON \(target) BEGIN \(record("OLD")) END" }

    private func record(_ row: String) -> String {
        let image = image(of: table.isSameRow(Self.imageName, keyOf: row))
        return "\(insertion) VALUES (\(number), \(HistorySchema.image), \(table.key(of: row)), \(image), 0, 0);"
    }

    private var insertion: String { "INSERT INTO GS_CHANGE (table_id, operation, key, columns, nonce, time)" }

    // MARK: Rows that may be replaced

    private var replacedByInsert: String { "BEFORE INSERT ON \(target) \(recordCandidates(excluding: nil))" }

    private var replacedByUpdate: String {
        let columns = HistoryTriggers(table, number: number).columns(of: table.rules)
        return "BEFORE UPDATE \(columns)ON \(target) \(recordCandidates(excluding: table.key(of: "OLD")))"
    }

    private func recordCandidates(excluding own: String?) -> String {
        let source = "\(target) AS \(Self.imageName)"
        let key = table.key(of: Self.imageName)
        let others = own.map { " AND \(key) IS NOT \($0)" } ?? ""
        let exists = table.rules.map { rule in
            rule.lenient("EXISTS (SELECT 1 FROM \(source) WHERE \(rule.conflict)\(others))")
        }
        let statements = table.rules.map { rule in
            let condition = "\(rule.conflict)\(others)"
            let found = rule.lenient("(SELECT \(key) FROM \(source) WHERE \(condition))")
            let image = rule.lenient(image(of: condition))
            return """
                \(insertion) SELECT \(number), \(HistorySchema.image), k, i, 0, 0 \
                FROM (SELECT \(found) AS k, \(image) AS i) WHERE k IS NOT NULL;
                """
        }
        return "WHEN \(exists.joined(separator: " OR ")) BEGIN \(statements.joined(separator: " ")) END"
    }

    // MARK: The image

    /// Returns SQL of the image of the row that meets a condition: a letter, so that the text is never taken for a
    /// number, and the columns' values (`QuotedValues`). NULL if the row is too long.
    private func image(of condition: String) -> String {
        let names = table.columns.map { "r.\($0.sqlName)" }
        let length = balanced(names.map { "coalesce(length(\($0)), 0)" }, " + ")
        let values = names.map(QuotedValues.expression).flatMap { ["','", $0] }.dropFirst()
        let text = balanced(Array(values), " || ")
        let absent = table.columns.map { "\(Self.absentLiteral) AS \($0.sqlName)" }.joined(separator: ", ")
        return """
            (SELECT (SELECT CASE WHEN \(length) <= \(Self.maxLength) THEN 'B' || \(text) END \
            FROM (SELECT * FROM \(target) AS \(Self.imageName) WHERE \(condition)) AS r) FROM (SELECT \(absent)) AS r)
            """
    }

    /// Joins the parts in a tree of the least depth.
    private func balanced(_ parts: [String], _ operation: String) -> String {
        guard parts.count > 1 else { return parts.first ?? "0" }
        let middle = parts.count / 2
        let (left, right) = (Array(parts[..<middle]), Array(parts[middle...]))
        return "(\(balanced(left, operation))\(operation)\(balanced(right, operation)))"
    }

    // MARK: Reading

    /// The value of a column that the table didn't have any more: `GS_ABSENT`.
    private static let absent = Array("GS_ABSENT".utf8)
    private static let absentLiteral = "X'47535F414253454E54'"

    /// Parses an image. Returns nil if it isn't known what the row held.
    static func values(_ image: [UInt8], count: Int, encoding: TextEncoding) -> [StoredValue]? {
        guard image.first == UInt8(ascii: "B") else { return nil }
        let values = QuotedValues.parse(Array(image.dropFirst()), encoding: encoding)
        guard values.count == count, !values.contains(.blob(absent)) else { return nil }
        // SQLite converts malformed UTF-16 when it quotes.
        return encoding != .utf8 && values.contains(where: \.mayBeRepaired) ? nil : values
    }
}
