import GRDB
import SQLiteStore

/// A history while its store's schema is made over by somebody who doesn't look at triggers, such as a migration: taken
/// out before, and afterwards made to record again. Nobody else may have the store open in between.
extension HistoryInstallation {
    /// Follows the schema as it is, then takes the triggers out; the tables stay. False where the store keeps no history
    /// of ours. Throws as `enable` does.
    package func suspend() throws -> Bool {
        try write { database in
            guard try HistoryTables.exist(database) else { return false }
            try HistoryTables.checkVersion(database, location.path)
            // What went unrecorded before must not be taken for recorded.
            var update = try HistoryUpdate(database, location.path, isNew: false)
            try update.run()
            for trigger in try HistoryTables.triggers(database) {
                try database.execute(sql: "DROP TRIGGER \(StoreTable.quote(trigger.name))")
            }
            return true
        }
    }

    /// Records again after `suspend`. Tables that may have been written meanwhile, and those that are gone, get a gap.
    /// Throws as `enable` does.
    ///
    /// - Parameter isWritten: Whether the table of this name may have other rows than before, or other values in them.
    package func resume(isWritten: (String) -> Bool) throws {
        try withoutActuallyEscaping(isWritten) { isWritten in
            try write { database in
                var update = try HistoryUpdate(database, location.path, isNew: false, isUnwritten: { !isWritten($0) })
                try update.run()
            }
        }
    }
}
