import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The row of `GS_REPLICA`, a replica's own state (Documentation/Formats.md, "Replicas").
struct ReplicaState: Equatable {
    let stream: String
    /// The last change that the replica has.
    var position: HistoryToken
    /// The state of the home's schema.
    var schema: String
    /// The highest number in `GS_CHANGE`. Only another writer's rows have higher ones.
    var lastRow: Int64
    /// The SHA-256 of the batch that led here; nil after a snapshot.
    var batch: String?

    init(stream: String, position: HistoryToken, schema: String, lastRow: Int64, batch: String? = nil) {
        (self.stream, self.position, self.schema, self.lastRow) = (stream, position, schema, lastRow)
        self.batch = batch
    }

    /// Returns true if a store is a replica.
    static func exists(in database: SQLiteConnection) throws -> Bool {
        try HistorySchema.isReplica(database)
    }

    /// Reads the state, and checks that nobody but the follower has written to the replica. Throws
    /// `ReplicationError.notAReplica` and `.diverged`.
    ///
    /// - Parameter ignoringWrites: True to read only.
    init(_ database: SQLiteConnection, ignoringWrites: Bool = false) throws {
        guard try Self.exists(in: database) else { throw ReplicationError.notAReplica(database.path) }
        let row = try database.prepare("SELECT stream, token, schema, last_row, diverged, batch FROM main.GS_REPLICA")
        guard try row.step(), let stream = row.text(0), let token = row.text(1).flatMap({ HistoryToken($0) }),
            let schema = row.text(2)
        else { throw ReplicationError.notAReplica(database.path) }
        self.init(stream: stream, position: token, schema: schema, lastRow: row.integer(3), batch: row.text(5))
        if ignoringWrites { return }
        if let names = row.text(4) { throw ReplicationError.diverged(tables: [names], database.path) }
        let written = try tablesOfOthers(database)
        if !written.isEmpty { throw ReplicationError.diverged(tables: written, database.path) }
    }

    /// Returns the tables that another program has written; empty if there is none.
    private func tablesOfOthers(_ database: SQLiteConnection) throws -> [String] {
        let found = try RecordedPosition(database)
        guard found.identifier == position.history else { return ["GS_HISTORY"] }
        if found.lastRow > lastRow { return try RecordedPosition.tables(changedAfter: lastRow, database) }
        guard found.number == position.number, found.nonce == position.nonce else { return ["GS_CHANGE"] }
        guard try found.isOutdated(database) else { return [] }
        if try !RecordedPosition.hasSchema(schema, database) { return ["sqlite_schema"] }
        return try RecordedPosition.firstDoubtfulTable(database).map { [$0] } ?? []
    }

    /// Writes the state into a replica that has the table.
    func write(_ database: SQLiteConnection) throws {
        try database.execute(
            "INSERT OR REPLACE INTO main.GS_REPLICA (id, stream, token, schema, last_row, batch) "
                + "VALUES (1, ?, ?, ?, ?, ?)",
            [
                .text(stream), .text(position.description), .text(schema), .integer(lastRow),
                batch.map(SQLiteValue.text) ?? .null,
            ])
    }

    /// Makes the database in a file of our own a replica. Returns without having committed.
    ///
    /// - Parameter version: The version of the schema that it will have; nil for its own.
    func install(_ database: SQLiteConnection, schemaVersion version: Int64? = nil) throws {
        try database.execute(HistorySchema.replicaCreation)
        try write(database)
        let own = try database.integer("PRAGMA main.schema_version") ?? 0
        try RecordedPosition.adoptSchemaVersion(version ?? own, database)
    }
}
