import GRDB
import GroupStore

/// Tells a pool's observers of what other processes commit.
///
/// Nothing is written to the store for it, and no lock is asked for: GRDB is told of changes within a transaction that
/// does nothing (`BEGIN DEFERRED`), on the pool's writer, in its turn.
enum ExternalChanges {
    /// What an event means to an observer; nil for those that change nothing.
    static func region(of change: StoreChange) -> Region? {
        switch change {
        case .changed(let tables?, isComplete: true, _, _):
            // Another schema may give each table another meaning.
            tables.contains { $0.lowercased().hasPrefix("sqlite_") } ? .everything : .tables(tables)
        case .changed, .relocated, .migrated, .reset: .everything
        case .relocating, .abandoned, .disconnected, .notServed, .connected: nil
        }
    }

    enum Region: Equatable {
        case tables([String])
        case everything
    }

    /// Throws GRDB's errors.
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
                        // One of them is not known here: the schema is another one by now.
                        database.clearSchemaCache()
                        try database.notifyChanges(in: .fullDatabase)
                    }
                }
                return .commit
            }
        }
    }
}
