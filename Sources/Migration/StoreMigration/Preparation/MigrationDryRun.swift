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
    private let manager: MigrationManager

    /// Returns nil if there are no steps, or if a step runs an app's handlers, whose effects outside the store can't be
    /// undone.
    package init?(_ manager: MigrationManager) {
        guard !manager.steps.isEmpty, manager.steps.allSatisfy({ $0.stage == nil }) else { return nil }
        self.manager = manager
    }

    /// Returns true if the trial needs the store's rows. That includes a store whose objects reference external files,
    /// since orphaned and missing files follow from the rows.
    private func needsRows(_ reader: StoreReader) throws -> Bool {
        if manager.options.validation != .none { return true }
        guard manager.steps.count == 1, let step = manager.steps.first, case .inferred = step.method else {
            return true
        }
        if try manager.lossCount()?.isEmpty == false { return true }
        return try ExternalReferences.exist(in: reader, step.source)
    }

    /// Returns the outcome that the migration would report. Throws the errors of `RecordedMigration.run`, and
    /// `SystemError`.
    package func run(on reader: StoreReader) throws -> MigrationOutcome {
        let scratch = try ScratchDirectory()
        guard let name = StoreName("Rehearsal.sqlite") else { return .none }
        let copy = StoreLocation(directory: try Directory(scratch.path), name: name)
        close(try Descriptor(opening: copy.path, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600).release())
        guard try needsRows(reader) else { return try runOnSchema(of: reader, copy) }
        try reader.copy(to: copy.path, isTemporary: true)
        var migration = RecordedMigration(
            manager, of: copy, copyOf: reader.location.path, supportBeside: reader.location)
        migration.mayReplaceFile = true
        return try migration.run { _, _ in }
    }

    /// The tables whose rows every migration reads, and those that describe a history's tables.
    private static let bookkeeping = [
        "Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "GS_HISTORY", "GS_TABLE", "GS_AUTHOR", "GS_SUBSCRIBER",
    ]

    private func runOnSchema(of reader: StoreReader, _ copy: StoreLocation) throws -> MigrationOutcome {
        do { try reader.copySchema(to: copy.path, rowsOf: Self.bookkeeping) } catch is StoreError {
            // The schema has an element that only the store's own program can create; the migration carries it over as
            // is.
            return MigrationOutcome(losses: .none, remarks: manager.remarks)
        }
        do {
            var outcome = try RecordedMigration(manager, of: copy, copyOf: nil).run { _, _ in }
            outcome.remarks += try manager.steps.flatMap { try MigrationManager.notes(ofRowsIn: reader, $0) }
            return outcome
        } catch let error as MigrationError {
            throw error.replacingPath(copy.pathForSQLite, with: reader.location.path)
        }
    }
}
