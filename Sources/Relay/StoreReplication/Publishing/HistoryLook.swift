import PersistentHistory
import SQLiteStore

/// What one look at a home shows of the history that it keeps.
package struct HistoryLook: Sendable {
    /// The token of the last change.
    package let token: HistoryToken
    /// The version of the schema as SQLite counts it, in the database's header.
    let schemaVersion: Int64
    /// The time of the oldest change that is left; nil if there is none. Times are Julian days by the home's clock.
    let oldestChange: Double?
    /// The time of the look.
    let time: Double

    init(_ reader: StoreReader) throws {
        token = try StoreHistory(reader).current()
        schemaVersion = try reader.integer("PRAGMA main.schema_version") ?? 0
        let row = try reader.prepare(
            "SELECT julianday('now'), (SELECT time FROM main.GS_CHANGE ORDER BY number LIMIT 1)")
        _ = try row.step()
        time = row.real(0)
        oldestChange = row.isNull(1) ? nil : row.real(1)
    }

    /// True if a later look at the same file shows the history of another store, whose content was written over it.
    ///
    /// A history that `history disable` has ended and `history enable` has begun again has another identifier, too. But
    /// each table that they drop and create raises the schema's version, which a restored backup raises by one; and no
    /// change is older than the former history. Without such a contradiction, nothing tells the two apart.
    package func isContradicted(by next: HistoryLook) -> Bool {
        guard next.token.history != token.history else { return false }
        let fewest = Int64(HistorySchema.requiredTables.count * 2)
        return next.schemaVersion < schemaVersion + fewest || next.oldestChange.map { $0 < time } ?? false
    }
}
