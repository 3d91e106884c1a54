import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A store that can be replicated, as it was found.
struct ReplicableStore {
    let position: RecordedPosition
    /// The state of the schema.
    let schema: String
    let tables: [ReplicatedTable]
    let virtualTables: [ReplicatedVirtualTable]

    /// The version of the schema as SQLite counts it.
    private let version: Int64?

    /// Checks a store. Use it before anything else is read with this reader. Throws `ReplicationError`, `HistoryError`.
    ///
    /// - Parameters:
    ///   - known: The store as it was found before. Unchanged tables are not read again.
    ///   - home: The path of the home that the store is a mirror of; nil if it is the home.
    init(_ reader: StoreReader, known: ReplicableStore? = nil, home: FilePath? = nil) throws {
        if reader.isReused {
            self = try Self.unchanged(reader, known)
            return
        }
        let path = home ?? reader.location.path
        func refusal(_ object: String, _ reason: String) -> ReplicationError {
            .unreplicable(object: object, reason: reason, path)
        }
        if try HistorySchema.isReplica(reader) { throw ReplicationError.isReplica(path) }
        if try reader.hasTables("ACHANGE", "ATRANSACTION") { throw HistoryError.ownedByCoreData(path) }
        if let name = try reader.text(
            "SELECT name FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE", [.text(HistorySchema.replicaTable)])
        {
            // A replica has a table of this name.
            throw HistoryError.foreign(name, path)
        }
        position = try RecordedPosition(reader)
        if try position.isOutdated(reader), let table = try RecordedPosition.firstDoubtfulTable(reader) {
            // Nobody but its publisher changes the schema of a mirror.
            guard home == nil else {
                throw StoreError.corrupt(
                    code: 11, message: "changes of \(table) aren't recorded", reader.location.path)
            }
            throw HistoryError.outdated(table: table, path)
        }
        try Self.checkSupport(of: reader.location)
        version = try reader.integer("PRAGMA main.schema_version")
        schema = try RecordedPosition.schemaState(reader)
        if let known, known.schema == schema, known.version == version,
            known.position.identifier == position.identifier,
            known.position.schemaVersion == position.schemaVersion
        {
            (tables, virtualTables) = (known.tables, known.virtualTables)
            return
        }
        let stored = try DatabaseSchema(reader)
        let survey = try ReplicatedTable.survey(stored)
        if let first = survey.unrecorded.first { throw refusal("table \(first.name)", first.reason) }
        tables = survey.tables
        virtualTables = try ReplicatedVirtualTable.all(stored, reader)
        for table in virtualTables {
            if let reason = table.refusal { throw refusal("virtual table \(table.name)", reason) }
        }
        var writes = tables.map {
            (table: $0.name, statements: [RowStatements.insertion($0), RowStatements.probe($0)])
        }
        for table in virtualTables {
            if case .own(let content)? = table.content {
                writes.append((table.name, [RowStatements.insertion(content), RowStatements.probe(content)]))
            } else {
                writes.append((table.name, ["SELECT * FROM main.\(table.name.sqlName)"]))
            }
        }
        if let (table, message) = try Self.firstUnwritable(writes, reader) {
            throw refusal("table \(table)", "only the store's own program can write it: \(message)")
        }
    }

    private init(_ position: RecordedPosition, _ known: ReplicableStore) {
        (self.position, schema, version) = (position, known.schema, known.version)
        (tables, virtualTables) = (known.tables, known.virtualTables)
    }

    private struct NeedsAnotherLook: Error {}

    /// Returns the store if this connection has found it before and it is unchanged. Throws if it must be examined over
    /// another connection, which knows none of the collations that this one has accepted.
    private static func unchanged(_ reader: StoreReader, _ known: ReplicableStore?) throws -> ReplicableStore {
        let position = try RecordedPosition(reader)
        guard let known, try reader.integer("PRAGMA main.schema_version") == known.version,
            position.identifier == known.position.identifier, position.version == known.position.version,
            position.schemaVersion == known.position.schemaVersion, try !position.isOutdated(reader)
        else { throw NeedsAnotherLook() }
        try checkSupport(of: reader.location)
        return ReplicableStore(position, known)
    }

    /// Throws `ReplicationError` if a store has external data files.
    static func checkSupport(of location: StoreLocation) throws {
        guard try location.directory.status(location.name.support) != nil else { return }
        throw ReplicationError.unreplicable(
            object: location.name.support.string,
            reason: "a batch doesn't carry the files of Core Data's external storage", location.path)
    }

    /// Returns the first table that a process without the app's collations and functions can't write.
    private static func firstUnwritable(
        _ writes: [(table: String, statements: [String])], _ reader: StoreReader
    ) throws -> (table: String, message: String)? {
        try reader.withoutUnknownCollations {
            for (table, statements) in writes {
                for sql in statements {
                    do {
                        _ = try reader.prepare(sql)
                    } catch let error as StoreError {
                        return (table, error.sqliteMessage)
                    }
                }
            }
            return nil
        }
    }
}
