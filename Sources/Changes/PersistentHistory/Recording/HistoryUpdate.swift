import FoundationEssentials
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Updates the triggers to the store's schema, and records a gap where changes may have gone unrecorded.
struct HistoryUpdate {
    private let database: SQLiteConnection
    private let path: FilePath
    private let isNew: Bool
    /// True to begin to record what rows held before, false to end it; nil to leave that as it is.
    private let images: Bool?
    /// Returns whether groupstore itself removed a table's triggers and nothing was written since.
    private let isUnwritten: (String) -> Bool
    /// True if the schema has changed since the last update.
    private var hasSchemaChanged = false
    /// True if an older version created the triggers.
    private var isOlder = false
    private var recordsImages = false
    /// The app's tables.
    private let tables: [DatabaseSchema.Table]
    private let installed: InstalledTriggers
    private let otherTriggers: [ThirdPartyTrigger]
    private var changes = TriggerChanges()
    /// The tables that were recorded, by the number in their triggers' names.
    private var known: [Int64: String] = [:]
    private(set) var recorded: [String] = []
    private(set) var unrecorded: [String: String] = [:]
    private(set) var gaps: [String] = []
    /// The tables with a gap, by `DatabaseSchema.key(of:)`.
    private var named: Set<String> = []
    /// The numbers of the tables that are recorded now, by `DatabaseSchema.key(of:)`.
    private var numbers: [String: Int64] = [:]
    private(set) var hasChanged = false

    init(
        _ database: SQLiteConnection, _ path: FilePath, isNew: Bool, images: Bool? = nil,
        isUnwritten: @escaping (String) -> Bool = { _ in false }
    ) throws {
        self.database = database
        self.path = path
        self.isNew = isNew
        self.images = images
        self.isUnwritten = isUnwritten
        let schema = try DatabaseSchema(database)
        if let name = HistorySchema.foreignTrigger(in: schema) {
            throw HistoryError.foreign("the trigger \(name)", path)
        }
        tables = HistoryTables.apps(schema)
        installed = InstalledTriggers(schema)
        otherTriggers = HistoryTables.thirdPartyTriggers(schema)
    }

    mutating func run() throws {
        known = try HistoryTables.recorded(database)
        hasSchemaChanged = try database.firstInteger("SELECT schema_version FROM GS_HISTORY") != schemaVersion()
        try upgradeTables()
        recordsImages = try HistoryTables.recordsImages(database)
        if let images, images != recordsImages {
            try HistoryTables.recordImages(images, database)
            (recordsImages, hasChanged) = (images, true)
        }
        // Other writers may have functions and collations that this process lacks.
        let before = usability()
        let renamed = try followRenames()
        for table in tables {
            do {
                try follow(RecordedTable(table, triggers: otherTriggers))
                recorded.append(table.name)
            } catch let problem as RecordedTable.Unrecordable {
                unrecorded[table.name] = problem.reason
            }
        }
        for (number, name) in known.sorted(by: { $0.key < $1.key }) { try forget(number, name) }
        for name in renamed where !named.contains(DatabaseSchema.key(of: name)) {
            try recordGap(number(of: name), name)
        }
        try changes.apply(to: database)
        for (name, problem) in usability() where before[name] == .some(nil) {
            if let problem { throw HistoryError.unusable(table: name, message: problem, path) }
        }
        try database.execute(
            "UPDATE GS_HISTORY SET schema_version = ?", [schemaVersion().map(SQLiteValue.integer) ?? .null])
    }

    /// Upgrades the tables of an older version. Its recorded changes are readable as they are; its triggers are
    /// compared with those it would have created.
    private mutating func upgradeTables() throws {
        let version = try database.firstInteger("SELECT version FROM GS_HISTORY") ?? 0
        guard version < HistorySchema.version else { return }
        isOlder = true
        hasChanged = true
        try database.execute(script: "DROP TABLE IF EXISTS GS_REPLACED; \(HistorySchema.replaced)")
        try database.execute("UPDATE GS_HISTORY SET version = ?", [.integer(HistorySchema.version)])
    }

    private func schemaVersion() throws -> Int64? { try database.firstInteger("PRAGMA main.schema_version") }

    /// Returns SQLite's error for statements that write each table; nil if it accepts them.
    private func usability() -> [String: String?] {
        var found: [String: String?] = [:]
        for table in tables {
            let quoted = table.name.sqlName
            let update = table.assignableColumns.first.map { "UPDATE \(quoted) SET \($0.name.sqlName) = NULL" }
            var problem: String?
            for sql in ["INSERT INTO \(quoted) DEFAULT VALUES", "DELETE FROM \(quoted)"] + (update.map { [$0] } ?? []) {
                problem = compileError(of: "EXPLAIN \(sql)") ?? problem
            }
            found[table.name] = .some(problem)
        }
        return found
    }

    private func compileError(of sql: String) -> String? {
        do {
            _ = try database.prepare(sql)
            return nil
        } catch let error as StoreError {
            return "SQLite error \((error.code ?? 0) & 0xFF): \(error.sqliteMessage) - while executing `\(sql)`"
        } catch {
            return "\(error)"
        }
    }

    // MARK: One table

    /// Gives renamed tables their present names, so that no row is reported under a name that another table has now.
    /// Returns the names that need a gap: which of a table's rows were recorded under which of its names isn't known,
    /// and a reader of one name has other rows before it now.
    private mutating func followRenames() throws -> [String] {
        let renames = installed.renames(from: known)
        for rename in renames {
            hasChanged = true
            known[rename.number] = rename.present
            try database.execute(
                "UPDATE GS_TABLE SET name = ? WHERE id = ?", [.text(rename.present), .integer(rename.number)])
        }
        return renames.flatMap(\.names)
    }

    /// Returns the number of the table that has the name, or a new one if no recorded table has it.
    private func number(of name: String) throws -> Int64 {
        if let number = numbers[DatabaseSchema.key(of: name)] { return number }
        try database.execute("INSERT INTO GS_TABLE (name, columns, installed) VALUES (?, '[]', 0)", [.text(name)])
        return database.lastInsertedRow
    }

    private mutating func follow(_ table: RecordedTable) throws {
        guard let number = installed.number(of: table.name) else {
            let former = known.first { $0.value == table.name }?.key
            let hasRows = try database.firstInteger("SELECT 1 FROM \(table.quotedName) LIMIT 1") != nil
            let new = try install(table)
            let wasKept = former != nil && isUnwritten(table.name)
            // The table was recreated under its old name, or filled before history saw it.
            if former != nil || hasRows, !isNew, !wasKept { try recordGap(new, table.name) }
            if let former { try retire(former) }
            return
        }
        let triggers = installed.byNumber[number] ?? []
        let expected = HistoryTriggers(table, number: number, recordsImages: recordsImages)
        let present = Set(triggers.map(\.creation))
        let mayBeRenumbered = if case .rowid(_, isStable: false) = table.key { hasSchemaChanged } else { false }
        let isComplete =
            expected.essential.allSatisfy { present.contains($0.sql) }
            || isOlder && LegacyTriggers(table: table, number: number, triggers: triggers).areComplete
        let runsFirst = !installed.isOvertaken(number, table.name)
        let isNamed = known[number]?.hasSameBytes(as: table.name) == true
        if present == Set(expected.all.map(\.sql)), isNamed, !mayBeRenumbered, runsFirst {
            known[number] = nil
            numbers[DatabaseSchema.key(of: table.name)] = number
            // A renamed column took its trigger along.
            try database.execute(
                "UPDATE GS_TABLE SET columns = ?1, key_columns = ?2 WHERE id = ?3 AND columns <> ?1",
                [Self.json(table.columns), Self.keyColumns(of: table), .integer(number)])
            if database.changes > 0 { hasChanged = true }
            return
        }
        changes.remove(triggers)
        let new = try install(table)
        // A table that only gained or lost columns was recorded all the time.
        if !isComplete || mayBeRenumbered { try recordGap(new, table.name) }
        try retire(number)
    }

    private mutating func install(_ table: RecordedTable) throws -> Int64 {
        hasChanged = true
        try database.execute(
            "INSERT INTO GS_TABLE (name, key_columns, columns, installed) VALUES (?, ?, ?, 1)",
            [.text(table.name), Self.keyColumns(of: table), Self.json(table.columns)])
        let number = database.lastInsertedRow
        numbers[DatabaseSchema.key(of: table.name)] = number
        changes.create(HistoryTriggers(table, number: number, recordsImages: recordsImages))
        return number
    }

    /// Marks the table's entry as not installed. Its names stay for the changes that were recorded.
    private mutating func retire(_ number: Int64) throws {
        known[number] = nil
        let recorded = try database.text("SELECT columns FROM GS_TABLE WHERE id = ?", [.integer(number)])
        if let columns = RecordedHistory.names(recorded) {
            let triggers = (installed.byNumber[number] ?? []).map { ($0.name, $0.creation) }
            let present = HistoryTriggers.columns(
                columns, number: number, triggers: Dictionary(triggers, uniquingKeysWith: { first, _ in first }))
            try database.execute(
                "UPDATE GS_TABLE SET columns = ? WHERE id = ?", [Self.json(present), .integer(number)])
        }
        try database.execute("UPDATE GS_TABLE SET installed = 0 WHERE id = ?", [.integer(number)])
    }

    /// Records that a table is gone: its rows were deleted without firing a trigger.
    private mutating func forget(_ number: Int64, _ name: String) throws {
        hasChanged = true
        changes.remove(installed.byNumber[number] ?? [])
        try recordGap(number, name)
        try retire(number)
    }

    /// Records a gap, once for each name.
    private mutating func recordGap(_ number: Int64, _ name: String) throws {
        guard named.insert(DatabaseSchema.key(of: name)).inserted else { return }
        gaps.append(name)
        try database.execute(
            "INSERT INTO GS_CHANGE (table_id, operation, nonce, time) VALUES (?, ?, random(), julianday('now'))",
            [.integer(number), .integer(HistoryChange.Operation.gap.rawValue)])
    }

    private static func keyColumns(of table: RecordedTable) -> SQLiteValue {
        table.keyColumns.isEmpty ? .null : json(table.keyColumns)
    }

    private static func json(_ names: [String]) -> SQLiteValue {
        (try? JSONEncoder().encode(names)).map { .text(String(decoding: $0, as: UTF8.self)) } ?? .null
    }
}
