import FoundationEssentials
import GRDB
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Installs a store's history, brings it up to date with the store's schema, takes it out: each in one transaction.
///
/// The caller sees to it that nobody relocates the store meanwhile, and that the process has no descriptor of the store
/// that it closes.
package struct HistoryInstallation {
    let location: StoreLocation
    private let busyTimeout: Duration

    package struct Outcome: Equatable, Sendable {
        package enum Kind: String, Sendable {
            case enabled, updated, unchanged, disabled
            /// Core Data keeps a history of its own in this store.
            case coreData = "core_data"
        }

        package let kind: Kind
        /// Those whose changes are recorded.
        package let tables: [String]
        /// Those that can't be recorded, and why.
        package let unrecorded: [String: String]
        /// Those where changes may have been missed before this update.
        package let gaps: [String]
    }

    package init(_ location: StoreLocation, busyTimeout: Duration = .seconds(10)) {
        self.location = location
        self.busyTimeout = busyTimeout
    }

    /// Records changes from now on, or follows what became of the schema. Where changes may have been missed, a row of
    /// the history says so. Throws `StoreError`, `SystemError`, `HistoryError`; nothing has changed then.
    package func enable() throws -> Outcome {
        if try kindWithoutHistory() == .coreData {
            return Outcome(kind: .coreData, tables: [], unrecorded: [:], gaps: [])
        }
        return try write { database in
            if try HistoryTables.areCoreData(database) {
                return Outcome(kind: .coreData, tables: [], unrecorded: [:], gaps: [])
            }
            let isNew = try !HistoryTables.exist(database)
            if isNew {
                try database.execute(sql: HistorySchema.creation)
                try database.execute(
                    sql: "INSERT INTO GS_HISTORY (id, identifier, version, schema_version, trimmed) "
                        + "VALUES (1, lower(hex(randomblob(10))), ?, -1, 0)",
                    arguments: [HistorySchema.version])
            } else {
                try HistoryTables.checkVersion(database, location.path)
            }
            var update = try HistoryUpdate(database, location.path, isNew: isNew)
            try update.run()
            let kind: Outcome.Kind = isNew ? .enabled : update.hasChanged ? .updated : .unchanged
            return Outcome(kind: kind, tables: update.recorded, unrecorded: update.unrecorded, gaps: update.gaps)
        }
    }

    /// Takes everything of it out of the store. Throws as `enable` does.
    package func disable() throws -> Outcome {
        if let kind = try kindWithoutHistory() { return Outcome(kind: kind, tables: [], unrecorded: [:], gaps: []) }
        return try write { database in
            guard try HistoryTables.exist(database) else {
                let isCoreData = try HistoryTables.areCoreData(database)
                return Outcome(kind: isCoreData ? .coreData : .unchanged, tables: [], unrecorded: [:], gaps: [])
            }
            for trigger in try HistoryTables.triggers(database) {
                try database.execute(sql: "DROP TRIGGER \(StoreTable.quote(trigger.name))")
            }
            for table in HistorySchema.tables { try database.execute(sql: "DROP TABLE IF EXISTS \(table)") }
            return Outcome(kind: .disabled, tables: [], unrecorded: [:], gaps: [])
        }
    }

    /// What there is where the store keeps no history of ours, read without a trace; nil where it keeps one. Whoever has
    /// nothing to write leaves no log behind in somebody else's store.
    func kindWithoutHistory() throws -> Outcome.Kind? {
        guard try location.directory.status(location.name.database) != nil else {
            throw StoreError.missing(location.path)
        }
        do {
            return try StoreReader.read(location) { reader -> Outcome.Kind? in
                let named = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN"
                if try reader.integer("\(named) ('GS_HISTORY')") == 1 { return nil }
                return try reader.integer("\(named) ('ACHANGE', 'ATRANSACTION')") == 2 ? .coreData : .unchanged
            }
        } catch StoreError.busy {
            // Whoever writes waits in SQLite's own way.
            return nil
        }
    }

    func write<Result>(_ body: (Database) throws -> Result) throws -> Result {
        guard try location.directory.status(location.name.database) != nil else {
            throw StoreError.missing(location.path)
        }
        // SQLite would find out only after it had made a log and an index of the log, which are this user's then.
        guard try location.directory.mayWrite(location.name.database) else {
            throw StoreError.sqlite(
                code: 8, message: "attempt to write a readonly database", location.path)
        }
        let unopened = TemporarySideFiles(location)
        defer { unopened?.settle() }
        do {
            let queue = try HistoryConnection.open(location, busyTimeout: busyTimeout)
            defer { try? queue.close() }
            return try queue.write(body)
        } catch is RowDecodingError {
            throw HistoryError.foreign("a value in one of the tables GS_…", location.path)
        } catch {
            guard let error = error as? DatabaseError else { throw error }
            throw StoreError(
                code: error.extendedResultCode.rawValue, message: error.message ?? "SQLite error", path: location.path)
        }
    }
}

/// Why a store's history can't be used.
package enum HistoryError: Error, Equatable, CustomStringConvertible {
    /// There is none.
    case disabled(FilePath)
    /// Core Data keeps it, and only it and its app write it.
    case coreDatas(FilePath)
    /// A later groupstore made it.
    case newer(version: Int64, FilePath)
    /// With it, programs could no longer write the table: what SQLite says.
    case unusable(table: String, message: String, FilePath)
    /// Something of another origin has a name that history needs.
    case foreign(String, FilePath)
    /// A subscriber has not acknowledged what would be purged.
    case unacknowledged(subscriber: String, FilePath)

    package var description: String {
        switch self {
        case .disabled(let path): "\(PrintablePath(path)) keeps no history"
        case .coreDatas(let path):
            "\(PrintablePath(path)): Core Data keeps this store's history, and it is only read here"
        case .newer(let version, let path):
            "\(PrintablePath(path)) has a history of format \(version), which this groupstore doesn't know"
        case .unusable(let table, let message, let path):
            "\(PrintablePath(path)): with history, the table \(table) could not be written: \(message)"
        case .foreign(let name, let path):
            "\(PrintablePath(path)) has something called \(name) that isn't groupstore's"
        case .unacknowledged(let subscriber, let path):
            "\(PrintablePath(path)): the subscriber \(subscriber) has not acknowledged all of it"
        }
    }

    package var remedy: String {
        switch self {
        case .disabled: "groupstore history enable STORE"
        case .coreDatas: "let the app purge it: NSPersistentHistoryChangeRequest.deleteHistory(before:)"
        case .newer: "install a groupstore at least as new as the one that enabled it"
        case .unusable: "see the table's triggers and indexes: functions of an app's own can't be called"
        case .foreign: "rename it"
        case .unacknowledged: "groupstore history purge --force, or --forget-subscriber NAME where it is gone for good"
        }
    }
}

/// What of history is in a store's schema.
enum HistoryTables {
    struct Trigger {
        let name: String
        let table: String
        let sql: String
    }

    static func exist(_ database: Database) throws -> Bool {
        try Int.fetchOne(
            database, sql: "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'GS_HISTORY'") == 1
    }

    static func areCoreData(_ database: Database) throws -> Bool {
        try Int.fetchOne(
            database,
            sql: "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('ACHANGE', 'ATRANSACTION')") == 2
    }

    static func checkVersion(_ database: Database, _ path: FilePath) throws {
        let version = try Int64.fetchOne(database, sql: "SELECT version FROM GS_HISTORY WHERE id = 1")
        guard let version else { throw HistoryError.foreign("GS_HISTORY", path) }
        guard version <= HistorySchema.version else { throw HistoryError.newer(version: version, path) }
    }

    /// Ours.
    static func triggers(_ database: Database) throws -> [Trigger] {
        try Row.fetchAll(
            database, sql: "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
        ).compactMap { row in
            guard let name = row.decoded("name", as: String.self), HistorySchema.tableNumber(ofTrigger: name) != nil
            else {
                return nil
            }
            return Trigger(name: name, table: row.decoded("tbl_name") ?? "", sql: row.decoded("sql") ?? "")
        }
    }

    /// The apps'.
    static func foreignTriggers(_ database: Database) throws -> [ThirdPartyTrigger] {
        try Row.fetchAll(database, sql: "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").compactMap {
            row in
            HistorySchema.tableNumber(ofTrigger: row.decoded("name") ?? "") == nil
                ? ThirdPartyTrigger(sql: row.decoded("sql") ?? "") : nil
        }
    }
}
