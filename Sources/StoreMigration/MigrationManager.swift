import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

/// One step of a migration: from one version of the model to another.
public struct MigrationStep: Sendable {
    public enum Method: Equatable, Sendable {
        /// By a mapping that follows from the models.
        case inferred(MappingModel)
        /// By a mapping model, which makes new objects.
        case custom(MappingModel)
    }

    public let source: ManagedObjectModel
    public let destination: ManagedObjectModel
    /// What developers call the version.
    public let destinationName: String
    public let method: Method
    /// What is done before and after; nil where it isn't a custom stage.
    public var stage: MigrationStageHandlers?
    /// The mapping models that it goes by, as their files are called; nil where the mapping is inferred.
    public var mappingName: String?
    /// What a person should know of it before it is run.
    package var remarks: [String] = []

    public init(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String, by method: Method
    ) {
        self.source = source
        self.destination = destination
        destinationName = name
        self.method = method
    }
}

/// Migrates a store through one version of its model after another: `NSMigrationManager`, and the progressive migration
/// that apps build around it.
public struct MigrationManager: Sendable {
    /// How far it is, from 0 to 1, and what is being done.
    public typealias ProgressHandler = (_ fraction: Double, _ doing: String) -> Void

    /// In the order in which they are run; none for a store that is of the destination's version.
    public let steps: [MigrationStep]
    public var options: MigrationOptions
    /// The classes that mapping models name.
    public var policies: EntityMigrationPolicies = [:]

    public init(steps: [MigrationStep], options: MigrationOptions = MigrationOptions()) {
        self.steps = steps
        self.options = options
    }

    /// Finds the fewest steps from one version to another: one where a mapping model fits or a mapping can be inferred,
    /// else through versions in between. Throws `MigrationError` with every reason why there are none.
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
            from: (sourceName, source), to: (name, destination), through: versions, mappings: mappings)
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

    /// What a person should know of the way before it is gone.
    package var remarks: [String] { steps.flatMap(\.remarks) }

    /// The steps of a staged migration: the mapping from each stage to the next is inferred. `versions` are the models whose
    /// checksums the stages name. Throws `MigrationError`: 134504, 134506, 134140.
    public init(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String,
        stages: [MigrationStage], among versions: [(name: String, model: ManagedObjectModel)],
        options: MigrationOptions = MigrationOptions()
    ) throws {
        let steps = try StagedMigration(stages).steps(from: source, to: destination, named: name, among: versions)
        self.init(steps: steps, options: options)
    }

    /// Migrates the database file at `path`, which nobody else has and which is of the first step's source. What it holds
    /// when this throws is worth nothing: it is a copy, to be discarded. Its support folder lies beside `keeper`, or else
    /// beside itself. What the way removes is counted before anything is changed.
    ///
    /// Throws `MigrationError`, which tells of `store`: nobody knows the copy. `isCancelled` is asked all the while.
    package func migrate(
        staged path: FilePath, of store: FilePath? = nil, supportBeside keeper: FilePath? = nil,
        isOriginalArchived: Bool = false, isCancelled: @escaping () -> Bool = { false }, trace: StatementTrace? = nil,
        progress report: @escaping ProgressHandler = { _, _ in }
    ) throws -> MigrationOutcome {
        do {
            return try performSteps(
                path, store, keeper ?? path, isOriginalArchived: isOriginalArchived, isCancelled, trace, report)
        } catch let error as MigrationError {
            throw store.map { error.naming($0, insteadOf: path) } ?? error
        }
    }

    private func performSteps(
        _ path: FilePath, _ store: FilePath?, _ keeper: FilePath, isOriginalArchived: Bool,
        _ isCancelled: @escaping () -> Bool, _ trace: StatementTrace?, _ report: @escaping ProgressHandler
    ) throws -> MigrationOutcome {
        var notes: [String] = []
        var lost = RemovedContent.none
        do {
            let original = store.flatMap { UnchangedOriginal($0, of: path) }
            let orphans = try steps.first.map { first in
                let store = try StoreWriter(staged: path)
                lost = try losses(store)
                return try OrphanedFiles(store, beside: keeper, first.source)
            }
            for (index, step) in steps.enumerated() {
                let share = 1 / Double(steps.count)
                let outcome = try perform(step, path, index == 0 ? original : nil, keeper, isCancelled, trace) {
                    fraction, doing in
                    report((Double(index) + fraction) * share, doing)
                }
                // What the first step loses was counted before it began.
                notes += (index == 0 ? [] : outcome.losses.sentences) + outcome.remarks
            }
            var leftFiles: String?
            if let last = steps.last {
                let store = try StoreWriter(staged: path)
                notes += try ExternalReferences(store, beside: keeper, last.destination).missing().map(\.sentence)
                // Beside the copy they are copies, and the archive keeps a store of which something is removed.
                leftFiles = try orphans?.settle(
                    store, beside: keeper, last.destination,
                    removing: isOriginalArchived && keeper == path && !lost.isEmpty)
            }
            return MigrationOutcome(losses: lost, remarks: notes, leftFiles: leftFiles)
        } catch let error as StoreError {
            // The store was changed meanwhile: who made the copy makes another.
            if case .busy(let changed) = error, changed == store { throw error }
            throw MigrationError(error)
        } catch let error as SystemError {
            throw MigrationError(error, at: path)
        }
    }

    private func perform(
        _ step: MigrationStep, _ path: FilePath, _ original: UnchangedOriginal?, _ keeper: FilePath,
        _ isCancelled: @escaping () -> Bool, _ trace: StatementTrace?, _ report: @escaping ProgressHandler
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
            try perform(step.stage?.willMigrate, on: store, step.source)
            let audit = try StepAudit(of: path, madeFrom: step.stage == nil ? original : nil)
            store.record(audit.writes)
            try store.execute("BEGIN")
            var migration = try LightweightMigration(
                store, from: step.source, to: step.destination, mapping, options, progress)
            try migration.run()
            try store.execute("COMMIT")
            try audit.check(step, isCancelled: isCancelled)
            try perform(step.stage?.didMigrate, on: store, step.destination)
            progress.finish()
            return MigrationOutcome(losses: RemovedContent(migration.losses), remarks: migration.notes)
        case .custom(let mapping):
            let audit = try StepAudit(of: path, madeFrom: original)
            let notes = try perform(mapping, step, path, keeper, isCancelled, trace, report)
            try audit.check(step, isCancelled: isCancelled)
            return MigrationOutcome(losses: .none, remarks: notes)
        }
    }

    private func perform(
        _ handler: MigrationStage.Handler?, on store: StoreWriter, _ model: ManagedObjectModel
    ) throws {
        guard let handler else { return }
        try store.execute("BEGIN")
        do { try handler(StageStore(store, model)) } catch let error as MigrationError { throw error } catch {
            if let error = error as? StoreError { throw error }
            throw MigrationError(
                CoreDataError.migration, "a stage of the migration failed: \(error)", remedy: "see the stage's handler")
        }
        try store.execute("COMMIT")
    }

    /// Of the copy's name, while a mapping model makes the new store beside it.
    static let newStoreSuffix = ".mapped"

    /// A mapping model makes a new store, whose bytes take the place of the old one's: the staged file stays the same
    /// one, since whoever staged it knows it by its number.
    private func perform(
        _ mapping: MappingModel, _ step: MigrationStep, _ path: FilePath, _ keeper: FilePath,
        _ isCancelled: @escaping () -> Bool, _ trace: StatementTrace?, _ report: @escaping ProgressHandler
    ) throws -> [String] {
        let made = FilePath(path.string + Self.newStoreSuffix)
        defer { _ = made.withPlatformString { unlink($0) } }
        do {
            _ = made.withPlatformString { unlink($0) }
            let notes = try fill(made, mapping, step, path, keeper, isCancelled, trace, report)
            try StagedFile.replaceBytes(of: path, with: made)
            return notes
        } catch let error as MappingModelError {
            let code = error.code == .unknownPolicy ? CoreDataError.entityMigrationPolicy : CoreDataError.migration
            throw MigrationError(code, "\(error)", remedy: error.remedy)
        } catch let error as SystemError {
            throw MigrationError(error, at: path)
        }
    }

    private func fill(
        _ made: FilePath, _ mapping: MappingModel, _ step: MigrationStep, _ path: FilePath, _ keeper: FilePath,
        _ isCancelled: @escaping () -> Bool, _ trace: StatementTrace?, _ report: @escaping ProgressHandler
    ) throws -> [String] {
        let store = try StoreWriter(made, creating: true)
        if let trace { store.trace(level: trace.level, trace.report) }
        store.interrupt(when: isCancelled)
        var migration = try MappingMigration(
            mapping, into: store, from: path, supportBeside: keeper, of: step.source, to: step.destination,
            policies: policies, report)
        try migration.run()
        return migration.notes
    }
}

/// What a migration has done to a store, for a person.
package struct MigrationOutcome: Sendable {
    /// What is gone.
    package let losses: RemovedContent
    package var remarks: [String]
    /// A sentence about external files that no object names any more, and that stay; nil where there are none.
    package let leftFiles: String?

    package static let none = MigrationOutcome(losses: .none, remarks: [])

    package init(losses: RemovedContent, remarks: [String], leftFiles: String? = nil) {
        self.losses = losses
        self.remarks = remarks
        self.leftFiles = leftFiles
    }

    package var notes: [String] { losses.sentences + remarks + [leftFiles].compactMap(\.self) }
}

/// Who is told of each SQL statement.
package struct StatementTrace: Sendable {
    /// From 3 on with the values in it.
    package let level: Int
    package let report: @Sendable (_ sql: String, _ time: Duration) -> Void

    package init(level: Int, _ report: @escaping @Sendable (_ sql: String, _ time: Duration) -> Void) {
        self.level = level
        self.report = report
    }
}

extension StoreWriter {
    /// Opens a copy that is discarded when anything fails: it needs neither a journal nor syncs.
    convenience init(staged path: FilePath) throws {
        try self.init(path)
        try execute("PRAGMA journal_mode = OFF")
        try execute("PRAGMA synchronous = OFF")
        try execute("PRAGMA locking_mode = EXCLUSIVE")
        // KiB, of memory for pages and as much for sorting; the rest goes to temporary files.
        try execute("PRAGMA cache_size = -8192")
        try execute("PRAGMA temp_store = FILE")
    }

    /// About how many objects there are, from the highest keys, without looking at them.
    func objectCount() throws -> Int64 {
        try integer("SELECT sum(Z_MAX) FROM Z_PRIMARYKEY WHERE Z_ENT < 16000") ?? 0
    }
}

extension ManagedObjectModel {
    /// Throws `MigrationError` where no store can have the model's tables.
    func checkLayout() throws(MigrationError) {
        do { try StoreLayout(self).check() } catch {
            let finding = MigrationFinding(fault: error)
            throw MigrationError(
                CoreDataError.migration, "Cannot migrate store in-place: " + finding.sentence, remedy: finding.remedy,
                findings: [finding])
        }
    }
}

extension MigrationFinding {
    /// Two tables of one name.
    init(fault: ModelFault) {
        self.init(
            .error, code: CoreDataError.migration, entity: fault.entity, property: fault.property, fault.message,
            remedy: fault.remedy)
    }

    /// What it is about, and what is said of it.
    package var sentence: String {
        let subject = [entity, property].compactMap(\.self).joined(separator: ".")
        return subject.isEmpty ? message : subject + ": " + message
    }
}

extension MigrationError {
    init(_ error: MappingInferenceError) {
        self.init(
            CoreDataError.missingMappingModel,
            CoreDataError.reason(CoreDataError.missingMappingModel)
                + (error.reasons.first.map { ": " + $0.sentence } ?? ""),
            remedy: error.reasons.first?.remedy ?? "write a mapping model", findings: error.reasons)
    }
}
