import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

extension MigrationManager {
    /// How one store becomes one of `target`, which `renamings` make the successor of the store's version.
    ///
    /// The store's own model is the version of `bundle` that it is of, else the one that it carries. A store whose version
    /// is not among several of one model may be newer than all of them: it is refused, since nobody migrates backwards
    /// without meaning to. One that may be of several versions is refused where they lead to different ends.
    ///
    /// Where stages are given, they say the way.
    ///
    /// Throws `MigrationError`: 134130 where the store's model isn't known, 134140 where no mapping can be inferred;
    /// `ModelFault` for renamings that fit neither model.
    package init(
        for store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile] = [],
        renamings: [ModelRenaming] = [], stages: [MigrationStage] = [], options: MigrationOptions = MigrationOptions()
    ) throws {
        guard store.metadata.versionHashes != target.model.entityVersionHashesByName else {
            self.init(steps: [], options: options)
            return
        }
        let sources = StoreSources(store, bundle)
        guard !sources.all.isEmpty else { throw MigrationError.missingSourceModel(store, bundle) }
        let steps = try sources.agreed(isSame: { $0.isSame(as: $1) }) { source in
            try Self.steps(
                from: source, of: store, to: target.replacing(try target.model.renamed(renamings, from: source.model)),
                in: bundle, mappings, stages)
        }
        self.init(steps: steps, options: options)
    }

    private static func steps(
        from source: StoreSources.Source, of store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?,
        _ mappings: [MappingModelFile], _ stages: [MigrationStage]
    ) throws -> [MigrationStep] {
        guard stages.isEmpty else {
            return try MigrationManager(
                from: source.model, to: target.model, named: target.name, stages: stages,
                among: (bundle?.versions ?? []).map { ($0.name, $0.model) }
            ).steps
        }
        let between =
            try bundle?.versions(
                from: source.version, to: target, ofStore: "\(PrintablePath(store.path)): the store",
                hashes: store.metadata.versionHashes, mappings: mappings) ?? []
        // The renaming identifiers of the version's file are what its developers mean.
        return try MigrationManager(
            from: source.model, sourceName: source.version?.name, to: target.model, named: target.name,
            through: between.map { ($0.name, $0.model) }, mappings: mappings
        ).steps
    }

    /// Refuses what would fail on the store's objects before anything is copied. Throws `MigrationError`, `StoreError`.
    package func check(_ reader: StoreReader) throws {
        for case .custom(let mapping) in steps.map(\.method) {
            do { try policies.require(of: mapping) } catch {
                throw MigrationError(CoreDataError.entityMigrationPolicy, "\(error)", remedy: error.remedy)
            }
        }
        guard let first = steps.first, let obstacles = try StoreObstacles(reader, first) else { return }
        try obstacles.checkTables()
        if let error = MigrationError(try obstacles.find(options), in: reader.location.path) { throw error }
    }
}

extension ModelBundle {
    /// The versions between two of this model, those that a store may be migrated through. `subject` is what is of the version
    /// `known`, for people, and `hashes` what its metadata have; `known` is nil where no version has them. Throws
    /// `MigrationError` where the target isn't a later one: stores aren't migrated backwards.
    package func versions(
        from known: ModelVersion?, to target: ModelVersion, ofStore subject: String, hashes: [String: [UInt8]],
        mappings: [MappingModelFile]
    ) throws(MigrationError) -> [ModelVersion] {
        guard versions.count > 1 else { return [] }
        guard let known else { throw MigrationError.unknownVersion(subject, hashes, self) }
        let order = VersionOrder(self, mappings: mappings)
        guard order.leads(from: known, to: target) else { throw MigrationError.newer(subject, known, than: target) }
        // A store of one of these would need no migration to this one: nothing leads through it.
        let ends = [hashes, target.model.entityVersionHashesByName]
        return order.between(known, target).filter { !ends.contains($0.model.entityVersionHashesByName) }
    }
}

extension ModelBundle {
    /// Behind a sentence: a store may be of one of them.
    fileprivate var unreadableWords: String {
        let words = unreadable.map { "\($0.name) (\($0.error.message))" }.joined(separator: ", ")
        return words.isEmpty ? "" : "; what can't be read: " + words
    }
}

extension MigrationError {
    fileprivate static func missingSourceModel(_ store: StoreModel, _ bundle: ModelBundle?) -> MigrationError {
        let subject = "\(PrintablePath(store.path)): the store"
        if let partial = partialMetadata(subject, store.metadata.versionHashes, bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): \(CoreDataError.reason(CoreDataError.missingSourceModel))"
                + (store.cacheProblem.map { ": " + $0 } ?? "") + (bundle?.unreadableWords ?? ""),
            remedy: "add the version that the store was made with to the model")
    }

    /// Of a store whose metadata leave out entities, which Core Data opens with no model either: it writes those of all
    /// entities, also where the store is for one configuration.
    private static func partialMetadata(
        _ subject: String, _ hashes: [String: [UInt8]], _ bundle: ModelBundle?
    ) -> MigrationError? {
        guard let version = bundle?.version(exceeding: hashes) else { return nil }
        let missing = version.model.entityVersionHashesByName.keys.filter { hashes[$0] == nil }.sorted()
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(subject) has the hashes of \(version.name), but not those of "
                + missing.prefix(5).joined(separator: ", ") + (missing.count > 5 ? ", …" : ""),
            remedy: "name a model that has only the store's entities: Core Data compares those of all configurations")
    }

    fileprivate static func unknownVersion(
        _ subject: String, _ hashes: [String: [UInt8]], _ bundle: ModelBundle
    ) -> MigrationError {
        if let partial = partialMetadata(subject, hashes, bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(subject) has the hashes of no version of \(PrintablePath(bundle.path)), and may be newer than all of them"
                + bundle.unreadableWords,
            remedy: "add the version that the store was made with to the model, or name one version's .xcdatamodel")
    }

    fileprivate static func newer(
        _ subject: String, _ version: ModelVersion, than target: ModelVersion
    ) -> MigrationError {
        MigrationError(
            CoreDataError.incompatibleVersionHash,
            "\(subject) is version \(version.name), which is newer than \(target.name)",
            remedy: "use the newer model; stores aren't migrated backwards")
    }
}
