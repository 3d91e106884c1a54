import CLinux
import SQLiteStore

/// The tables and triggers that hold a store's history (Documentation/Formats.md).
package enum HistorySchema {
    /// The value of `GS_HISTORY.version` in a history that this code writes.
    static let version: Int64 = 3

    /// The value in a history that also records what rows held before. Programs that know only version 3 would take an
    /// image for a change.
    static let versionWithImages: Int64 = 4

    /// The tables of every history.
    package static let requiredTables = [
        "GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER",
    ]

    /// The condition of a row of `sqlite_schema` that may be part of a history.
    static let isLeftover =
        "type = 'trigger' AND name LIKE 'GS\\_%\\_%' ESCAPE '\\' OR type = 'table' AND name IN ("
        + requiredTables.map { "'\($0)'" }.joined(separator: ", ") + ")"

    /// The table with the position of a replica (Documentation/Formats.md, "Replicas"). Only replicas have it.
    package static let replicaTable = "GS_REPLICA"

    /// The statement that creates it.
    package static let replicaCreation = """
        CREATE TABLE GS_REPLICA (id INTEGER PRIMARY KEY CHECK (id = 1), stream TEXT NOT NULL, token TEXT NOT NULL, \
        schema TEXT NOT NULL, last_row INTEGER NOT NULL, batch TEXT, diverged TEXT)
        """

    /// The `GS_CHANGE.operation` of a row that isn't a change: it names a column that the following update assigned. An
    /// extra row costs less than going back to the update's own.
    static let assignment: Int64 = 4

    /// The operation of a row that isn't a change either: in `columns`, it has what the row of that key held before its
    /// next change (`FormerRows`).
    static let image: Int64 = 5

    /// SQL that selects the rows of `GS_CHANGE` that are changes.
    static let isChange = "operation < \(assignment)"

    /// The statements that create the tables. `GS_CHANGE.number` has no AUTOINCREMENT, which would leave a
    /// `sqlite_sequence` behind. A purge keeps the last row instead, so that no number is assigned twice.
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

    /// Returns whether this is the statement of one of history's tables, as SQLite keeps it. A table with another
    /// statement is a program's own, whatever its name.
    package static func isOwn(statement: String) -> Bool {
        // Earlier versions of this one had another primary key.
        statements.contains(statement) || statement.hasPrefix(replaced.prefix { $0 != "," } + ", rule INTEGER NOT NULL")
    }

    /// Returns whether a table belongs to history.
    package static func isOwn(_ table: DatabaseSchema.Table) -> Bool { isOwn(statement: table.creation) }

    /// Returns the names of history's tables in a database.
    package static func tables(in database: SQLiteConnection) throws -> Set<String> {
        let row = try database.prepare(
            "SELECT name, sql FROM main.sqlite_schema WHERE type = 'table' AND name GLOB 'GS_*'")
        var names: Set<String> = []
        while try row.step() {
            if let name = row.text(0), row.text(1).map(isOwn(statement:)) == true { names.insert(name) }
        }
        return names
    }

    /// Returns whether a database keeps a history of groupstore's, even one that another program dropped in part.
    package static func isKept(in database: SQLiteConnection) throws -> Bool {
        try tables(in: database).contains("GS_HISTORY")
    }

    /// Returns whether a database with these tables, statements by names, keeps a history, groupstore's or Core Data's.
    package static func isKept(by tables: [String: String]) -> Bool {
        tables["GS_HISTORY"].map(isOwn(statement:)) == true || tables["ACHANGE"] != nil && tables["ATRANSACTION"] != nil
    }

    /// Returns whether a database is a replica.
    package static func isReplica(_ database: SQLiteConnection) throws -> Bool {
        try tables(in: database).contains(replicaTable)
    }

    /// Returns whether a database has each of history's tables.
    package static func isWhole(_ database: SQLiteConnection) throws -> Bool {
        try HistoryTables.areWhole(DatabaseSchema(database))
    }

    private static let statements = Set(
        creation.split(separator: "\n").map { String($0.dropLast()) } + [replicaCreation])

    /// The table of rows that a statement may replace. After an index is dropped, several rows may have the same value,
    /// so the key is part of the primary key. Versions 1 and 2 ran into a conflict there.
    static let replaced = """
        CREATE TABLE GS_REPLACED (table_id INTEGER NOT NULL, rule INTEGER NOT NULL, value NOT NULL, key NOT NULL, \
        number INTEGER NOT NULL, PRIMARY KEY (table_id, rule, value, key)) WITHOUT ROWID
        """

    /// Returns the table number in the name of a trigger of history, such as 12 for `GS_12_C3`; nil if the name is of
    /// another form. A program's own trigger may have such a name: see `isOwn(trigger:_:)`.
    package static func tableNumber(ofTrigger name: String) -> Int64? {
        let parts = name.split(separator: "_", omittingEmptySubsequences: false)
        return parts.count == 3 && parts[0] == "GS" ? Int64(parts[1]) : nil
    }

    /// Returns whether a trigger belongs to history: it has such a name, and begins as one of history's. One that only
    /// has the name is a program's own, and stays.
    package static func isOwn(trigger name: String, _ statement: String) -> Bool {
        guard tableNumber(ofTrigger: name) != nil else { return false }
        // A tool that wrote the schema again may have broken the line.
        let line = statement.utf8.map { $0 == 0x0A ? 0x20 : $0 }
        return line.withUnsafeBytes { line in
            beginnings.contains { gs_contains(line.baseAddress, line.count, "BEGIN \($0)") }
        }
    }

    /// What the triggers of all versions begin with, up to the number of their table.
    private static let beginnings = [
        "INSERT INTO GS_CHANGE (table_id, operation, ", "DELETE FROM GS_REPLACED WHERE table_id = ",
        "INSERT INTO GS_REPLACED (table_id, rule, ", "UPDATE GS_CHANGE SET columns = columns | ",
    ]

    /// Returns whether a trigger belongs to history.
    package static func isOwn(_ trigger: DatabaseSchema.Object) -> Bool {
        isOwn(trigger: trigger.name, trigger.creation)
    }

    /// Returns the name of an object that isn't history's, and keeps history from having one of its tables; nil if
    /// there is none. SQLite compares names without regard to case.
    package static func foreignTable(in schema: DatabaseSchema) -> String? {
        let objects = [.table, .view, .index].flatMap { schema.objects($0) }
        return objects.first { requiredTables.contains($0.name.uppercased()) && !isOwn(statement: $0.creation) }?.name
    }

    /// Returns the name of a table or trigger of history's in a store that keeps none; nil if there is none. It is left
    /// of one that another program dropped in part.
    package static func leftover(in schema: DatabaseSchema) -> String? {
        schema.tablesByName.first(where: isOwn)?.name ?? HistoryTables.triggers(schema).first?.name
    }

    /// Returns the name of an object that isn't history's, and has the name of a trigger of history; nil if there is
    /// none. SQLite compares names without regard to case.
    package static func foreignTrigger(in schema: DatabaseSchema) -> String? {
        schema.objects(.trigger).first { tableNumber(ofTrigger: $0.name.uppercased()) != nil && !isOwn($0) }?.name
    }
}
