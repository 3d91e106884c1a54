import CoreDataStore
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import StoreMigration
import StoreRelocation
import SystemPackage

/// The migration of a store to a version of its model, as relocations take it.
package struct MigrationTransform: StoreTransform {
    private let target: ModelVersion
    private let bundle: ModelBundle?
    private let mappings: [MappingModelFile]
    private let stages: [MigrationStage]
    private let options: MigrationOptions
    /// Made anew for each run, and used on its thread.
    private let trace: @Sendable () -> StatementTrace?
    private let isCancelled: @Sendable () -> Bool

    /// `bundle` holds the versions that lie between; nil where the target is one of a kind.
    package init(
        to target: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile] = [],
        stages: [MigrationStage] = [], options: MigrationOptions = MigrationOptions(),
        trace: @escaping @Sendable () -> StatementTrace? = { nil },
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) {
        self.target = target
        self.bundle = bundle
        self.mappings = mappings
        self.stages = stages
        self.options = options
        self.trace = trace
        self.isCancelled = isCancelled
    }

    /// What is to be done with a store; nil when it isn't Core Data's. Throws `MigrationError`, `StoreError`,
    /// `SystemError`.
    package func manager(for store: StoreLocation, checkingObjects: Bool = true) throws -> MigrationManager? {
        try StoreReader.read(store) { reader in
            guard let model = try StoreModel(reader) else { return nil }
            let manager = try MigrationManager(
                for: model, to: target, in: bundle, mappings: mappings, stages: stages, options: options)
            if checkingObjects { try manager.check(reader) }
            return manager
        }
    }

    package func isNeeded(_ store: StoreLocation) throws -> Bool {
        try failing(store) {
            guard let manager = try manager(for: store) else {
                throw RelocationFailure(
                    .badData, code: "not_core_data",
                    "\(PrintablePath(store.path)): a model is asked for, and this store is not Core Data's",
                    remedy: "leave the model out, or name a store that has the table Z_METADATA")
            }
            return !manager.steps.isEmpty
        }
    }

    package func run(
        on staged: StoreLocation, progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore {
        try failing(staged) {
            // Looked at anew: the copy may be of a later moment than the plan.
            let before = try versionName(of: staged)
            guard let manager = try manager(for: staged, checkingObjects: false) else {
                return TransformedStore(before: before, after: before)
            }
            let notes = try withoutActuallyEscaping(progress) { progress in
                try manager.migrate(
                    staged: staged.pathForSQLite, isCancelled: isCancelled, trace: trace(), progress: progress)
            }
            return TransformedStore(before: before, after: target.name, notes: notes)
        }
    }

    /// What developers call the store's version; its identifiers where no version has its hashes.
    private func versionName(of store: StoreLocation) throws -> String {
        let metadata = try StoreModel.read(store)?.metadata
        let known = metadata.flatMap { bundle?.version(matching: $0.versionHashes)?.name }
        return known ?? metadata?.versionIdentifiers.joined(separator: ", ") ?? ""
    }

    private func failing<Result>(_ store: StoreLocation, _ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch let error as MigrationError {
            throw RelocationFailure(error)
        }
    }
}

extension RelocationFailure {
    /// Core Data's code is in the word for scripts.
    package init(_ error: MigrationError) {
        let kind: Kind = error.isOfTheDisk ? .failed : .badData
        let reasons = error.findings.dropFirst().map { "; " + $0.message }.joined()
        self.init(kind, code: "core_data_\(error.code)", error.description + reasons, remedy: error.remedy)
    }
}
