import TestSupport

/// A random schema with everything that makes one row replace another, and statements that cause it.
struct RandomSchema {
    struct Table {
        var name: String
        var columns: [String]
        let isRowid: Bool
        let primaryKey: [String]
        /// Computed columns, which can't be assigned.
        var generated: [String] = []
    }

    private(set) var tables: [Table] = []
    private(set) var statements: [String] = []
    private var random: SeededGenerator
    private var columnsMade = 0

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        for index in 0..<Int.random(in: 1...3, using: &random) { addTable(index) }
        addIndexes()
        addTriggers()
    }

    private mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    private mutating func pick<Element>(_ list: [Element]) -> Element {
        list[Int.random(in: 0..<list.count, using: &random)]
    }

    private mutating func addTable(_ index: Int) {
        let name = pick(["note", "Tag \"x\"", "Ünïcode", "order"]) + "\(index)"
        let kind = Int.random(in: 0..<5, using: &random)
        var definitions: [String] = []
        var columns = ["a", "b", "c", "d"]
        var generated: [String] = []
        let collation = chance(30) ? " COLLATE NOCASE" : ""
        var primaryKey: [String] = []
        switch kind {
        case 0: break
        case 1:
            columns.insert("id", at: 0)
            definitions.append("id INTEGER PRIMARY KEY")
        case 2: primaryKey = ["a"]
        case 3, 4: primaryKey = ["a", "b"]
        default: break
        }
        let unique = chance(50) ? " UNIQUE" : ""
        definitions.append("a TEXT\(collation)" + (kind == 3 ? " NOT NULL" : ""))
        definitions.append("b\(unique)" + (chance(30) ? " ON CONFLICT REPLACE" : "").prefix(unique.isEmpty ? 0 : 99))
        definitions.append("c INTEGER" + (chance(30) ? " NOT NULL DEFAULT 2" : "") + (chance(30) ? " UNIQUE" : ""))
        definitions.append("d" + (chance(20) ? " CHECK (d IS NOT 'bad')" : ""))
        if chance(30) {
            definitions.append("g AS (coalesce(a, '') || coalesce(b, ''))" + (chance(50) ? " STORED" : ""))
            generated = ["g"]
        }
        if !tables.isEmpty, chance(60) {
            let parent = tables[0]
            if let key = parent.columns.first, parent.primaryKey.count == 1 || parent.columns[0] == "id" {
                columns.append("r")
                definitions.append(
                    "r REFERENCES \(quoted(parent.name))(\(parent.primaryKey.first ?? key)) "
                        + "ON DELETE \(pick(["CASCADE", "SET NULL"])) ON UPDATE \(pick(["CASCADE", "SET NULL"]))")
            }
        }
        if !primaryKey.isEmpty { definitions.append("PRIMARY KEY (\(primaryKey.joined(separator: ", ")))") }
        let isRowid = primaryKey.isEmpty || kind == 4
        statements.append(
            "CREATE TABLE \(quoted(name)) (\(definitions.joined(separator: ", ")))" + (isRowid ? "" : " WITHOUT ROWID"))
        tables.append(
            Table(name: name, columns: columns, isRowid: isRowid, primaryKey: primaryKey, generated: generated))
    }

    private mutating func addIndexes() {
        for (index, table) in tables.enumerated() {
            if chance(25) {
                statements.append(
                    "CREATE UNIQUE INDEX e\(index) ON \(quoted(table.name)) (lower(d) COLLATE BINARY DESC, /* , */ b)")
            }
            if chance(25) {
                statements.append(
                    "CREATE UNIQUE INDEX p\(index) ON \(quoted(table.name)) (d) WHERE c > 1 AND \"a\" IS NOT 'b'")
            }
        }
    }

    private mutating func addTriggers() {
        for (index, table) in tables.enumerated() where chance(40) {
            let other = pick(tables)
            let event = pick(["INSERT", "DELETE", "UPDATE"])
            let policy = pick(["OR IGNORE", "OR REPLACE"])
            let body = pick([
                "INSERT \(policy) INTO \(quoted(other.name)) (a, b, c, d) VALUES ('t', 4, 3, 't')",
                "UPDATE OR IGNORE \(quoted(other.name)) SET d = 'by trigger' WHERE c = 1",
                "DELETE FROM \(quoted(other.name)) WHERE c = 4",
            ])
            // A row that a BEFORE trigger inserts is outside what Guarantees promises.
            let when = body.hasPrefix("INSERT") ? "AFTER" : pick(["BEFORE", "AFTER"])
            statements.append(
                "CREATE TRIGGER app\(index) \(when) \(event) ON \(quoted(table.name)) BEGIN \(body); END")
        }
    }

    func quoted(_ name: String) -> String { "\"" + name.replacing("\"", with: "\"\"") + "\"" }

    // MARK: Statements

    private mutating func value(_ column: String) -> String {
        switch column {
        case "id", "rowid", "oid": pick(["1", "2", "3", "4", "NULL", "5", "-1"])
        case "c": pick(["0", "1", "2", "3", "4", "5", "NULL"])
        case "r": pick(["1", "2", "'a'", "NULL"])
        default: pick(["'a'", "'A'", "'b'", "'it''s'", "1", "2", "1.5", "x'00ff'", "NULL", "'bad'"])
        }
    }

    private var policies: [String] { ["", "OR REPLACE", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT"] }

    mutating func randomStatement() -> String {
        let table = pick(tables)
        switch Int.random(in: 0..<10, using: &random) {
        case 0...4: return insert(into: table)
        case 5...7: return update(table)
        default:
            return chance(10)
                ? "DELETE FROM \(quoted(table.name))" : "DELETE FROM \(quoted(table.name)) WHERE \(condition(table))"
        }
    }

    private mutating func condition(_ table: Table) -> String {
        let column = pick(table.columns)
        return "\(column) IS \(value(column))"
    }

    private mutating func insert(into table: Table) -> String {
        var columns = table.columns.filter { _ in Int.random(in: 0..<4, using: &random) > 0 }
        if table.isRowid, !table.columns.contains("id"), chance(20) { columns.append("rowid") }
        let policy = pick(policies)
        guard !columns.isEmpty else { return "INSERT \(policy) INTO \(quoted(table.name)) DEFAULT VALUES" }
        let rows = (0..<Int.random(in: 1...3, using: &random)).map { _ in
            var row: [String] = []
            for column in columns { row.append(value(column)) }
            return "(\(row.joined(separator: ", ")))"
        }
        let upsert =
            policy.isEmpty && chance(30)
            ? " ON CONFLICT DO UPDATE SET d = excluded.d, c = coalesce(c, 0) + 1" : ""
        return "INSERT \(policy) INTO \(quoted(table.name)) (\(columns.joined(separator: ", "))) "
            + "VALUES \(rows.joined(separator: ", "))\(upsert)"
    }

    private mutating func update(_ table: Table) -> String {
        var columns = table.columns.filter { _ in Int.random(in: 0..<3, using: &random) == 0 }
        if columns.isEmpty { columns = [pick(table.columns)] }
        if table.isRowid, chance(10) { columns.append(table.columns.contains("id") ? "_rowid_" : "oid") }
        var terms: [String] = []
        for column in Set(columns).sorted() { terms.append("\(column) = \(value(column))") }
        let target = "\(quoted(table.name)) SET \(terms.joined(separator: ", "))"
        return "UPDATE \(pick(policies)) \(target)" + (chance(15) ? "" : " WHERE \(condition(table))")
    }

    /// Returns a schema change that history follows, or nil if none fits.
    mutating func randomAlteration() -> String? {
        let place = Int.random(in: 0..<tables.count, using: &random)
        let table = tables[place]
        columnsMade += 1
        switch Int.random(in: 0..<4, using: &random) {
        case 0:
            tables[place].columns.append("n\(columnsMade)")
            return "ALTER TABLE \(quoted(table.name)) ADD COLUMN n\(columnsMade)"
        case 1:
            guard let column = table.columns.last, column.hasPrefix("n") else { return nil }
            tables[place].columns.removeLast()
            return "ALTER TABLE \(quoted(table.name)) DROP COLUMN \(column)"
        case 2:
            guard let column = table.columns.last, column.hasPrefix("n") else { return nil }
            tables[place].columns[table.columns.count - 1] = "n\(columnsMade)"
            return "ALTER TABLE \(quoted(table.name)) RENAME COLUMN \(column) TO n\(columnsMade)"
        default:
            tables[place].name = "renamed \(columnsMade)"
            return "ALTER TABLE \(quoted(table.name)) RENAME TO \(quoted(tables[place].name))"
        }
    }
}
