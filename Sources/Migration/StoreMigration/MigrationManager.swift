import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import MappingModels
import MigrationAudit
import SQLiteStore
import SystemPackage

/// Performs a plan on a staged copy of a store. Corresponds to `NSMigrationManager` and the progressive migration that
/// apps build around it.
package struct MigrationManager {
    /// Receives the progress: a fraction from 0 to 1 and the current activity.
    package typealias ProgressHandler = (_ fraction: Double, _ doing: String) -> Void

    package let plan: MigrationPlan
    /// The store that was copied, which errors name, since users don't know the copy. Nil if the copy is partial.
    package var store: FilePath?
    /// The database that the support folder lies beside; nil for the copy itself.
    package var supportOwner: FilePath?
    /// True if the original goes to the archive when something is removed, so that the copy's folder need not keep
    /// orphaned external files.
    package var isOriginalArchived = false
    /// True if the copy may become another file, with another inode.
    package var mayReplaceFile = false
    /// Polled throughout the migration.
    package var isCancelled: () -> Bool = { false }
    /// Receives each SQL statement that changes the copy; nil for none.
    package var trace: StatementTrace?
    /// Called with each fault that a validation finds; without it, the outcome's remarks name the faults.
    package var faultHandler: (@Sendable (InvalidContent.Fault) -> Void)?
    package var progress: ProgressHandler = { _, _ in }

    package init(_ plan: MigrationPlan) { self.plan = plan }

    /// Migrates the database file at `path`, a private copy with the first step's source version. If this throws
    /// `MigrationError`, the copy is unusable and must be discarded. What the steps remove is counted when they are
    /// done, by comparing the copy with the store.
    package func migrate(staged path: FilePath) throws -> MigrationOutcome {
        do { return try performSteps(at: path) } catch let error as MigrationError {
            throw store.map { error.replacingPath(path, with: $0) } ?? error
        }
    }

    private func performSteps(at path: FilePath) throws -> MigrationOutcome {
        guard let first = plan.steps.first, let last = plan.steps.last else { return .none }
        let supportOwner = supportOwner ?? path
        var notes: [String] = []
        do {
            let count = try plan.lossCount
            // What may be lost, or what an app's own code changes, is compared with the state before all of it.
            let earlier = try EarlierState(of: path, madeFrom: store)
            let orphans = try OrphanedFiles(StoreWriter(staged: path), beside: supportOwner, first.source)
            var invalid = InvalidContent()
            var lost: [RemovedContent.Loss] = []
            for (index, step) in plan.steps.enumerated() {
                let share = 1 / Double(plan.steps.count)
                var manager = self
                manager.progress = { progress((Double(index) + $0) * share, $1) }
                let outcome = try manager.perform(
                    step, at: path, since: index == 0 && step.stage == nil ? earlier : nil)
                invalid.faults += outcome.deniedDeletions
                lost += outcome.losses.all
                notes += outcome.remarks
            }
            if let count, !count.isEmpty {
                progress(1, "counting what is removed")
                lost += try earlier.read { try count.losses(before: $0, after: path, isCancelled: isCancelled) }
            }
            let losses = RemovedContent(lost, from: first.source)
            let copy = try StoreWriter(staged: path)
            if plan.options.validation != .none {
                progress(1, "validating")
                copy.interrupt(when: isCancelled)
                invalid.faults += try ObjectValidation(copy, last.destination).faults()
                notes += try handle(invalid)
            }
            notes += try ExternalReferences(copy, beside: supportOwner, last.destination).missing().map(\.sentence)
            // Files beside the copy are copies, and a store that loses content is kept in the archive.
            let orphanedFilesNote = try orphans.cleanUp(
                copy, beside: supportOwner, last.destination,
                removing: isOriginalArchived && supportOwner == path && !losses.isEmpty)
            return MigrationOutcome(losses: losses, remarks: notes, orphanedFilesNote: orphanedFilesNote)
        } catch let error as StoreError {
            // The store has changed in the meantime: the caller makes a new copy.
            if case .busy(let changed, _, _) = error, changed == store { throw error }
            throw MigrationError(error)
        } catch let error as SystemError {
            throw MigrationError(error, at: path)
        }
    }

    private func perform(
        _ step: MigrationStep, at path: FilePath, since earlier: EarlierState?
    ) throws -> MigrationOutcome {
        let options = plan.options
        switch step.method {
        case .inferred(let mapping):
            let store = try StoreWriter(staged: path)
            if let trace { store.trace(level: trace.level, trace.report) }
            let progress = MigrationProgress(total: try store.objectCount(), progress)
            store.interrupt {
                progress.tick()
                return isCancelled()
            }
            try run(step.stage?.willMigrate, on: store, of: step.source)
            let denied =
                options.validation == .none ? [] : try DeniedDeletions(store, step)?.faults() ?? []
            let audit = try StepAudit(step, of: path, since: earlier)
            store.record(audit.writes)
            let migration = try store.transaction(.deferred) {
                var migration = try LightweightMigration(
                    store, from: step.source, to: step.destination, mapping: mapping, options: options,
                    progress: progress)
                try migration.run()
                return migration
            }
            try audit.check(isCancelled: isCancelled)
            try run(step.stage?.didMigrate, on: store, of: step.destination)
            progress.finish()
            return MigrationOutcome(
                losses: .none, remarks: migration.notes, deniedDeletions: denied)
        case .custom(let mapping):
            let audit = try StepAudit(step, of: path, since: earlier)
            let excluded = try excludedContent(of: path, step)
            let comparison = audit.earlyComparison()
            defer { comparison.stop() }
            let migration = try perform(mapping, in: step, at: path, comparison: comparison)
            let former = mayReplaceFile ? path.appending(suffix: Self.formerSuffix) : nil
            let writeback = EarlyWriteback(of: path, removing: former)
            defer { writeback.finish() }
            try audit.check(after: comparison, isCancelled: isCancelled)
            return MigrationOutcome(
                losses: RemovedContent(try excluded.completed(with: migration.excludedCounts)),
                remarks: migration.notes, deniedDeletions: migration.deniedDeletions)
        }
    }

    /// Counts the objects that a mapping model's conditions leave out, while the copy still has them.
    private func excludedContent(of path: FilePath, _ step: MigrationStep) throws -> ExcludedContent {
        do { return try MappedObjects(StoreWriter(staged: path), step)?.counted() ?? ExcludedContent() } catch let error
            as MappingModelError
        {
            throw MigrationError(error)
        }
    }

    /// Reports all faults. Returns remarks about them, or throws `MigrationError` if they refuse the migration.
    private func handle(_ invalid: InvalidContent) throws -> [String] {
        guard !invalid.isEmpty else { return [] }
        for fault in invalid.faults { faultHandler?(fault) }
        let number = invalid.count == 1 ? "1 fault" : "\(invalid.count) faults"
        let sentence = "\(number) of validation: objects that the newer model's rules don't allow"
        let shortened = invalid.faults.map { $0.sentence(first: 10) }
        guard plan.options.validation == .refuse else { return [sentence] + (faultHandler == nil ? shortened : []) }
        throw MigrationError(
            CoreDataError.multipleValidationFaults, sentence,
            remedy: "change those objects first, or allow them: --validate report",
            findings: invalid.faults.map { fault in
                MigrationFinding(
                    .error, code: fault.code, entity: fault.entity, property: fault.property,
                    String(fault.sentence(first: 10).dropFirst(fault.entity.count + fault.property.count + 3)),
                    remedy: "change those objects, or the rule in the model")
            })
    }

    /// Runs a stage's handler in one transaction.
    private func run(
        _ handler: MigrationStage.Handler?, on store: StoreWriter, of model: ManagedObjectModel
    ) throws {
        guard let handler else { return }
        try store.transaction(.deferred) {
            do { try handler(StageStore(store, model)) } catch let error as MigrationError { throw error } catch {
                if let error = error as? StoreError { throw error }
                throw MigrationError(
                    CoreDataError.migration, "a stage of the migration failed: \(error)",
                    remedy: "see the stage's handler")
            }
        }
    }

    /// The suffix of the copy's name for the new store that a mapping model fills beside it.
    static let newStoreSuffix = ".mapped"

    /// The suffix of the name that the copy gets when the new store replaces it.
    static let formerSuffix = ".former"

    /// The result of filling a new store. It holds no connection, since the store's file is copied next.
    private typealias Filled = (
        notes: [String], deniedDeletions: [InvalidContent.Fault], excludedCounts: [String: Int64]
    )

    /// Runs a mapping model into a new store. That replaces the staged file; or, if that has to keep the inode by which
    /// the code that staged it identifies it, its bytes are copied over the file's.
    private func perform(
        _ mapping: MappingModel, in step: MigrationStep, at path: FilePath, comparison: EarlyComparison
    ) throws -> Filled {
        let newStore = path.appending(suffix: Self.newStoreSuffix)
        defer { _ = newStore.withPlatformString { unlink($0) } }
        do {
            _ = newStore.withPlatformString { unlink($0) }
            let filled = try fill(newStore, by: mapping, in: step, from: path, comparison: comparison)
            if mayReplaceFile {
                try StagedFile.replace(path, with: newStore, renamingTo: path.appending(suffix: Self.formerSuffix))
            } else {
                try StagedFile.replaceBytes(of: path, with: newStore)
            }
            return filled
        } catch let error as MappingModelError {
            let code = error.code == .unknownPolicy ? CoreDataError.entityMigrationPolicy : CoreDataError.migration
            throw MigrationError(error, code: code)
        } catch let error as SystemError {
            throw MigrationError(error, at: path)
        }
    }

    private func fill(
        _ newStore: FilePath, by mapping: MappingModel, in step: MigrationStep, from path: FilePath,
        comparison: EarlyComparison
    ) throws -> Filled {
        let store = try StoreWriter(newStore, creating: true)
        if let trace { store.trace(level: trace.level, trace.report) }
        store.interrupt(when: isCancelled)
        var migration = try MappingMigration(
            mapping, into: store, from: path, supportBeside: supportOwner ?? path, of: step.source,
            to: step.destination, policies: plan.policies, progress)
        if plan.options.validation != .none { migration.findsDeniedDeletions(to: step.destinationName) }
        migration.comparison = comparison
        try migration.run()
        return (migration.notes, migration.deniedDeletions, migration.excludedCounts)
    }
}
