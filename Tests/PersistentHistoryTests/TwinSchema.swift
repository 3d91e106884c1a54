import TestSupport

/// Random tables with everything that makes one row replace another, and statements on the current tables: writes, and
/// schema changes in any order.
struct TwinSchema {
    /// A table as the store currently describes it.
    struct Table {
        var name: String
        var columns: [String]
        var generated: [String]
        var isRowid: Bool
        var primaryKey: [String]
    }

    /// The effect of a schema change on the history.
    enum Effect {
        /// History stays exact.
        case none
        /// History may miss changes until it is updated.
        case unknown
        /// Triggers that read their table refer to it by its old name: `legacy_alter_table`.
        case breaks
    }

    private var random: SeededGenerator
    private var made = 0
    private var isLegacy = false
    /// Renamed columns. Such a column can't be dropped together with its index before the history is updated.
    var renamed: Set<String> = []

    init(seed: UInt64) { random = SeededGenerator(seed: seed &+ 4711) }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    mutating func pick<Element>(_ list: [Element]) -> Element {
        list[Int.random(in: 0..<list.count, using: &random)]
    }

    func quoted(_ name: String) -> String { "\"" + name.replacing("\"", with: "\"\"") + "\"" }

    // MARK: Tables

    mutating func creation() -> [String] {
        var statements: [String] = []
        for place in 0..<Int.random(in: 1...2, using: &random) { statements.append(table("t\(place)")) }
        statements.append("CREATE VIEW v AS SELECT a, b FROM t0")
        if chance(40) {
            statements.append(
                "CREATE TRIGGER vi INSTEAD OF INSERT ON v BEGIN INSERT OR REPLACE INTO t0 (a, b) "
                    + "VALUES (NEW.a, NEW.b); END")
        }
        return statements
    }

    private mutating func type() -> String {
        pick([
            "", "TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB", "TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM",
            "INTEGER NOT NULL DEFAULT 7", "TEXT NOT NULL DEFAULT 'd'",
        ])
    }

    private mutating func policy() -> String {
        pick(["", "", " ON CONFLICT REPLACE", " ON CONFLICT IGNORE", " ON CONFLICT ROLLBACK", " ON CONFLICT FAIL"])
    }

    private mutating func table(_ name: String) -> String {
        let kind = Int.random(in: 0..<5, using: &random)
        var definitions = kind == 0 ? ["id INTEGER PRIMARY KEY"] : []
        for column in ["a", "b", "c", "d"] {
            definitions.append("\(column) \(type())" + (chance(20) ? " UNIQUE\(policy())" : ""))
        }
        if chance(40) {
            let unique = chance(40) ? " UNIQUE\(policy())" : ""
            definitions.append(
                "g \(type().prefix { $0 != " " }) AS (\(expression(["a", "c"])))"
                    + pick(["", " STORED"]) + unique)
        }
        if chance(20) { definitions.append("UNIQUE (b, c)\(policy())") }
        switch kind {
        case 1: definitions.append("PRIMARY KEY (a)\(policy())")
        case 2, 3: definitions.append("PRIMARY KEY (a, b)\(policy())")
        default: break
        }
        return "CREATE TABLE \(name) (\(definitions.joined(separator: ", ")))" + (kind == 3 ? " WITHOUT ROWID" : "")
    }

    private mutating func expression(_ columns: [String]) -> String {
        let (one, two) = (quoted(pick(columns)), quoted(pick(columns)))
        return pick([
            "lower(\(one))", "\(one) || \(two)", "\(one) = 'a'", "\(one) > 3", "coalesce(\(one), 0)",
            "typeof(\(one))", "\(one) IN (1, '2')", "nullif(\(one), 'A')", "\(one) + 1", "quote(\(one))",
        ])
    }

    mutating func index(on table: Table) -> String {
        made += 1
        let columns = table.columns + table.generated
        let terms = (0..<Int.random(in: 1...2, using: &random)).map { _ in
            chance(50)
                ? quoted(pick(columns)) + pick(["", " DESC", " COLLATE NOCASE", " COLLATE BINARY"])
                : "(\(expression(columns)))"
        }
        let column = quoted(pick(columns))
        let condition = pick([
            "", "", " WHERE \(column) > 3", " WHERE \(column) IS NOT NULL", " WHERE \(column) = 'a'",
            " WHERE \(column) IN (1, '2')", " WHERE typeof(\(column)) = 'text'",
        ])
        return "CREATE UNIQUE INDEX i\(made) ON \(quoted(table.name)) (\(terms.joined(separator: ", ")))\(condition)"
    }

    // MARK: Writes

    private mutating func value() -> String {
        pick([
            "1", "2", "3", "4", "'1'", "'4'", "2.0", "2.5", "'a'", "'A'", "'a '", "'b'", "NULL", "x'61'",
            "'a' || char(0) || 'b'", "'a' || char(0) || 'c'", "''", "'it''s'", "-1", "1e300",
        ])
    }

    private var policies: [String] {
        ["", "OR REPLACE", "OR REPLACE", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT", "OR ROLLBACK"]
    }

    mutating func write(_ tables: [Table]) -> String {
        let table = pick(tables)
        let name = quoted(table.name)
        let returning = chance(15) ? " RETURNING *" : ""
        switch Int.random(in: 0..<20, using: &random) {
        case 0...9: return insert(into: table) + returning
        case 10...14:
            let columns = table.columns.filter { _ in chance(40) }
            let assigned = (columns.isEmpty ? [pick(table.columns)] : columns).map { "\(quoted($0)) = \(value())" }
            return "UPDATE \(pick(policies)) \(name) SET \(assigned.joined(separator: ", "))"
                + (chance(20) ? "" : " WHERE \(quoted(pick(table.columns))) IS \(value())") + returning
        case 15, 16: return "DELETE FROM \(name) WHERE \(quoted(pick(table.columns))) IS \(value())" + returning
        case 17: return pick(["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"])
        case 18: return "INSERT INTO v (a, b) VALUES (\(value()), \(value()))"
        default:
            return "UPDATE OR REPLACE \(name) SET rowid = \(Int.random(in: 1...6, using: &random)) "
                + "WHERE rowid = \(Int.random(in: 1...6, using: &random))"
        }
    }

    private mutating func insert(into table: Table) -> String {
        var columns = table.columns.filter { _ in chance(75) }
        if columns.isEmpty { columns = [pick(table.columns)] }
        let rows = (0..<Int.random(in: 1...3, using: &random)).map { _ in
            "(\(columns.map { _ in value() }.joined(separator: ", ")))"
        }
        let policy = pick(policies)
        let last = quoted(columns[columns.count - 1])
        let upsert = policy.isEmpty && chance(40) ? " ON CONFLICT DO UPDATE SET \(last) = excluded.\(last)" : ""
        return "INSERT \(policy) INTO \(quoted(table.name)) (\(columns.map(quoted).joined(separator: ", "))) "
            + "VALUES \(rows.joined(separator: ", "))\(upsert)"
    }

    // MARK: Changes of the schema

    mutating func alteration(_ tables: [Table], indexes: [String]) -> (statements: [String], effect: Effect) {
        let table = pick(tables)
        let name = quoted(table.name)
        made += 1
        switch Int.random(in: 0..<14, using: &random) {
        case 0: return (["ALTER TABLE \(name) ADD COLUMN n\(made) \(pick(["", "TEXT", "DEFAULT 'x'"]))"], .none)
        case 1, 2, 3:
            let columns = (table.columns + table.generated).filter { !renamed.contains($0) }
            return columns.isEmpty ? ([], .none) : (["ALTER TABLE \(name) DROP COLUMN \(quoted(pick(columns)))"], .none)
        case 4, 5:
            renamed.insert("m\(made)")
            let column = quoted(pick(table.columns + table.generated))
            return (["ALTER TABLE \(name) RENAME COLUMN \(column) TO m\(made)"], .none)
        case 6:
            return (["ALTER TABLE \(name) RENAME TO \"r \(made)\""], isLegacy ? .breaks : .none)
        case 7, 8: return ([index(on: table)], .unknown)
        case 9, 10: return indexes.isEmpty ? ([], .none) : (["DROP INDEX \(quoted(pick(indexes)))"], .none)
        case 11:
            isLegacy.toggle()
            return (["PRAGMA legacy_alter_table = \(isLegacy)"], .none)
        case 12:
            return (
                [
                    "CREATE TABLE \"n \(made)\" (id INTEGER PRIMARY KEY, a UNIQUE, b TEXT)",
                    "INSERT OR IGNORE INTO \"n \(made)\" (a, b) SELECT \(quoted(table.columns[0])), 'b' FROM \(name)",
                    "DROP TABLE \(name)", "ALTER TABLE \"n \(made)\" RENAME TO \(name)",
                ], .unknown
            )
        default: return ([pick(["VACUUM", "REINDEX", "DROP VIEW IF EXISTS v", "ANALYZE"])], .unknown)
        }
    }
}
