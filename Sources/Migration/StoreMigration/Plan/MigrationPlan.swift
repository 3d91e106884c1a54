import CoreDataStore
import ManagedObjectModels
import MappingModels
import MigrationAudit

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
    /// The findings of a check of the step's models and mapping.
    package var findings: [MigrationFinding] = []
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

    var isInferred: Bool { if case .inferred = method { true } else { false } }
}

/// The plan of a migration through successive versions of a model: its steps, its permissions, and whether it may
/// remove content. It is made once; a dry run, a migration and its audit read the same value.
///
///     let file = try MappingModelFile(reading: "Zoo.mapping.yaml")
///     let plan = try MigrationPlan(from: old, to: new, named: "Zoo 2", mappings: [file])
///     print(plan.steps.map(\.destinationName), plan.remarks, plan.mayRemoveContent)
public struct MigrationPlan: Sendable {
    /// The steps in the order they run; empty if the store already has the destination's version.
    public let steps: [MigrationStep]
    /// The permissions of the migration.
    public let options: MigrationOptions
    /// The policy classes, by the names that mapping models use.
    public let policies: EntityMigrationPolicies
    /// The name of the version that the store has; nil if it is unknown.
    public private(set) var sourceName: String?
    /// The model information of the store that the plan was made for; nil if it was made for models.
    private var store: StoreModel?
    private let counting: Result<LossCount?, MigrationError>

    /// Creates a plan of explicit steps.
    public init(
        steps: [MigrationStep], options: MigrationOptions = MigrationOptions(), policies: EntityMigrationPolicies = [:]
    ) {
        self.steps = steps
        self.options = options
        self.policies = policies
        counting = Result { () throws(MappingModelError) in
            LossCount(try steps.map { step throws(MappingModelError) in try step.counted })
        }.mapError { MigrationError($0) }
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
    ///   - policies: The policy classes, by the names that mapping models use.
    /// - Throws: ``MigrationError`` with every reason if there is no path.
    public init(
        from source: ManagedObjectModel, sourceName: String? = nil, to destination: ManagedObjectModel,
        named name: String, through versions: [(name: String, model: ManagedObjectModel)] = [],
        mappings: [MappingModelFile] = [], options: MigrationOptions = MigrationOptions(),
        policies: EntityMigrationPolicies = [:]
    ) throws {
        let steps = try [MigrationStep](
            from: source, sourceName: sourceName, to: destination, named: name, through: versions, mappings: mappings)
        self.init(steps: steps, options: options, policies: policies)
        self.sourceName = sourceName
    }

    /// Creates a plan of the steps of a staged migration, with an inferred mapping from each stage to the next.
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

    /// Plans the migration of one store to `target`. `renamings` relate the target's names to the store's version.
    ///
    /// The source model is the version of `bundle` that the store has, else the model that the store carries. If the
    /// bundle has several versions but not the store's, the store may be newer than all of them and is refused, since a
    /// backward migration is never intended. A store that may be of several versions is refused if their paths differ.
    ///
    /// If stages are given, they determine the path.
    ///
    /// Throws `MigrationError`: 134130 if the store's model is unknown, 134140 if no mapping can be inferred;
    /// `ModelFault` for renamings that fit neither model.
    package init(
        for store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile] = [],
        renamings: [ModelRenaming] = [], stages: [MigrationStage] = [], options: MigrationOptions = MigrationOptions(),
        policies: EntityMigrationPolicies = [:]
    ) throws {
        let steps = try [MigrationStep](
            for: store, to: target, in: bundle, mappings: mappings, renamings: renamings, stages: stages)
        self.init(steps: steps, options: options, policies: policies)
        sourceName = bundle?.versionName(of: store)
        self.store = store
    }
}

extension MigrationPlan {
    /// Remarks on all steps for a person to read before they run.
    public var remarks: [String] { steps.flatMap(\.remarks) }

    /// False if a migration keeps all content, whatever the store contains. What it removes from one store is counted
    /// by a dry run and by the migration.
    public var mayRemoveContent: Bool {
        do { return try lossCount.map { !$0.isEmpty } ?? false } catch { return true }
    }

    /// The count of what the steps remove, for two stores to compare; nil if there are no steps. Throws
    /// `MigrationError`.
    package var lossCount: LossCount? { get throws(MigrationError) { try counting.get() } }

    /// True if a step creates new objects, so that a history of the older ones ends.
    package var makesNewObjects: Bool { !steps.allSatisfy(\.isInferred) }

    /// True if the first step fills a new store, so that the staged copy is removed.
    package var replacesCopy: Bool { steps.first?.isInferred == false }

    /// Returns true if the plan was made for a store of the same model: everything that it depends on is equal.
    func isPlan(for other: StoreModel) -> Bool {
        guard let store else { return false }
        return store.metadata.versionHashes == other.metadata.versionHashes
            && store.metadata.versionIdentifiers == other.metadata.versionIdentifiers
            && store.cachedModel == other.cachedModel
    }
}
