import CoreDataStore
import MappingModels
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The migration of a staged copy, together with the history that groupstore keeps in it: its triggers are for the schema
/// that they were made for, and are made anew with the new one, in the same copy, so that no moment goes unrecorded.
///
/// A mapping model makes new objects, and with them a new history: no older token is good any more. After an inferred
/// migration the history goes on, with a gap in each of Core Data's tables.
package struct RecordedMigration {
    private let manager: MigrationManager
    private let staged: StoreLocation
    private let store: FilePath?
    private let keeper: StoreLocation
    private let isOriginalArchived: Bool
    private let history: HistoryInstallation

    /// - Parameters:
    ///   - store: The store whose content the copy has: errors name it. Nil where the copy has not all of it.
    ///   - keeper: The store beside which the support folder lies: the copy itself, unless said.
    ///   - isOriginalArchived: Whether the store as it was goes to the archive where something is removed: then external files
    ///     that no object names any more need not be in the copy's folder.
    package init(
        _ manager: MigrationManager, of staged: StoreLocation, copyOf store: FilePath?,
        supportBeside keeper: StoreLocation? = nil, isOriginalArchived: Bool = false
    ) {
        self.manager = manager
        self.staged = staged
        self.store = store
        self.isOriginalArchived = isOriginalArchived
        self.keeper = keeper ?? staged
        history = HistoryInstallation(staged)
    }

    /// Throws as `MigrationManager.migrate` does; the copy is worth nothing then.
    package func run(
        isCancelled: @escaping () -> Bool = { false }, trace: StatementTrace? = nil,
        progress: @escaping MigrationManager.ProgressHandler
    ) throws -> MigrationOutcome {
        guard !manager.steps.isEmpty else { return .none }
        // A copy of a store in WAL mode would leave a log beside it.
        try failing { try StoreWriter(staged.pathForSQLite).execute("PRAGMA journal_mode = DELETE") }
        let isRecorded = try failing { try history.suspend() }
        if isRecorded, makesNewStore { try failing { _ = try history.disable() } }
        var outcome = try manager.migrate(
            staged: staged.pathForSQLite, of: store, supportBeside: keeper.pathForSQLite,
            isOriginalArchived: isOriginalArchived, isCancelled: isCancelled,
            trace: trace,
            progress: progress)
        outcome.remarks = manager.remarks + outcome.remarks
        guard isRecorded else { return outcome }
        guard makesNewStore else {
            try failing { try history.resume(isWritten: isWritten) }
            return outcome
        }
        try failing { _ = try history.enable() }
        outcome.remarks.append("the history is of the older objects, and begins anew")
        return outcome
    }

    private var makesNewStore: Bool {
        manager.steps.contains { if case .custom = $0.method { true } else { false } }
    }

    /// Whether a table may have been written: Core Data's own, its bookkeeping among them; any where an app's stages had
    /// the store.
    private var isWritten: (String) -> Bool {
        guard manager.steps.allSatisfy({ $0.stage == nil }) else { return { _ in true } }
        let models = manager.steps.flatMap { [$0.source, $0.destination] }
        let tables = Set(models.flatMap { StoreLayout($0).tables.map { $0.name.uppercased() } })
        return { table in
            let name = table.uppercased()
            return name.hasPrefix("Z_") || name.hasPrefix("ANSCK") || tables.contains(name)
        }
    }

    private func failing<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let error as StoreError {
            throw MigrationError(error)
        } catch let error as HistoryError {
            throw MigrationError(
                CoreDataError.migration, "the store's history can't follow: \(error)", remedy: error.remedy)
        }
    }
}
