import GRDB
import GroupStore

/// Notifies a pool's observers of other processes' commits.
///
/// Nothing is written to the store, and no lock is acquired: GRDB is notified within a transaction that does nothing
/// (`BEGIN DEFERRED`), on the pool's writer, in its turn.
enum ExternalChanges {
    /// Returns the region that an event affects; nil if it changes nothing.
    static func region(of change: StoreChange) -> Region? {
        switch change {
        case .changed(let tables?, isComplete: true, _, _):
            // A changed schema may give each table another meaning.
            tables.contains { $0.lowercased().hasPrefix("sqlite_") } ? .everything : .tables(tables)
        case .changed, .relocated, .migrated, .reset: .everything
        case .relocating, .abandoned, .disconnected, .notServed, .connected: nil
        }
    }

    enum Region: Equatable {
        case tables([String])
        case everything
    }

    /// Notifies the pool's observers. Throws GRDB's errors.
    static func notify(_ region: Region, _ pool: DatabasePool) async throws {
        try await pool.writeWithoutTransaction { database in
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
}
