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
    private let store: FilePath?
    private let supportOwner: StoreLocation
    private let isOriginalArchived: Bool
    private let history: HistoryInstallation
    /// True if the copy may become another file, with another inode.
    package var mayReplaceFile = false

    /// - Parameters:
    ///   - store: The store that was copied, which errors name. Nil if the copy is partial.
    ///   - supportOwner: The store that the support folder lies beside; nil for the copy itself.
    ///   - isOriginalArchived: True if the original goes to the archive when something is removed, so that the copy's
    ///     folder need not keep orphaned external files.
    package init(
        _ manager: MigrationManager, of staged: StoreLocation, copyOf store: FilePath?,
        supportBeside supportOwner: StoreLocation? = nil, isOriginalArchived: Bool = false
    ) {
        self.manager = manager
        self.staged = staged
        self.store = store
        self.isOriginalArchived = isOriginalArchived
        self.supportOwner = supportOwner ?? staged
        history = HistoryInstallation(staged)
    }

    /// Migrates the copy. Throws the errors of `MigrationManager.migrate`; the copy is unusable then.
    package func run(
        isCancelled: @escaping () -> Bool = { false }, trace: StatementTrace? = nil,
        progress: @escaping MigrationManager.ProgressHandler
    ) throws -> MigrationOutcome {
        guard !manager.steps.isEmpty else { return .none }
        // A copy of a store in WAL mode would leave a log beside it.
        try translatingErrors { try StoreWriter(staged.pathForSQLite).execute("PRAGMA journal_mode = DELETE") }
        let isRecorded = try translatingErrors { try history.suspend() }
        if isRecorded, makesNewStore { try translatingErrors { _ = try history.disable() } }
        var outcome = try manager.migrate(
            staged: staged.pathForSQLite, of: store, supportBeside: supportOwner.pathForSQLite,
            isOriginalArchived: isOriginalArchived, mayReplaceFile: mayReplaceFile, isCancelled: isCancelled,
            trace: trace,
            progress: progress)
        outcome.remarks = manager.remarks + outcome.remarks
        guard isRecorded else { return outcome }
        guard makesNewStore else {
            try translatingErrors { try history.resume(isWritten: isWritten) }
            return outcome
        }
        try translatingErrors { _ = try history.enable() }
        outcome.remarks.append("the history described the older objects, so it was restarted")
        return outcome
    }

    private var makesNewStore: Bool {
        manager.steps.contains { if case .custom = $0.method { true } else { false } }
    }

    /// Returns true if a table may have been written: all of Core Data's own tables, and any table if an app's stages
    /// ran.
    private var isWritten: (String) -> Bool {
        guard manager.steps.allSatisfy({ $0.stage == nil }) else { return { _ in true } }
        let models = manager.steps.flatMap { [$0.source, $0.destination] }
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
