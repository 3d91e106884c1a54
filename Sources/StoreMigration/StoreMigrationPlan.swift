import CoreDataStore
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import SystemPackage

extension MigrationManager {
    /// How one store becomes one of `target`.
    ///
    /// The store's own model is the one that it carries, else the version of `bundle` that has its hashes. A store whose
    /// version is not among several of one model may be newer than all of them: it is refused, since nobody migrates
    /// backwards without meaning to.
    ///
    /// Where stages are given, they say the way.
    ///
    /// Throws `MigrationError`: 134130 where the store's model isn't known, 134140 where no mapping can be inferred.
    package init(
        for store: StoreModel, to target: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile] = [],
        stages: [MigrationStage] = [], options: MigrationOptions = MigrationOptions()
    ) throws {
        let hashes = store.metadata.versionHashes
        guard hashes != target.model.entityVersionHashesByName else {
            self.init(steps: [], options: options)
            return
        }
        let known = bundle?.version(matching: hashes)
        guard let source = store.cachedModel ?? known?.model else {
            throw MigrationError.missingSourceModel(store, bundle)
        }
        guard stages.isEmpty else {
            try self.init(
                from: known?.model ?? source, to: target.model, named: target.name, stages: stages,
                among: (bundle?.versions ?? []).map { ($0.name, $0.model) }, options: options)
            return
        }
        var between: [(name: String, model: ManagedObjectModel)] = []
        if let bundle, bundle.versions.count > 1 {
            guard let known else { throw MigrationError.unknownVersion(store, bundle) }
            let order = VersionOrder(bundle, mappings: mappings)
            guard order.leads(from: known, to: target) else {
                throw MigrationError.newer(store, known, than: target)
            }
            between = order.between(known, target).map { ($0.name, $0.model) }
        }
        // The renaming identifiers of the version's file are what its developers mean.
        try self.init(
            from: known?.model ?? source, sourceName: known?.name, to: target.model, named: target.name,
            through: between,
            mappings: mappings, options: options)
    }

    /// Refuses what would fail on the store's objects before anything is copied. Throws `MigrationError`, `StoreError`.
    package func check(_ reader: StoreReader) throws {
        for case .custom(let mapping) in steps.map(\.method) {
            do { try policies.require(of: mapping) } catch {
                throw MigrationError(CoreDataError.entityMigrationPolicy, "\(error)", remedy: error.remedy)
            }
        }
        guard let first = steps.first, case .inferred = first.method else { return }
        let findings = MigrationReview(first.source, first.destination).findings
        let objects = StoreObjects(reader, first.source)
        var failures: [MigrationFinding] = []
        for var finding in findings {
            guard let requirement = finding.requirement, finding.code == CoreDataError.migration,
                let entity = first.source.entity(named: requirement.entity)
            else { continue }
            let missing =
                try requirement.property.map { try objects.count(of: entity, withoutValueOf: $0) }
                ?? objects.count(of: entity)
            guard let missing, missing > 0 else { continue }
            finding.severity = .error
            finding.message += "; here \(missing) have none"
            failures.append(finding)
        }
        guard let failure = failures.first else { return }
        throw MigrationError(
            CoreDataError.migration,
            "Cannot migrate store in-place: \(failure.entity ?? "").\(failure.property ?? ""): \(failure.message)",
            remedy: failure.remedy, findings: failures)
    }
}

extension MigrationError {
    fileprivate static func missingSourceModel(_ store: StoreModel, _ bundle: ModelBundle?) -> MigrationError {
        if let partial = partialMetadata(store, bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): \(CoreDataError.reason(CoreDataError.missingSourceModel))"
                + (store.cacheProblem.map { ": " + $0 } ?? ""),
            remedy: "add the version that the store was made with to the model")
    }

    /// Of a store whose metadata leave out entities, which Core Data opens with no model either: it writes those of all
    /// entities, also where the store is for one configuration.
    private static func partialMetadata(_ store: StoreModel, _ bundle: ModelBundle?) -> MigrationError? {
        let hashes = store.metadata.versionHashes
        guard let version = bundle?.version(exceeding: hashes) else { return nil }
        let missing = version.model.entityVersionHashesByName.keys.filter { hashes[$0] == nil }.sorted()
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): the store's metadata have the hashes of \(version.name), but not those of "
                + missing.prefix(5).joined(separator: ", ") + (missing.count > 5 ? ", …" : ""),
            remedy: "name a model that has only the store's entities: Core Data compares those of all configurations")
    }

    fileprivate static func unknownVersion(_ store: StoreModel, _ bundle: ModelBundle) -> MigrationError {
        if let partial = partialMetadata(store, bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): no version of \(PrintablePath(bundle.path)) has the hashes of this store, which "
                + "may be newer than all of them",
            remedy: "add the version that the store was made with to the model, or name one version's .xcdatamodel")
    }

    fileprivate static func newer(
        _ store: StoreModel, _ version: ModelVersion, than target: ModelVersion
    ) -> MigrationError {
        MigrationError(
            CoreDataError.incompatibleVersionHash,
            "\(PrintablePath(store.path)): the store is version \(version.name), which is newer than \(target.name)",
            remedy: "use the newer model; stores aren't migrated backwards")
    }
}
