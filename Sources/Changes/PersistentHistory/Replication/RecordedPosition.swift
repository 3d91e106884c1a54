import LinuxSystem
import SQLiteStore
import SystemPackage

/// The position and the version of groupstore's own history, in any copy of a store.
package struct RecordedPosition: Sendable, Equatable {
    /// The history's identifier.
    package let identifier: String
    package let version: Int64
    /// The version of the schema that the triggers were made for.
    package let schemaVersion: Int64
    /// The last change that was purged.
    package let trimmed: Int64
    package let trimmedNonce: Int64
    /// The last change; the last purged one if none is left.
    package let number: Int64
    package let nonce: Int64
    /// The highest number in `GS_CHANGE`, of rows that are no changes too.
    package let lastRow: Int64

    /// Reads it. Throws `HistoryError.disabled` or `.newer`.
    package init(_ database: SQLiteConnection) throws {
        guard try HistorySchema.isKept(in: database) else { throw HistoryError.disabled(database.path) }
        try HistoryTables.checkVersion(database, database.path)
        let row = try database.prepare(
            "SELECT identifier, version, schema_version, trimmed, trimmed_nonce FROM main.GS_HISTORY WHERE id = 1")
        guard try row.step(), let identifier = row.decodedText(0) else {
            throw HistoryError.foreign("GS_HISTORY", database.path)
        }
        self.identifier = identifier
        version = row.decodedInteger(1) ?? 0
        schemaVersion = row.decodedInteger(2) ?? -1
        trimmed = row.decodedInteger(3) ?? 0
        trimmedNonce = row.decodedInteger(4) ?? 0
        let last = try database.prepare(
            """
            SELECT number, nonce FROM main.GS_CHANGE WHERE \(HistorySchema.isChange) ORDER BY number DESC LIMIT 1
            """)
        let isThere = try last.step()
        number = isThere ? last.integer(0) : trimmed
        nonce = isThere ? last.integer(1) : trimmedNonce
        let highest = try database.firstInteger("SELECT max(number) FROM main.GS_CHANGE")
        lastRow = max(highest ?? trimmed, trimmed)
    }

    /// True if the schema has changed since the triggers were made, or VACUUM has run.
    package func isOutdated(_ database: SQLiteConnection) throws -> Bool {
        try database.integer("PRAGMA main.schema_version") != schemaVersion
    }

    /// Throws `StoreHistory.Discontinuity` if the change with this number isn't the token's.
    package func check(_ token: HistoryToken, _ database: SQLiteConnection) throws {
        guard token.history == identifier else { throw StoreHistory.Discontinuity.epoch }
        guard token.number >= trimmed else { throw StoreHistory.Discontinuity.trimmed }
        let nonce =
            token.number == trimmed
            ? trimmedNonce
            : try database.integer("SELECT nonce FROM main.GS_CHANGE WHERE number = ?", [.integer(token.number)])
        guard nonce == token.nonce else { throw StoreHistory.Discontinuity.epoch }
    }

    /// Returns the last change after this number that no batch can carry; nil if there is none. It is a gap, or one of
    /// a table whose triggers were made again since. In a UTF-16 store it is also one whose key SQLite may have
    /// repaired, because different keys of a WITHOUT ROWID table may have the same text, and one of a row that can't be
    /// written again as it is.
    package static func lastBreak(
        after number: Int64, _ database: SQLiteConnection
    ) throws -> (number: Int64, nonce: Int64)? {
        let row = try database.prepare(
            """
            SELECT number, nonce FROM main.GS_CHANGE WHERE number > ?1 AND (
                operation = \(HistoryChange.Operation.gap.rawValue) OR \(HistorySchema.isChange)
                AND table_id NOT IN (SELECT id FROM main.GS_TABLE WHERE installed = 1))
            ORDER BY number DESC LIMIT 1
            """, [.integer(number)])
        var last = try row.step() ? (number: row.integer(0), nonce: row.integer(1)) : nil
        let encoding = try TextEncoding(database)
        guard encoding != .utf8 else { return last }
        last = try UnrepeatableRows.lastChange(after: last?.number ?? number, database) ?? last
        let keyed = try database.prepare(
            """
            SELECT number, nonce, key FROM main.GS_CHANGE
            WHERE number > ?1 AND \(HistorySchema.isChange) AND typeof(key) = 'text' ORDER BY number DESC
            """, [.integer(last?.number ?? number)])
        while try keyed.step() {
            let key = QuotedValues.parse(keyed.textBytes(2) ?? [], encoding: encoding)
            if key.contains(where: \.mayBeRepaired) { return (keyed.integer(0), keyed.integer(1)) }
        }
        return last
    }

    /// Returns the names of the tables with changes after this number, as far as the history names them.
    package static func tables(changedAfter number: Int64, _ database: SQLiteConnection) throws -> [String] {
        try database.rows(
            """
            SELECT DISTINCT coalesce((SELECT name FROM main.GS_TABLE WHERE id = table_id), 'table ' || table_id)
            FROM main.GS_CHANGE WHERE number > ? ORDER BY 1
            """, [.integer(number)]
        ) { $0.decodedText(0) ?? "" }
    }

    /// Returns a table whose rows may have changed without a record since the triggers were made; nil if there is none.
    package static func firstDoubtfulTable(_ database: SQLiteConnection) throws -> String? {
        try HistoryAssessment.firstDoubtful(database)
    }

    /// The state of a store's schema (Documentation/Formats.md, "Change batches").
    package static func schemaState(_ database: SQLiteConnection) throws -> String {
        try SchemaDigest.state(database)
    }

    /// The digest in a state.
    package static func schemaDigest(of state: String) -> String { SchemaDigest.digest(of: state) }

    /// Returns true if a store's schema has the digest of this state.
    package static func hasSchema(_ state: String, _ database: SQLiteConnection) throws -> Bool {
        try SchemaDigest.read(database) == SchemaDigest.digest(of: state)
    }

    /// Makes the triggers count as made for the present schema.
    package static func adoptSchemaVersion(_ version: Int64, _ database: SQLiteConnection) throws {
        try database.execute("UPDATE main.GS_HISTORY SET schema_version = ?", [.integer(version)])
    }

    /// Begins a new history with the changes and the rows that are there: tokens of the former one are void.
    package static func begin(_ database: SQLiteConnection) throws {
        try database.execute("UPDATE main.GS_HISTORY SET identifier = lower(hex(randomblob(10)))")
    }
}
