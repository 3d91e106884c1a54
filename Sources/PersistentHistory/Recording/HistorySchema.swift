/// The tables that a store's history is kept in (Documentation/Formats.md).
package enum HistorySchema {
    /// What `GS_HISTORY.version` says of a history that this code writes.
    static let version: Int64 = 3

    static let tables = ["GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER"]

    /// `GS_CHANGE.operation` of a row that is no change: it says which column the update behind it assigned. A row more
    /// costs less than going back to the update's own.
    static let assignment: Int64 = 4

    /// `GS_CHANGE.number` has no AUTOINCREMENT: that would leave a `sqlite_sequence` behind. A purge keeps the last
    /// row instead, so that no number is given twice.
    static let creation = """
        CREATE TABLE GS_HISTORY (id INTEGER PRIMARY KEY CHECK (id = 1), identifier TEXT NOT NULL, \
        version INTEGER NOT NULL, schema_version INTEGER NOT NULL, trimmed INTEGER NOT NULL, trimmed_nonce INTEGER);
        CREATE TABLE GS_TABLE (id INTEGER PRIMARY KEY, name TEXT NOT NULL, key_columns TEXT, columns TEXT NOT NULL, \
        installed INTEGER NOT NULL);
        CREATE TABLE GS_CHANGE (number INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, operation INTEGER NOT NULL, \
        key, columns INTEGER, nonce INTEGER NOT NULL, time REAL NOT NULL, author TEXT);
        CREATE TABLE GS_AUTHOR (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT);
        \(replaced);
        CREATE TABLE GS_SUBSCRIBER (name TEXT PRIMARY KEY, number INTEGER NOT NULL, nonce INTEGER, time REAL NOT NULL) \
        WITHOUT ROWID;
        INSERT INTO GS_AUTHOR (id, name) VALUES (1, NULL);
        """

    /// Whether the name is of those that history keeps for itself.
    package static func isOwn(_ name: String) -> Bool { tables.contains(name.uppercased()) }

    /// The notes of rows that may give way. An index that was dropped no longer keeps several rows from having one value,
    /// so the key tells the notes of one value apart. Versions 1 and 2 ran into a conflict there.
    static let replaced = """
        CREATE TABLE GS_REPLACED (table_id INTEGER NOT NULL, rule INTEGER NOT NULL, value NOT NULL, key NOT NULL, \
        number INTEGER NOT NULL, PRIMARY KEY (table_id, rule, value, key)) WITHOUT ROWID
        """

    /// `GS_12_C3` belongs to the table with the number 12; nil when the trigger isn't ours.
    static func tableNumber(ofTrigger name: String) -> Int64? {
        let parts = name.split(separator: "_", omittingEmptySubsequences: false)
        return parts.count == 3 && parts[0] == "GS" ? Int64(parts[1]) : nil
    }
}
