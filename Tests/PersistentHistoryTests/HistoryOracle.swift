import Foundation
import GRDB

@testable import PersistentHistory

/// Compares the tables' content before and after a statement with what history recorded.
struct HistoryOracle {
    typealias Content = [String: [String: [String: DatabaseValue]]]

    private var content: Content
    private var number: Int64
    /// The number of changed rows, and of recorded changes.
    private(set) var changed = 0
    private(set) var recorded = 0
    /// The number of gaps. If the outcome depends on affinities and collations, a gap is correct too.
    private(set) var gaps = 0
    private let mayHaveGaps: Bool
    /// False if columns may be reported by the names that they had when the triggers were created.
    private let checksColumns: Bool

    init(_ database: Database, _ tables: [RandomSchema.Table], mayHaveGaps: Bool = false, checksColumns: Bool = true)
        throws
    {
        self.mayHaveGaps = mayHaveGaps
        self.checksColumns = checksColumns
        content = try Self.content(database, tables)
        number = try Self.last(database)
    }

    private static func last(_ database: Database) throws -> Int64 {
        try Int64.fetchOne(database, sql: "SELECT max(number) FROM GS_CHANGE") ?? 0
    }

    static func content(_ database: Database, _ tables: [RandomSchema.Table]) throws -> Content {
        var content: Content = [:]
        for table in tables {
            let name = "\"" + table.name.replacing("\"", with: "\"\"") + "\""
            let key =
                table.isRowid
                ? "CAST(rowid AS TEXT)" : table.primaryKey.map(QuotedValues.expression).joined(separator: "||','||")
            var rows: [String: [String: DatabaseValue]] = [:]
            for row in try Row.fetchAll(database, sql: "SELECT \(key) AS \"the key\", * FROM \(name) NOT INDEXED") {
                var values: [String: DatabaseValue] = [:]
                for (column, value) in row where column != "the key" { values[column] = value }
                rows[row["the key"] ?? ""] = values
            }
            content[table.name] = rows
        }
        return content
    }

    /// Returns the first error in the history, or nil if it matches what happened.
    mutating func disagreement(_ database: Database, _ tables: [RandomSchema.Table]) throws -> String? {
        let after = try Self.content(database, tables)
        defer { content = after }
        let rows = try Row.fetchAll(
            database,
            sql: """
                SELECT c.number, s.tbl_name AS name, c.operation, CAST(c.key AS TEXT) AS key, c.columns,
                t.columns AS names, c.time > 0 AND c.nonce IS NOT NULL AS whole
                FROM GS_CHANGE AS c JOIN GS_TABLE AS t ON t.id = c.table_id
                LEFT JOIN sqlite_schema AS s ON s.name = 'GS_' || t.id || '_I' WHERE c.number > ? ORDER BY c.number
                """, arguments: [number])
        number = try Self.last(database)
        // The columns recorded for the update that must follow at once.
        var pending: (table: String, key: String, bits: Int64)?
        var exists = content.mapValues { Set($0.keys) }
        var assigned: [String: [String: Set<String>?]] = [:]
        var unknown: Set<String> = []
        for row in rows {
            let table: String = row["name"] ?? "?"
            let key: String = row["key"] ?? "?"
            let isThere = exists[table]?.contains(key) == true
            if row["operation"] == HistorySchema.assignment {
                if let pending, pending.table != table || pending.key != key {
                    return "\(table) \(key): columns of no update"
                }
                pending = (table, key, (pending?.bits ?? 0) | (row["columns"] ?? 0))
                continue
            }
            recorded += 1
            if unknown.contains(table) {
                pending = nil
                continue
            }
            let operation = HistoryChange.Operation(rawValue: row["operation"] ?? -1)
            if let pending, pending.table != table || pending.key != key || operation != .update {
                return "\(table) \(key): follows columns of another change"
            }
            let bits = (row["columns"] ?? 0) | (pending?.bits ?? 0)
            pending = nil
            guard (row["whole"] as Int?) == 1 else { return "no time or nonce" }
            switch operation {
            case .insert:
                if isThere { return "\(table) \(key): inserted though it was there" }
                exists[table]?.insert(key)
                assigned[table, default: [:]][key] = .some(nil)
            case .update:
                if !isThere { return "\(table) \(key): updated though it was not there" }
                let names = try names(row["names"] ?? "[]")
                let reported =
                    bits == 0 ? nil : Set(names.enumerated().filter { bits & (1 << $0.offset) != 0 }.map(\.element))
                let known = assigned[table]?[key] ?? .some([])
                assigned[table, default: [:]][key] = .some(known.flatMap { known in reported.map { known.union($0) } })
            case .delete:
                if !isThere { return "\(table) \(key): deleted though it was not there" }
                exists[table]?.remove(key)
                assigned[table, default: [:]][key] = .some(nil)
            case .gap where mayHaveGaps:
                gaps += 1
                unknown.insert(table)
            case .gap, nil: return "a gap where there is none"
            }
        }
        if let pending { return "\(pending.table) \(pending.key): columns of no update" }
        return compare(after.filter { !unknown.contains($0.key) }, exists, assigned)
    }

    private mutating func compare(
        _ after: Content, _ exists: [String: Set<String>], _ assigned: [String: [String: Set<String>?]]
    ) -> String? {
        for (table, rows) in after {
            let before = content[table] ?? [:]
            if Set(rows.keys) != exists[table] {
                return "\(table): other rows than history says: \(exists[table] ?? []), \(rows), before \(before)"
            }
            for key in Set(rows.keys).union(before.keys) where rows[key] != before[key] {
                changed += 1
                guard let reported = assigned[table]?[key] else { return "\(table) \(key): changed, and not recorded" }
                guard checksColumns, let reported, let new = rows[key], let old = before[key] else { continue }
                let differing = new.filter { $0.value != old[$0.key] }.map(\.key).filter { $0 != "g" }
                if !reported.isSuperset(of: differing) {
                    return "\(table) \(key): \(differing) changed, reported \(reported)"
                }
            }
        }
        return nil
    }

    private func names(_ json: String) throws -> [String] {
        json.dropFirst(2).dropLast(2).components(separatedBy: "\",\"")
    }
}
