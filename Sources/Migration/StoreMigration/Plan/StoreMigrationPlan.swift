import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

extension [MigrationStep] {
    /// Finds the steps from one version to another, as `MigrationPlan` has them.
    init(
        from source: ManagedObjectModel, sourceName: String?, to destination: ManagedObjectModel, named name: String,
        through versions: [(name: String, model: ManagedObjectModel)], mappings: [MappingModelFile]
    ) throws {
        try destination.checkLayout()
        self = []
        guard source.entityVersionHashesByName != destination.entityVersionHashesByName else { return }
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
        self = path
    }

    /// Finds the steps of one store's migration, as `MigrationPlan` has them.
    init(
        for store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile],
        renamings: [ModelRenaming], stages: [MigrationStage]
    ) throws {
        self = []
        guard store.metadata.versionHashes != target.model.entityVersionHashesByName else { return }
        let sources = StoreSources(store, bundle)
        guard !sources.all.isEmpty else { throw MigrationError.missingSourceModel(store, bundle) }
        self = try sources.commonResult(isSame: { $0.isSame(as: $1) }) { source in
            try Self(
                from: source, of: store, to: target.replacing(try target.model.renamed(renamings, from: source.model)),
                in: bundle, mappings, stages)
        }
        for (index, step) in enumerated() {
            let version = index == count - 1 ? target : bundle?.versions.first { $0.name == step.destinationName }
            self[index].remarks += (version?.remarks ?? []).map { "\($0.sentence) (\($0.remedy))" }
        }
    }

    private init(
        from source: StoreSources.Source, of store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?,
        _ mappings: [MappingModelFile], _ stages: [MigrationStage]
    ) throws {
        guard stages.isEmpty else {
            self = try StagedMigration(stages).steps(
                from: source.model, to: target.model, named: target.name,
                among: (bundle?.versions ?? []).map { ($0.name, $0.model) })
            return
        }
        let between =
            try bundle?.versions(
                from: source.version, to: target, ofStore: "\(PrintablePath(store.path)): the store",
                hashes: store.metadata.versionHashes, mappings: mappings) ?? []
        try mappings.requireUse(from: (source.version?.name, source.model), to: target, in: bundle)
        // A version's file is the better source than the store's cached model: its renaming identifiers are intended.
        self = try Self(
            from: source.model, sourceName: source.version?.name, to: target.model, named: target.name,
            through: between.map { ($0.name, $0.model) }, mappings: mappings)
    }
}

extension MigrationPlan {
    /// Checks the store's objects before anything is copied. Throws `MigrationError` if the migration would fail on
    /// them, and `StoreError`.
    package func check(_ reader: StoreReader) throws {
        for case .custom(let mapping) in steps.map(\.method) {
            do { try policies.require(of: mapping) } catch {
                throw MigrationError(error, code: CoreDataError.entityMigrationPolicy)
            }
        }
        guard let first = steps.first, let obstacles = try StoreObstacles(reader, first) else { return }
        try obstacles.checkTables()
        if let error = MigrationError(try obstacles.find(options), in: reader.location.path) { throw error }
    }
}

extension ModelBundle {
    /// Returns the versions between two of this model, through which a store may be migrated. Throws `MigrationError`
    /// if the target isn't a later version, since stores aren't migrated backwards.
    ///
    /// - Parameters:
    ///   - current: The store's version; nil if no version has its hashes.
    ///   - subject: The store's description for messages.
    ///   - hashes: The version hashes in the store's metadata.
    ///   - known: The order of the versions, if it is known: it takes a while for many versions and mapping models.
    package func versions(
        from current: ModelVersion?, to target: ModelVersion, ofStore subject: String, hashes: [String: [UInt8]],
        mappings: [MappingModelFile], order known: VersionOrder? = nil
    ) throws(MigrationError) -> [ModelVersion] {
        guard versions.count > 1 else { return [] }
        guard let current else { throw MigrationError.unknownVersion(subject, hashes: hashes, in: self) }
        let order = known ?? VersionOrder(self, mappings: mappings)
        guard order.leads(from: current, to: target) else {
            throw MigrationError.newer(subject, current, than: target)
        }
        // A version with the hashes of either end is no intermediate: a store of it needs no migration there.
        let ends = [hashes, target.model.entityVersionHashesByName]
        return order.between(current, target).filter { !ends.contains($0.model.entityVersionHashesByName) }
    }
}

extension ModelBundle {
    /// The unreadable versions as a message's suffix, since the store may be of one of them; empty if there are none.
    fileprivate var unreadableSuffix: String {
        let list = unreadable.map { "\($0.name) (\($0.error.message))" }.joined(separator: ", ")
        return list.isEmpty ? "" : "; unreadable: " + list
    }
}

extension MigrationError {
    fileprivate static func missingSourceModel(_ store: StoreModel, _ bundle: ModelBundle?) -> MigrationError {
        let subject = "\(PrintablePath(store.path)): the store"
        if let partial = partialMetadata(subject, hashes: store.metadata.versionHashes, in: bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): \(CoreDataError.reason(CoreDataError.missingSourceModel))"
                + (store.cacheProblem.map { ": " + $0 } ?? "") + (bundle?.unreadableSuffix ?? ""),
            remedy: "add the version that the store was made with to the model")
    }

    /// Returns the error for a store whose metadata lack some of a version's entities; nil if there is no such version.
    /// Core Data doesn't open such a store either: it writes the hashes of all entities, even for a store of one
    /// configuration.
    private static func partialMetadata(
        _ subject: String, hashes: [String: [UInt8]], in bundle: ModelBundle?
    ) -> MigrationError? {
        guard let version = bundle?.version(extending: hashes) else { return nil }
        let missing = version.model.entityVersionHashesByName.keys.filter { hashes[$0] == nil }.sorted()
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(subject) has the hashes of \(version.name), but not those of "
                + missing.prefix(5).joined(separator: ", ") + (missing.count > 5 ? ", …" : ""),
            remedy: "name a model that has only the store's entities: Core Data compares those of all configurations")
    }

    fileprivate static func unknownVersion(
        _ subject: String, hashes: [String: [UInt8]], in bundle: ModelBundle
    ) -> MigrationError {
        if let partial = partialMetadata(subject, hashes: hashes, in: bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(subject) has the hashes of no version of \(PrintablePath(bundle.path)), and may be newer than all of them"
                + bundle.unreadableSuffix,
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
