import AgentProtocol
import CommandSupport
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// What a command has done to a store, by a copy of the store as it was before.
struct GuardReport {
    let changes: ContentChanges
    /// SQLite's findings about the store; empty if it is intact.
    let damage: [String]
    /// SQLite's message if it can't check the store here, as with an index on a function of the program's own.
    let unchecked: String?
    /// The tables that must not lose anything, and have.
    let losses: [String]

    /// Compares a store with its copy. Throws `StoreError` if one of them can't be read, or if another database's log
    /// lies beside the store: SQLite takes it for the store's.
    init(_ store: StoreLocation, since copy: StoreLocation, guarding tables: [String]) throws {
        if let log = try store.foreignLog() { throw StoreError.foreignLog(log.path, log.mismatch) }
        (changes, damage, unchecked) = try StoreReader.read(store) { now in
            let later = try StoreContent(now)
            let found = try StoreReader.read(copy) { try StoreContent($0).changes(to: later) }
            let (findings, obstacle) = try now.possibleIntegrityFindings()
            return (found, findings, obstacle)
        }
        let guarded = Set(tables.map(DatabaseSchema.key))
        losses = changes.tables.filter { $0.isLoss && guarded.contains(DatabaseSchema.key(of: $0.name)) }.map(\.name)
    }

    /// True if the store is known to have each table, column and row of the copy, by their keys.
    var hasAll: Bool { changes.tables.allSatisfy { !$0.isLoss && $0.obstacle == nil && !$0.isUncertain } }

    /// True if the store has each row of the copy with its values. Another row may have taken the key of a lost one.
    var isComplete: Bool { changes.tables.allSatisfy { $0.went == 0 && $0.changed == 0 && $0.obstacle == nil } }

    var outcome: String {
        if !damage.isEmpty { return "damaged" }
        if !losses.isEmpty { return "lost" }
        return changes.schema.isEmpty && changes.tables.allSatisfy(\.isSame) ? "unchanged" : "changed"
    }

    var records: [JSONObject] { changes.tables.map(Self.record) + changes.schema.map(Self.record) }

    private static func record(_ table: ContentChanges.Table) -> JSONObject {
        var object: JSONObject = [
            "type": "table", "table": .string(table.name), "before": .integer(table.before),
            "after": .integer(table.after),
        ]
        if let obstacle = table.obstacle {
            object["obstacle"] = .string(obstacle)
        } else {
            object["came"] = .integer(table.came)
            object["went"] = .integer(table.went)
            object["changed"] = .integer(table.changed)
            if table.isUncertain { object["uncertain"] = true }
        }
        return object
    }

    private static func record(_ change: ContentChanges.SchemaChange) -> JSONObject {
        [
            "type": "schema", "change": .string(change.kind.rawValue), "object": .string(change.type),
            "name": .string(change.name),
        ]
    }

    var lines: [String] {
        let different = changes.tables.filter { !$0.isSame }
        var table = TextTable()
        table.add(
            .number("before"), .number("after"), .number("came"), .number("went"), .number("changed"), .text("table"))
        for row in different {
            let compared = row.obstacle == nil ? [row.came, row.went, row.changed] : []
            var numbers = ([row.before, row.after] + compared).map { TextTable.Cell.number("\($0)") }
            while numbers.count < 5 { numbers.append(.number("")) }
            let uncertain = "  (without a key: a changed row may be another one)"
            let note = row.obstacle.map { "  the store \($0)" } ?? (row.isUncertain ? uncertain : "")
            table.add(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], .text(row.name + note))
        }
        let rows = different.isEmpty ? ["no row came, went or changed"] : table.lines(indent: "  ")
        let schema = changes.schema.map { "\($0.kind.rawValue) \($0.type) \($0.name)" }
        let intact = "integrity_check: \(unchecked.map { "not possible here: \($0)" } ?? "ok")"
        return rows + [schema.isEmpty ? "the schema is the same" : "schema: " + schema.joined(separator: ", ")]
            + (damage.isEmpty ? [intact] : damage.map { "integrity_check: \($0)" })
    }
}
