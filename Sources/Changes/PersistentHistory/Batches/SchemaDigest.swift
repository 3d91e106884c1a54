import MessageDigests
import SQLiteStore

/// A digest of a store's schema, and its state (Documentation/Formats.md, "Change batches"): a batch fits a copy whose
/// schema has the same state.
enum SchemaDigest {
    /// Returns 64 hexadecimal digits: the SHA-256 of type, name, table and statement, each followed by a zero, of the
    /// objects that are neither SQLite's nor history's own, sorted by type and name.
    static func read(_ database: SQLiteConnection) throws -> String {
        let row = try database.prepare("SELECT type, name, tbl_name, sql FROM main.sqlite_schema")
        var objects: [[[UInt8]]] = []
        while try row.step() {
            let parts = (0..<4).map { row.textBytes($0) ?? [] }
            let isLeftOut = isLeftOut(
                String(decoding: parts[1], as: UTF8.self), String(decoding: parts[3], as: UTF8.self))
            if !isLeftOut { objects.append(parts) }
        }
        objects.sort { left, right in
            let part = left[0] == right[0] ? 1 : 0
            return left[part].lexicographicallyPrecedes(right[part])
        }
        let digits = SHA2.sha256(objects.flatMap { $0.flatMap { $0 + [0] } })
        return digits.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// Returns the state of a store's schema: the digest, a point and SQLite's own version of the schema. The text of a
    /// schema may be what it was although rows have other values, after DROP COLUMN and ADD COLUMN, or belong to other
    /// tables, after RENAME. SQLite counts each such change.
    ///
    /// A replica that is as its follower has written it has its home's state: what was known of the home fits it.
    static func state(_ database: SQLiteConnection) throws -> String {
        if let known = try stateOfHome(database) { return known }
        return try "\(read(database)).\(database.integer("PRAGMA main.schema_version") ?? 0)"
    }

    /// Returns the digest in a state. The state of a home with an older program is its digest.
    static func digest(of state: String) -> String { String(state.prefix { $0 != "." }) }

    private static func stateOfHome(_ database: SQLiteConnection) throws -> String? {
        guard try HistorySchema.isReplica(database), try !RecordedPosition(database).isOutdated(database)
        else { return nil }
        return try database.text("SELECT schema FROM main.\(HistorySchema.replicaTable)")
    }

    private static func isLeftOut(_ name: String, _ statement: String) -> Bool {
        name.lowercased().hasPrefix("sqlite_") || HistorySchema.isOwn(statement: statement)
            || HistorySchema.isOwn(trigger: name, statement)
    }
}
