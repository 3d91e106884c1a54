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
        let between =
            try bundle?.versions(
                from: known, to: target, ofStore: "\(PrintablePath(store.path)): the store", hashes: hashes,
                mappings: mappings) ?? []
        // The renaming identifiers of the version's file are what its developers mean.
        try self.init(
            from: known?.model ?? source, sourceName: known?.name, to: target.model, named: target.name,
            through: between.map { ($0.name, $0.model) }, mappings: mappings, options: options)
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
        if let error = MigrationError(try obstacles.find(options)) { throw error }
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
        return order.between(known, target)
    }
}

extension MigrationError {
    fileprivate static func missingSourceModel(_ store: StoreModel, _ bundle: ModelBundle?) -> MigrationError {
        let subject = "\(PrintablePath(store.path)): the store"
        if let partial = partialMetadata(subject, store.metadata.versionHashes, bundle) { return partial }
        return MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): \(CoreDataError.reason(CoreDataError.missingSourceModel))"
                + (store.cacheProblem.map { ": " + $0 } ?? ""),
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
            "\(subject) has the hashes of no version of \(PrintablePath(bundle.path)), and may be newer than all of them",
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
