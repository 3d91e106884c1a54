import CSQLite
import Glibc
import SystemPackage

/// A connection that writes a store nobody else uses: a new one or a staged copy. Confined to one thread.
///
/// Nothing is durable while the connection is open. Whoever stages a file syncs it, and discards it if writing failed.
package final class StoreWriter: SQLiteConnection {
    var recorder: TableWrites?

    /// Opens the database at `path`, or creates an empty one. Throws `StoreError`.
    package init(_ path: FilePath, creating: Bool = false) throws {
        try super.init(
            opening: path.sqliteURI, of: path,
            flags: (creating ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE) | SQLITE_OPEN_URI)
        try execute("PRAGMA foreign_keys = OFF")
        try execute("PRAGMA cell_size_check = ON")
    }

    /// Returns SQLite's error for a statement without running it, or nil if it compiles.
    package func compileError(of sql: String) -> String? {
        do {
            _ = try prepare("EXPLAIN " + sql)
            return nil
        } catch {
            return String(cString: sqlite3_errmsg(connection))
        }
    }

    /// Throws `StoreError` if SQLite finds the structure damaged.
    package func checkIntegrity() throws {
        let finding = try text("PRAGMA quick_check(1)")
        guard finding == "ok" else {
            throw StoreError.corrupt(code: SQLITE_CORRUPT, message: finding ?? "quick_check returned nothing", path)
        }
    }

    /// Drops triggers, and returns the statements that create them again, in the order of their creation.
    ///
    /// - Parameter isIncluded: Returns true for a trigger to drop.
    package func dropTriggers(where isIncluded: (DatabaseSchema.Object) -> Bool = { _ in true }) throws -> [String] {
        let triggers = try DatabaseSchema(self).objects(.trigger).filter(isIncluded)
        for trigger in triggers { try execute("DROP TRIGGER main.\(trigger.name.sqlName)") }
        return triggers.map(\.creation)
    }

    func copyContent(from source: OpaquePointer) throws {
        guard let backup = sqlite3_backup_init(connection, "main", source, "main") else {
            throw error(sqlite3_errcode(connection))
        }
        let code = sqlite3_backup_step(backup, -1)
        sqlite3_backup_finish(backup)
        guard code == SQLITE_DONE else {
            throw StoreError(
                code: code, message: String(cString: sqlite3_errstr(code)), path: path,
                errno: sqlite3_system_errno(connection))
        }
    }

    // MARK: Functions

    /// Registers a function that does nothing and returns NULL, for example one that Core Data's triggers call.
    package func addNoOpFunction(_ name: String, arguments: Int32) throws {
        let code = sqlite3_create_function_v2(
            connection, name, arguments, SQLITE_UTF8, nil, { context, _, _ in sqlite3_result_null(context) }, nil, nil,
            nil)
        if code != SQLITE_OK { throw error(code) }
    }
}

extension StoreError {
    /// True if the statement was interrupted on request.
    package var isInterruption: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code & 0xFF == SQLITE_INTERRUPT
    }

    /// True if the disk or a quota is full.
    package var isFull: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code & 0xFF == SQLITE_FULL
    }

    /// True if the disk, the file's rights or the system's limits are the cause, and not the content.
    package var isOfSystem: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return [
            SQLITE_FULL, SQLITE_CANTOPEN, SQLITE_IOERR, SQLITE_NOMEM, SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH,
        ].contains(code & 0xFF)
    }

    /// True if SQLite has found damage.
    package var isCorruption: Bool { if case .corrupt = self { true } else { false } }

    /// True if a statement doesn't fit the schema (SQLITE_ERROR).
    package var isOfStatement: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code & 0xFF == SQLITE_ERROR
    }

    /// True if a virtual table's index isn't that of its content, as this library computes it (SQLITE_CORRUPT_VTAB).
    package var isOfVirtualTable: Bool { code == 267 }

    /// True if a constraint failed, such as uniqueness.
    package var isConstraint: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code & 0xFF == SQLITE_CONSTRAINT
    }
}

extension SQLiteConnection {
    /// Turns triggers off for this connection: what is written is exactly what its statements say.
    package func disableTriggers() throws {
        let code = gs_write_rows_only(connection)
        if code != SQLITE_OK { throw error(code) }
    }
}
