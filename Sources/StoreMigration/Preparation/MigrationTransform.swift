import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The migration of a store to a version of its model, as relocations take it.
package struct MigrationTransform: StoreTransform {
    private let version: ModelVersion
    private let bundle: ModelBundle?
    private let renamings: [ModelRenaming]
    private let mappings: [MappingModelFile]
    private let stages: [MigrationStage]
    private let options: MigrationOptions
    private let trace: StatementTrace?
    private let isCancelled: @Sendable () -> Bool

    /// `bundle` holds the versions that lie between; nil where the target is one of a kind. `renamings` say what its
    /// renaming identifiers don't.
    package init(
        to version: ModelVersion, in bundle: ModelBundle?, mappings: [MappingModelFile] = [],
        renamings: [ModelRenaming] = [], stages: [MigrationStage] = [], options: MigrationOptions = MigrationOptions(),
        trace: StatementTrace? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) {
        self.version = version
        self.renamings = renamings
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
            let manager = try manager(for: model)
            if checkingObjects { try manager.check(reader) }
            return manager
        }
    }

    private func manager(for store: StoreModel) throws -> MigrationManager {
        do {
            return try MigrationManager(
                for: store, to: version, in: bundle, mappings: mappings, renamings: renamings, stages: stages,
                options: options)
        } catch let fault as ModelFault {
            throw RelocationFailure(
                .badData, code: "bad_renaming", (fault.element.map { $0 + ": " } ?? "") + fault.message,
                remedy: fault.remedy)
        }
    }

    package var target: String { version.name }

    package func isOpenable(knowing versions: Set<String>) -> Bool {
        let names = version.model.versionIdentifiers.subtracting([""]).union([
            version.name, version.model.versionChecksum,
        ])
        return !names.isDisjoint(with: versions)
    }

    package func isNeeded(_ store: StoreLocation) throws -> Bool {
        try failing({ $0.isOfTheStore }) {
            guard let manager = try manager(for: store) else {
                var failure = RelocationFailure(
                    .badData, code: "not_core_data",
                    "\(PrintablePath(store.path)): a model is asked for, and this store is not Core Data's",
                    remedy: "leave the model out, or name a store that has the table Z_METADATA")
                failure.isIncompatible = true
                throw failure
            }
            return !manager.steps.isEmpty
        }
    }

    package func run(
        on staged: StoreLocation, of store: FilePath, supportBeside keeper: StoreLocation,
        progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore {
        try failing({ $0.isOfTheObjects }) {
            // Looked at anew: the copy may be of a later moment than the plan.
            let before = try versionName(of: staged)
            guard let manager = try manager(for: staged, checkingObjects: false) else {
                return TransformedStore(before: before, after: before ?? "")
            }
            let outcome = try withoutActuallyEscaping(progress) { progress in
                try RecordedMigration(
                    manager, of: staged, copyOf: store, supportBeside: keeper, isOriginalArchived: true
                ).run(
                    isCancelled: isCancelled, trace: trace, progress: progress)
            }
            return TransformedStore(
                before: before, after: version.name, losses: outcome.losses, notes: outcome.notes)
        }
    }

    package func losses(from store: StoreLocation) throws -> RemovedContent {
        try failing({ $0.isOfTheStore }) {
            try StoreReader.read(store) { reader in
                try StoreModel(reader).map { try manager(for: $0).losses(reader) } ?? .none
            }
        }
    }

    package func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore? {
        try failing({ $0.isOfTheObjects }) {
            try StoreReader.read(store) { reader in
                guard let model = try StoreModel(reader) else { return nil }
                let manager = try manager(for: model)
                let losses = try manager.losses(reader)
                let outcome = try MigrationDryRun(manager)?.run(on: reader) ?? .none
                // Where the store is moved and kept, these files are in the archive only.
                let leftFiles = isMoved && !losses.isEmpty ? nil : outcome.leftFiles
                return TransformedStore(
                    before: bundle?.versionName(of: model), after: version.name, losses: losses,
                    notes: losses.sentences + outcome.remarks + [leftFiles].compactMap(\.self))
            }
        }
    }

    /// What developers call the store's version; its identifiers where no version has its hashes, nil where there are none.
    package func versionName(of store: StoreLocation) throws -> String? {
        guard let store = try StoreModel.read(store) else { return nil }
        let known = bundle?.versionName(of: store)
        let identifiers = store.metadata.versionIdentifiers.filter { !$0.isEmpty }
        return known ?? (identifiers.isEmpty ? nil : identifiers.joined(separator: ", "))
    }

    private func failing<Result>(
        _ isIncompatible: (MigrationError) -> Bool, _ body: () throws -> Result
    ) throws -> Result {
        do {
            return try body()
        } catch let error as MigrationError {
            var failure = RelocationFailure(error)
            failure.isIncompatible = isIncompatible(error)
            throw failure
        }
    }
}

extension RelocationFailure {
    /// Core Data's code is in the word for scripts.
    package init(_ error: MigrationError) {
        let kind: Kind = error.isOfTheDisk ? .failed : .badData
        let reasons = error.findings.dropFirst().map { "; " + $0.sentence }.joined()
        self.init(kind, code: error.word, error.description + reasons, remedy: error.remedy)
    }
}

extension MigrationError {
    /// Found by looking: there is no way from the store's version to the one that is asked for.
    fileprivate var isOfTheStore: Bool {
        guard !isOfTheDisk, !isAmbiguous, !isOfTheAudit else { return false }
        switch code {
        case CoreDataError.incompatibleVersionHash, CoreDataError.incompatibleSchema, CoreDataError.missingSourceModel,
            CoreDataError.missingMappingModel, CoreDataError.inferredMappingModel:
            return true
        case CoreDataError.migration: return sqliteCode == nil
        default: return isOfTheObjects
        }
    }

    /// Found while it ran: objects that the new version can't hold. Whatever else may go wrong then, such as a full disk, is
    /// not the store's fault.
    fileprivate var isOfTheObjects: Bool {
        switch code {
        case CoreDataError.migrationConstraintViolation, CoreDataError.missingMandatoryProperty,
            CoreDataError.relationshipLacksMinimumCount, CoreDataError.relationshipExceedsMaximumCount:
            true
        default: false
        }
    }
}
