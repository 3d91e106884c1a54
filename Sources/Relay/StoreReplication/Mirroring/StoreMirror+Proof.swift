import PersistentHistory
import RowShadow
import SQLiteStore

/// The proof of a copy, which is made before anybody gets a snapshot of it.
extension StoreMirror {
    /// Proves that the copy has the home's schema and rows as of its position, each value and type, and sound indexes.
    /// Call it before a snapshot is made of the copy.
    ///
    /// Throws `StoreHistory.Discontinuity.epoch` if that isn't so, and the copy was made anew; and as `advance`.
    package func prove() throws {
        try Self.translating(home.path) {
            if revision != follower.shadow.revision { try update() }
            do { try follower.shadow.verify() } catch RowShadowError.damaged {
                try follower.remake()
                try update()
            }
            if try isProven() { return }
            try make(.damaged)
            revision = follower.shadow.revision
            throw StoreHistory.Discontinuity.epoch
        }
    }

    private func isProven() throws -> Bool {
        do {
            let connection = try connectWithHome()
            let state = HomeState(connection)
            guard try state.hasSameSchema(), try state.hasSameSettings() else { return false }
            let schema = try DatabaseSchema(connection)
            for table in ReplicatedTable.stored(schema) {
                guard try MirrorComparison(table, schema).areEqual(connection) else { return false }
            }
            // What this library takes for damage at home is at home.
            return try Snapshot.firstFinding(connection, "main.integrity_check") == nil
                || Snapshot.firstFinding(connection, "\(HomeState.name).integrity_check") != nil
        } catch let error as StoreError where error.isCorruption { return false }
    }
}
