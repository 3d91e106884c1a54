import CoreDataStore
import MappingModels
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The migration of a staged copy, together with the history that groupstore keeps in it. The history's triggers match
/// one schema, so they are re-created for the new schema in the same copy, and no change goes unrecorded.
///
/// A mapping model creates new objects and thus a new history, which invalidates all older tokens. After an inferred
/// migration the history continues, with a gap in each of Core Data's tables.
package struct RecordedMigration {
    private let manager: MigrationManager
    private let staged: StoreLocation
    private let history: HistoryInstallation

    package init(_ manager: MigrationManager, of staged: StoreLocation) {
        self.manager = manager
        self.staged = staged
        history = HistoryInstallation(staged)
    }

    private var plan: MigrationPlan { manager.plan }

    /// Migrates the copy. Throws the errors of `MigrationManager.migrate`; the copy is unusable then.
    package func run() throws -> MigrationOutcome {
        guard !plan.steps.isEmpty else { return .none }
        // A copy of a store in WAL mode would leave a log beside it.
        try translatingErrors { try StoreWriter(staged.pathForSQLite).execute("PRAGMA journal_mode = DELETE") }
        let isRecorded = try translatingErrors { try history.suspend() }
        if isRecorded, plan.makesNewObjects { try translatingErrors { _ = try history.disable() } }
        var outcome = try manager.migrate(staged: staged.pathForSQLite)
        outcome.remarks = plan.remarks + outcome.remarks
        guard isRecorded else { return outcome }
        guard plan.makesNewObjects else {
            try translatingErrors { try history.resume(isWritten: isWritten) }
            return outcome
        }
        try translatingErrors { _ = try history.enable() }
        outcome.remarks.append("the history described the older objects, so it was restarted")
        return outcome
    }

    /// Returns true if a table may have been written: all of Core Data's own tables, and any table if an app's stages
    /// ran.
    private var isWritten: (String) -> Bool {
        guard plan.steps.allSatisfy({ $0.stage == nil }) else { return { _ in true } }
        let models = plan.steps.flatMap { [$0.source, $0.destination] }
        let tables = Set(models.flatMap { StoreLayout($0).tables.map { $0.name.uppercased() } })
        return { table in
            let name = table.uppercased()
            return name.hasPrefix("Z_") || FrameworkTables.contains(name) || tables.contains(name)
        }
    }

    private func translatingErrors<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let error as StoreError {
            throw MigrationError(error)
        } catch let error as HistoryError {
            throw MigrationError(error, context: "the store's history can't be migrated: ")
        }
    }
}
