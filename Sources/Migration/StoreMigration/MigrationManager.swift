import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import MappingModels
import MigrationAudit
import SQLiteStore
import SystemPackage

/// One step of a migration, from one version of the model to another.
///
///     let mapping = try MappingModel.inferred(from: old, to: new)
///     let step = MigrationStep(from: old, to: new, named: "Notes 2", by: .inferred(mapping))
public struct MigrationStep: Sendable {
    /// The way a step migrates objects.
    public enum Method: Equatable, Sendable {
        /// A lightweight migration in place, by a mapping inferred from the models. Objects keep their identity.
        case inferred(MappingModel)
        /// A migration by a mapping model, which creates new objects.
        case custom(MappingModel)
    }

    /// The older model.
    public let source: ManagedObjectModel
    /// The newer model.
    public let destination: ManagedObjectModel
    /// The developers' name for the newer version, such as `Notes 2`.
    public let destinationName: String
    /// The way objects are migrated.
    public let method: Method
    /// The handlers to run before and after the step; nil unless the step is a custom stage.
    public var stage: MigrationStageHandlers?
    /// The file names of the mapping models in use, joined by ` + `; nil if the mapping is inferred.
    public var mappingName: String?
    /// Remarks for a person to read before the step runs.
    package var remarks: [String] = []

    /// Creates a step without handlers.
    public init(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String, by method: Method
    ) {
        self.source = source
        self.destination = destination
        destinationName = name
        self.method = method
    }
}

/// A migration of a store through successive versions of its model. Corresponds to `NSMigrationManager` and the
/// progressive migration that apps build around it.
///
///     let file = try MappingModelFile(reading: "Zoo.mapping.yaml")
///     var manager = try MigrationManager(from: old, to: new, named: "Zoo 2", mappings: [file])
///     manager.policies = ["ZooApp.AnimalPolicy": AnimalPolicy.self]
public struct MigrationManager: Sendable {
    /// Receives the progress: a fraction from 0 to 1 and the current activity.
    public typealias ProgressHandler = (_ fraction: Double, _ doing: String) -> Void

    /// The steps in the order they run; empty if the store already has the destination's version.
    public let steps: [MigrationStep]
    /// The permissions of the migration.
    public var options: MigrationOptions
    /// The policy classes, by the names that mapping models use.
    public var policies: EntityMigrationPolicies = [:]
    /// Called with each fault that `options.validation` finds; without it, the outcome's remarks name the faults.
    package var faultHandler: (@Sendable (InvalidContent.Fault) -> Void)?

    /// Creates a migration from explicit steps.
    public init(steps: [MigrationStep], options: MigrationOptions = MigrationOptions()) {
        self.steps = steps
        self.options = options
    }

    /// Finds the fewest steps from one version to another. A single step suffices if a mapping model fits or a mapping
    /// can be inferred; otherwise the steps lead through intermediate versions.
    ///
    /// - Parameters:
    ///   - source: The older model.
    ///   - sourceName: The older version's name, to match mapping models that have no hashes; nil if unknown.
    ///   - destination: The newer model.
    ///   - name: The newer version's name.
    ///   - versions: The intermediate versions, the oldest first.
    ///   - mappings: The available mapping models. One that fits takes precedence over inference.
    ///   - options: The permissions of the migration.
    /// - Throws: ``MigrationError`` with every reason if there is no path.
    public init(
        from source: ManagedObjectModel, sourceName: String? = nil, to destination: ManagedObjectModel,
        named name: String, through versions: [(name: String, model: ManagedObjectModel)] = [],
        mappings: [MappingModelFile] = [], options: MigrationOptions = MigrationOptions()
    ) throws {
        self.options = options
        try destination.checkLayout()
        guard source.entityVersionHashesByName != destination.entityVersionHashesByName else {
            steps = []
            return
        }
        let path = try MigrationPath.shortest(
            from: (sourceName, source), to: (name, destination), through: versions, using: MigrationStepCache(mappings))
        guard let path else {
            do { _ = try MappingModel.inferred(from: source, to: destination) } catch {
                throw (error as? MappingInferenceError).map { MigrationError($0) } ?? error
            }
            throw MigrationError(
                CoreDataError.missingMappingModel, CoreDataError.reason(CoreDataError.missingMappingModel),
                remedy: "write a mapping model")
        }
        var steps: [MigrationStep] = []
        var model = source
        for step in path {
            steps.append(step.migrationStep(from: model))
            model = step.model
        }
        self.steps = steps
    }

    /// True if the first step fills a new store, so that the staged copy is removed.
    package var replacesCopy: Bool { if case .custom? = steps.first?.method { true } else { false } }

    /// Remarks on all steps for a person to read before they run.
    package var remarks: [String] { steps.flatMap(\.remarks) }

    /// Creates the steps of a staged migration, with an inferred mapping from each stage to the next.
    ///
    /// - Parameters:
    ///   - source: The older model.
    ///   - destination: The newer model.
    ///   - name: The newer version's name.
    ///   - stages: The stages from the oldest version to the newest.
    ///   - versions: The models whose checksums the stages name.
    ///   - options: The permissions of the migration.
    /// - Throws: ``MigrationError``: 134504 for a version that no stage or no model has, 134506 for a migration
    ///   backwards, 134140 if a mapping can't be inferred.
    public init(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String,
        stages: [MigrationStage], among versions: [(name: String, model: ManagedObjectModel)],
        options: MigrationOptions = MigrationOptions()
    ) throws {
        let steps = try StagedMigration(stages).steps(from: source, to: destination, named: name, among: versions)
        self.init(steps: steps, options: options)
    }

    /// Migrates the database file at `path`, a private copy with the first step's source version. If this throws, the
    /// copy is unusable and must be discarded. What the steps remove is counted when they are done, by comparing the
    /// copy with the store.
    ///
    /// Throws `MigrationError`, with the path of `store` in the message, since users don't know the copy.
    ///
    /// - Parameters:
    ///   - store: The store that the copy was made from.
    ///   - supportOwner: The database that the support folder lies beside; nil for the copy itself.
    ///   - isOriginalArchived: True if the original goes to the archive when something is removed.
    ///   - mayReplaceFile: True if the copy may become another file, with another inode.
    ///   - isCancelled: Polled throughout the migration.
    package func migrate(
        staged path: FilePath, of store: FilePath? = nil, supportBeside supportOwner: FilePath? = nil,
        isOriginalArchived: Bool = false, mayReplaceFile: Bool = false, isCancelled: @escaping () -> Bool = { false },
        trace: StatementTrace? = nil,
        progress report: @escaping ProgressHandler = { _, _ in }
    ) throws -> MigrationOutcome {
        do {
            return try performSteps(
                at: path, of: store, supportBeside: supportOwner ?? path, isOriginalArchived: isOriginalArchived,
                mayReplaceFile: mayReplaceFile, isCancelled: isCancelled, trace: trace, progress: report)
        } catch let error as MigrationError {
            throw store.map { error.replacingPath(path, with: $0) } ?? error
        }
    }

    private func performSteps(
        at path: FilePath, of store: FilePath?, supportBeside supportOwner: FilePath, isOriginalArchived: Bool,
        mayReplaceFile: Bool, isCancelled: @escaping () -> Bool, trace: StatementTrace?,
        progress report: @escaping ProgressHandler
    ) throws -> MigrationOutcome {
        var notes: [String] = []
        do {
            let count = try lossCount()
            // What may be lost, or what an app's own code changes, is compared with the state before all of it.
            let first = try steps.first.map { _ in try EarlierState(of: path, madeFrom: store) }
            let orphans = try steps.first.map { first in
                try OrphanedFiles(StoreWriter(staged: path), beside: supportOwner, first.source)
            }
            var invalid = InvalidContent()
            var lost: [RemovedContent.Loss] = []
            for (index, step) in steps.enumerated() {
                let share = 1 / Double(steps.count)
                let outcome = try perform(
                    step, at: path, since: index == 0 && step.stage == nil ? first : nil,
                    supportBeside: supportOwner, mayReplaceFile: mayReplaceFile, isCancelled: isCancelled, trace: trace
                ) { fraction, doing in
                    report((Double(index) + fraction) * share, doing)
                }
                invalid.faults += outcome.deniedDeletions
                lost += outcome.losses.all
                notes += outcome.remarks
            }
            if let count, !count.isEmpty, let first {
                report(1, "counting what is removed")
                lost += try first.read { try count.losses(before: $0, after: path, isCancelled: isCancelled) }
            }
            let losses = steps.first.map { RemovedContent(lost, from: $0.source) } ?? .none
            var orphanedFilesNote: String?
            if let last = steps.last {
                let store = try StoreWriter(staged: path)
                if options.validation != .none {
                    report(1, "validating")
                    store.interrupt(when: isCancelled)
                    invalid.faults += try ObjectValidation(store, last.destination).faults()
                    notes += try handle(invalid)
                }
                notes += try ExternalReferences(store, beside: supportOwner, last.destination).missing().map(\.sentence)
                // Files beside the copy are copies, and a store that loses content is kept in the archive.
                orphanedFilesNote = try orphans?.cleanUp(
                    store, beside: supportOwner, last.destination,
                    removing: isOriginalArchived && supportOwner == path && !losses.isEmpty)
            }
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
        _ step: MigrationStep, at path: FilePath, since earlier: EarlierState?,
        supportBeside supportOwner: FilePath, mayReplaceFile: Bool, isCancelled: @escaping () -> Bool,
        trace: StatementTrace?, progress report: @escaping ProgressHandler
    ) throws -> MigrationOutcome {
        switch step.method {
        case .inferred(let mapping):
            let store = try StoreWriter(staged: path)
            if let trace { store.trace(level: trace.level, trace.report) }
            let progress = MigrationProgress(total: try store.objectCount(), report)
            store.interrupt {
                progress.tick()
                return isCancelled()
            }
            try run(step.stage?.willMigrate, on: store, of: step.source)
            let denied =
                options.validation == .none ? [] : try DeniedDeletions(store, step)?.faults() ?? []
            let audit = try StepAudit(of: path, since: earlier)
            store.record(audit.writes)
            let migration = try store.transaction(.deferred) {
                var migration = try LightweightMigration(
                    store, from: step.source, to: step.destination, mapping: mapping, options: options,
                    progress: progress)
                try migration.run()
                return migration
            }
            try audit.check(step, isCancelled: isCancelled)
            try run(step.stage?.didMigrate, on: store, of: step.destination)
            progress.finish()
            return MigrationOutcome(
                losses: .none, remarks: migration.notes, deniedDeletions: denied)
        case .custom(let mapping):
            let audit = try StepAudit(of: path, since: earlier)
            let excluded = try excludedContent(of: path, step)
            let comparison = audit.earlyComparison(step)
            defer { comparison.stop() }
            let migration = try perform(
                mapping, in: step, at: path, supportBeside: supportOwner, mayReplaceFile: mayReplaceFile,
                comparison: comparison, isCancelled: isCancelled, trace: trace, progress: report)
            let former = mayReplaceFile ? path.appending(suffix: Self.formerSuffix) : nil
            let writeback = EarlyWriteback(of: path, removing: former)
            defer { writeback.finish() }
            try audit.check(step, after: comparison, isCancelled: isCancelled)
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
        guard options.validation == .refuse else { return [sentence] + (faultHandler == nil ? shortened : []) }
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

    /// Runs a mapping model into a new store. That replaces the staged file; or, if that has to keep the inode by which
    /// the code that staged it identifies it, its bytes are copied over the file's.
    private func perform(
        _ mapping: MappingModel, in step: MigrationStep, at path: FilePath, supportBeside supportOwner: FilePath,
        mayReplaceFile: Bool, comparison: EarlyComparison, isCancelled: @escaping () -> Bool, trace: StatementTrace?,
        progress report: @escaping ProgressHandler
    ) throws -> (notes: [String], deniedDeletions: [InvalidContent.Fault], excludedCounts: [String: Int64]) {
        let newStore = path.appending(suffix: Self.newStoreSuffix)
        defer { _ = newStore.withPlatformString { unlink($0) } }
        do {
            _ = newStore.withPlatformString { unlink($0) }
            let filled = try fill(
                newStore, by: mapping, in: step, from: path, supportBeside: supportOwner, comparison: comparison,
                isCancelled: isCancelled, trace: trace, progress: report)
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
        supportBeside supportOwner: FilePath, comparison: EarlyComparison, isCancelled: @escaping () -> Bool,
        trace: StatementTrace?, progress report: @escaping ProgressHandler
    ) throws -> (notes: [String], deniedDeletions: [InvalidContent.Fault], excludedCounts: [String: Int64]) {
        let store = try StoreWriter(newStore, creating: true)
        if let trace { store.trace(level: trace.level, trace.report) }
        store.interrupt(when: isCancelled)
        var migration = try MappingMigration(
            mapping, into: store, from: path, supportBeside: supportOwner, of: step.source, to: step.destination,
            policies: policies, report)
        if options.validation != .none { migration.findsDeniedDeletions(to: step.destinationName) }
        migration.comparison = comparison
        try migration.run()
        return (migration.notes, migration.deniedDeletions, migration.excludedCounts)
    }
}
