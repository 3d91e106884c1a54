import GRDB
import GroupStore

/// Notifies a connection's observers of other processes' commits.
///
/// Nothing is written to the store, and no lock is acquired: GRDB is notified within a transaction that does nothing
/// (`BEGIN DEFERRED`), on the writer, in its turn.
enum ExternalChanges {
    /// Returns the region that an event affects; nil if it changes nothing.
    static func region(of change: StoreChange) -> Region? {
        switch change {
        case .changed(let tables?, isComplete: true, _, _):
            // A changed schema may give each table another meaning.
            tables.contains { $0.lowercased().hasPrefix("sqlite_") } ? .everything : .tables(tables)
        case .changed, .relocated, .migrated, .reset: .everything
        case .branchChanged, .relocating, .progress, .abandoned, .hazard, .hazardOver, .disconnected, .notServed,
            .connected:
            nil
        }
    }

    enum Region: Equatable {
        case tables([String])
        case everything
    }

    /// Notifies the connection's observers. Throws GRDB's errors.
    static func notify(_ region: Region, _ connection: some DatabaseWriter) async throws {
        try await connection.writeWithoutTransaction { try notify(region, $0) }
    }

    /// Notifies the connection's observers of everything, in its turn. Errors are ignored: a connection that can't
    /// begin a transaction reports that to whoever uses it next.
    static func notifyLater(_ connection: some DatabaseWriter) {
        connection.asyncWriteWithoutTransaction { try? notify(.everything, $0) }
    }

    private static func notify(_ region: Region, _ database: Database) throws {
        try database.inTransaction(.deferred) {
            switch region {
            case .everything:
                database.clearSchemaCache()
                try database.notifyChanges(in: .fullDatabase)
            case .tables(let names):
                do {
                    for name in names { try database.notifyChanges(in: Table(name)) }
                } catch {
                    // One of the tables isn't known here, so the schema has changed.
                    database.clearSchemaCache()
                    try database.notifyChanges(in: .fullDatabase)
                }
            }
            return .commit
        }
    }
}
