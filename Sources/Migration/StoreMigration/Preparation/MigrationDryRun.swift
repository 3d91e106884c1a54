import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A trial migration on a private copy of the store under `$TMPDIR` or `/tmp`, so that `model check` and a dry run
/// report the same as the migration itself.
///
/// The copy includes the store's rows if they matter: what is lost is counted by comparing both stores, and the input
/// of a later step or of a mapping model can't be derived from the store's current content. For one inferred step that
/// can lose nothing, `StoreObstacles` judges the rows, and the copy has the schema only.
package struct MigrationDryRun {
    private let plan: MigrationPlan

    /// Returns nil if there are no steps, or if a step runs an app's handlers, whose effects outside the store can't be
    /// undone.
    package init?(_ plan: MigrationPlan) {
        guard !plan.steps.isEmpty, plan.steps.allSatisfy({ $0.stage == nil }) else { return nil }
        self.plan = plan
    }

    /// Returns true if the trial needs the store's rows. That includes a store whose objects reference external files,
    /// since orphaned and missing files follow from the rows.
    private func needsRows(_ reader: StoreReader) throws -> Bool {
        if plan.options.validation != .none || plan.mayRemoveContent { return true }
        guard plan.steps.count == 1, let step = plan.steps.first, step.isInferred else { return true }
        return try ExternalReferences.exist(in: reader, step.source)
    }

    /// Returns the outcome that the migration would report. Throws the errors of `RecordedMigration.run`, and
    /// `SystemError`.
    ///
    /// - Parameter faultHandler: Called with each fault that a validation finds.
    package func run(
        on reader: StoreReader, faultHandler: (@Sendable (InvalidContent.Fault) -> Void)? = nil
    ) throws -> MigrationOutcome {
        let scratch = try ScratchDirectory()
        guard let name = StoreName("Rehearsal.sqlite") else { return .none }
        let copy = StoreLocation(directory: try Directory(scratch.path), name: name)
        close(try Descriptor(opening: copy.path, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600).release())
        guard try needsRows(reader) else { return try runOnSchema(of: reader, copy) }
        try reader.copy(to: copy.path, isTemporary: true)
        var manager = MigrationManager(plan)
        manager.store = reader.location.path
        manager.supportOwner = reader.location.pathForSQLite
        manager.mayReplaceFile = true
        manager.faultHandler = faultHandler
        return try RecordedMigration(manager, of: copy).run()
    }

    /// The tables whose rows every migration reads, and those that describe a history's tables.
    private static let bookkeeping = [
        "Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "GS_HISTORY", "GS_TABLE", "GS_AUTHOR", "GS_SUBSCRIBER",
    ]

    private func runOnSchema(of reader: StoreReader, _ copy: StoreLocation) throws -> MigrationOutcome {
        do { try reader.copySchema(to: copy.path, rowsOf: Self.bookkeeping) } catch is StoreError {
            // The schema has an element that only the store's own program can create; the migration carries it over as
            // is.
            return MigrationOutcome(losses: .none, remarks: plan.remarks)
        }
        do {
            var outcome = try RecordedMigration(MigrationManager(plan), of: copy).run()
            outcome.remarks += try plan.steps.flatMap { try $0.notes(ofRowsIn: reader) }
            return outcome
        } catch let error as MigrationError {
            throw error.replacingPath(copy.pathForSQLite, with: reader.location.path)
        }
    }
}
