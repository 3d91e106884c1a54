import FoundationEssentials
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Installs a store's history, updates it to the store's schema, or removes it; each in one transaction.
///
/// The caller makes sure that nobody relocates the store meanwhile, and that this process closes no descriptor of the
/// store: closing one drops the process's locks.
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
        /// The tables whose changes are recorded.
        package let tables: [String]
        /// The tables that can't be recorded, with the reason for each.
        package let unrecorded: [String: String]
        /// The tables whose changes may have been missed before this update.
        package let gaps: [String]
    }

    package init(_ location: StoreLocation, busyTimeout: Duration = .seconds(10)) {
        self.location = location
        self.busyTimeout = busyTimeout
    }

    /// Starts recording changes, or adapts the triggers to the current schema. If changes may have been missed, a gap
    /// row in the history says so. Throws `StoreError`, `SystemError`, `HistoryError`, which is `replica` if anything
    /// were to change in one; the store is unchanged then.
    ///
    /// - Parameter images: True to also record what rows held before they were changed, false to stop doing so; nil to
    ///   leave that as it is.
    package func enable(images: Bool? = nil) throws -> Outcome {
        if try kindWithoutHistory() == .coreData {
            return Outcome(kind: .coreData, tables: [], unrecorded: [:], gaps: [])
        }
        return try write { database in
            if try HistoryTables.coreDataTablesExist(database) {
                return Outcome(kind: .coreData, tables: [], unrecorded: [:], gaps: [])
            }
            let schema = try DatabaseSchema(database)
            if let name = HistorySchema.foreignTable(in: schema) { throw HistoryError.foreign(name, location.path) }
            if try HistoryTables.areDamaged(schema, location.path) {
                try HistoryTables.refuseReplica(database, location.path)
                try HistoryTables.remove(database)
            }
            let isNew = try !HistorySchema.isKept(in: database)
            if isNew {
                try database.execute(script: HistorySchema.creation)
                try database.execute(
                    "INSERT INTO GS_HISTORY (id, identifier, version, schema_version, trimmed) "
                        + "VALUES (1, lower(hex(randomblob(10))), ?, -1, 0)",
                    [.integer(HistorySchema.version)])
            } else {
                try HistoryTables.checkVersion(database, location.path)
            }
            var update = try HistoryUpdate(database, location.path, isNew: isNew, images: images)
            try update.run()
            if update.hasChanged || !update.gaps.isEmpty { try HistoryTables.refuseReplica(database, location.path) }
            let kind: Outcome.Kind = isNew ? .enabled : update.hasChanged ? .updated : .unchanged
            return Outcome(kind: kind, tables: update.recorded, unrecorded: update.unrecorded, gaps: update.gaps)
        }
    }

    /// Removes all of the history's tables and triggers from the store. Throws as `enable` does.
    package func disable() throws -> Outcome {
        if let kind = try kindWithoutHistory() { return Outcome(kind: kind, tables: [], unrecorded: [:], gaps: []) }
        return try write { database in
            let schema = try DatabaseSchema(database)
            guard try HistoryTables.areWhole(schema) || HistoryTables.areDamaged(schema, location.path) else {
                let isCoreData = try HistoryTables.coreDataTablesExist(database)
                return Outcome(kind: isCoreData ? .coreData : .unchanged, tables: [], unrecorded: [:], gaps: [])
            }
            try HistoryTables.refuseReplica(database, location.path)
            try HistoryTables.remove(database)
            return Outcome(kind: .disabled, tables: [], unrecorded: [:], gaps: [])
        }
    }

    /// Returns the kind of history found, or nil if the store keeps groupstore's own. Reads without leaving a trace: a
    /// caller that has nothing to write must not leave a log behind in somebody else's store.
    func kindWithoutHistory() throws -> Outcome.Kind? {
        guard try location.directory.status(location.name.database) != nil else {
            throw StoreError.missing(location.path)
        }
        do {
            return try StoreReader.read(location) { reader -> Outcome.Kind? in
                if try HistorySchema.isKept(in: reader) { return nil }
                // What is left of a history that another program dropped.
                let left = "SELECT count(*) FROM sqlite_schema WHERE \(HistorySchema.isLeftover)"
                if try reader.integer(left) ?? 0 > 0 { return nil }
                return try HistoryTables.coreDataTablesExist(reader) ? .coreData : .unchanged
            }
        } catch StoreError.busy {
            // The write that follows waits with SQLite's busy handler.
            return nil
        }
    }

    /// Runs `body` in one write transaction. Throws as `enable` does; the store is unchanged then.
    func write<Success>(_ body: (StoreConnection) throws -> Success) throws -> Success {
        guard try location.directory.status(location.name.database) != nil else {
            throw StoreError.missing(location.path)
        }
        // SQLite would fail only after it had created a log and a wal-index that belong to this user.
        guard try location.directory.mayWrite(location.name.database) else {
            throw StoreError.sqlite(
                code: 8, message: "attempt to write a readonly database", location.path)
        }
        let unopened = TemporarySideFiles(location)
        defer { unopened?.checkpointAndRemove() }
        return try transaction(body)
    }

    /// The connection is closed on return.
    private func transaction<Success>(_ body: (StoreConnection) throws -> Success) throws -> Success {
        let connection = try HistoryConnection.open(location, busyTimeout: busyTimeout)
        return try connection.transaction(.immediate) { try body(connection) }
    }
}

/// The tables and triggers of history in a store's schema.
enum HistoryTables {
    /// Returns true if each of history's tables is there.
    static func areWhole(_ schema: DatabaseSchema) -> Bool {
        named(schema).filter(HistorySchema.isOwn).count == HistorySchema.requiredTables.count
    }

    /// Returns true if another program dropped some of history's tables, or all of them but not the triggers. The app's
    /// writes fail then. A table is history's by its whole statement: one that only has the name is a program's own.
    /// Throws `HistoryError.foreign` if such a one stands among history's.
    static func areDamaged(_ schema: DatabaseSchema, _ path: FilePath) throws -> Bool {
        if areWhole(schema) { return false }
        let named = named(schema)
        let isTriggered = triggers(schema).contains { $0.creation.contains("GS_CHANGE") }
        guard named.contains(where: HistorySchema.isOwn) || isTriggered else { return false }
        if let foreign = named.first(where: { !HistorySchema.isOwn($0) }) {
            throw HistoryError.foreign(foreign.name, path)
        }
        return true
    }

    /// Returns the tables that have names of history's.
    private static func named(_ schema: DatabaseSchema) -> [DatabaseSchema.Table] {
        schema.tablesByName.filter { HistorySchema.requiredTables.contains($0.name) }
    }

    /// Removes all of history's tables and triggers. What only has the name of one stays.
    static func remove(_ database: SQLiteConnection) throws {
        try removeTriggers(database)
        for table in try named(DatabaseSchema(database)) where HistorySchema.isOwn(table) {
            try database.execute("DROP TABLE main.\(table.name)")
        }
    }

    static func removeTriggers(_ database: SQLiteConnection) throws {
        var changes = TriggerChanges()
        try changes.remove(triggers(DatabaseSchema(database)))
        try changes.apply(to: database)
    }

    static func coreDataTablesExist(_ database: SQLiteConnection) throws -> Bool {
        try database.hasTables("ACHANGE", "ATRANSACTION")
    }

    static func checkVersion(_ database: SQLiteConnection, _ path: FilePath) throws {
        let version = try database.firstInteger("SELECT version FROM GS_HISTORY WHERE id = 1")
        guard let version else { throw HistoryError.foreign("GS_HISTORY", path) }
        guard version <= HistorySchema.versionWithImages else { throw HistoryError.newer(version: version, path) }
    }

    /// Throws `HistoryError.replica` if the store is one. With another history than its home's, it could no longer
    /// follow.
    static func refuseReplica(_ database: SQLiteConnection, _ path: FilePath) throws {
        if try HistorySchema.isReplica(database) { throw HistoryError.replica(path) }
    }

    /// Returns true if the history also records what rows held before.
    static func recordsImages(_ database: SQLiteConnection) throws -> Bool {
        try database.firstInteger("SELECT version FROM GS_HISTORY WHERE id = 1") == HistorySchema.versionWithImages
    }

    /// Makes the next update of the triggers begin or end the recording of images. Those that are there are given up
    /// with it, so that older programs can read the history again.
    static func recordImages(_ isWanted: Bool, _ database: SQLiteConnection) throws {
        if !isWanted {
            try database.execute(
                "UPDATE GS_CHANGE SET operation = ?, columns = 0 WHERE operation = ?",
                [.integer(HistorySchema.assignment), .integer(HistorySchema.image)])
        }
        let version = isWanted ? HistorySchema.versionWithImages : HistorySchema.version
        try database.execute("UPDATE GS_HISTORY SET version = ?", [.integer(version)])
    }

    /// Returns the names that history knows of the tables that it records, by the number in their triggers' names.
    static func recorded(_ database: SQLiteConnection) throws -> [Int64: String] {
        Dictionary(
            try database.rows("SELECT id, name FROM GS_TABLE WHERE installed = 1") {
                ($0.decodedInteger(0) ?? 0, $0.decodedText(1) ?? "")
            }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns groupstore's own triggers.
    static func triggers(_ schema: DatabaseSchema) -> [DatabaseSchema.Object] {
        schema.objects(.trigger).filter(HistorySchema.isOwn)
    }

    /// Returns all triggers that aren't groupstore's.
    static func thirdPartyTriggers(_ schema: DatabaseSchema) -> [ThirdPartyTrigger] {
        schema.objects(.trigger).filter { !HistorySchema.isOwn($0) }.map { ThirdPartyTrigger(sql: $0.creation) }
    }

    /// Returns the apps' tables by name. Shadow tables of virtual tables are left out.
    static func apps(_ schema: DatabaseSchema) -> [DatabaseSchema.Table] {
        schema.tablesByName.filter { $0.kind != .virtual && !$0.isShadow && !HistorySchema.isOwn($0) }
    }
}
