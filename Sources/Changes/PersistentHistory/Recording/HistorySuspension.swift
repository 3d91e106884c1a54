import SQLiteStore

/// Suspends a history while something that ignores triggers, such as a migration, changes the store's schema. No other
/// process may have the store open between `suspend` and `resume`.
extension HistoryInstallation {
    /// Updates the history to the current schema, then removes the triggers; the tables stay. Returns false if the
    /// store keeps no groupstore history. Throws as `enable` does.
    package func suspend() throws -> Bool {
        try write { database in
            guard try HistorySchema.isKept(in: database) else { return false }
            try HistoryTables.checkVersion(database, location.path)
            try HistoryTables.refuseReplica(database, location.path)
            // Changes that went unrecorded until now must get their gap first.
            var update = try HistoryUpdate(database, location.path, isNew: false)
            try update.run()
            try HistoryTables.removeTriggers(database)
            return true
        }
    }

    /// Resumes recording after `suspend`. Tables that may have been written meanwhile, and tables that are gone, get a
    /// gap. Throws as `enable` does.
    ///
    /// - Parameter isWritten: Returns whether the table of this name may have other rows or values than before.
    package func resume(isWritten: (String) -> Bool) throws {
        try withoutActuallyEscaping(isWritten) { isWritten in
            try write { database in
                var update = try HistoryUpdate(database, location.path, isNew: false, isUnwritten: { !isWritten($0) })
                try update.run()
            }
        }
    }
}
