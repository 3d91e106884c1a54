import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The migration of a store to a version of its model, in the form that relocations perform.
package struct MigrationTransform: StoreTransform {
    private let version: ModelVersion
    private let bundle: ModelBundle?
    private let renamings: [ModelRenaming]
    private let mappings: [MappingModelFile]
    private let options: MigrationOptions
    /// The plans for the stores that the migration was planned for.
    private var plans: [MigrationPlan] = []
    private let isCancelled: @Sendable () -> Bool
    /// An app's stages; empty for the fewest steps.
    package var stages: [MigrationStage] = []
    /// The policy classes, by the names that mapping models use.
    package var policies: EntityMigrationPolicies = [:]
    /// Receives each SQL statement that a run executes; nil for none.
    package var trace: StatementTrace?
    /// Receives each fault that a validation finds.
    package var faultHandler: (@Sendable (InvalidContent.Fault) -> Void)?

    /// Assembles the migration to a version of the request's model. Reads the mapping models.
    ///
    /// - Parameter bundle: The model with the intermediate versions; nil if the target has no other versions.
    package init(
        _ request: MigrationRequest, to version: ModelVersion, in bundle: ModelBundle?,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) throws(MappingModelError) {
        self.version = version
        self.bundle = bundle
        renamings = request.renamings
        mappings = try MappingModelFile.files(request.mappings, beside: bundle?.paths ?? [version.path])
        options = request.options
        self.isCancelled = isCancelled
    }

    /// Returns the plan of a store's migration; nil if it isn't a Core Data store. Throws the errors of `plan`, and
    /// `StoreError`, `SystemError`.
    package func plan(for store: StoreLocation, checkingObjects: Bool = true) throws -> MigrationPlan? {
        try StoreReader.read(store) { reader in
            guard let model = try StoreModel(reader) else { return nil }
            let plan = try plan(for: model)
            if checkingObjects { try plan.check(reader) }
            return plan
        }
    }

    /// Returns the plan of the migration of a store with this model: the one that this migration carries, or, if the
    /// store has another model than it was planned for, a new one. Throws `MigrationError`, and `ModelFault` for a
    /// renaming that doesn't fit.
    package func plan(for store: StoreModel) throws -> MigrationPlan {
        try plans.first { $0.isPlan(for: store) }
            ?? MigrationPlan(
                for: store, to: version, in: bundle, mappings: mappings, renamings: renamings, stages: stages,
                options: options, policies: policies)
    }

    package func planned(for store: StoreLocation) -> MigrationTransform {
        // A store that is busy is planned when it is read.
        guard let model = try? StoreReader.read(store, busyTimeout: .zero, { try StoreModel($0) }),
            !plans.contains(where: { $0.isPlan(for: model) }), let plan = try? plan(for: model)
        else { return self }
        return carrying(plan)
    }

    /// Returns this migration with a plan that it has made.
    package func carrying(_ plan: MigrationPlan) -> MigrationTransform {
        var planned = self
        planned.plans.append(plan)
        return planned
    }

    /// Returns the performer of a plan, which can be cancelled and traced as this migration can.
    package func manager(_ plan: MigrationPlan) -> MigrationManager {
        var manager = MigrationManager(plan)
        manager.isCancelled = isCancelled
        manager.trace = trace
        manager.faultHandler = faultHandler
        return manager
    }

    package var target: String { version.name }

    /// The model that stores have afterwards.
    package var targetModel: ManagedObjectModel { version.model }

    package func isOpenable(knowing versions: Set<String>) -> Bool {
        let names = version.model.versionIdentifiers.subtracting([""]).union([
            version.name, version.model.versionChecksum,
        ])
        return !names.isDisjoint(with: versions)
    }

    package func isNeeded(_ store: StoreLocation) throws -> Bool {
        try translatingErrors(isIncompatible: { $0.isIncompatibleStore }) {
            guard let plan = try plan(for: store) else {
                var failure = RelocationFailure(
                    .badData, code: "not_core_data",
                    "\(PrintablePath(store.path)): this is not a Core Data store, so it can't be migrated to a model",
                    remedy: "leave the model out, or name a store that has the table Z_METADATA")
                failure.isIncompatible = true
                throw failure
            }
            return !plan.steps.isEmpty
        }
    }

    package func run(
        on staged: StoreLocation, of store: FilePath, supportBeside supportOwner: StoreLocation,
        progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore {
        try translatingErrors(isIncompatible: { $0.isIncompatibleObject }) {
            // Read the version again, since the copy may be newer than the plan.
            let before = try versionName(of: staged)
            guard let plan = try plan(for: staged, checkingObjects: false) else {
                return TransformedStore(before: before, after: before ?? "")
            }
            let outcome = try withoutActuallyEscaping(progress) { progress in
                var manager = manager(plan)
                manager.store = store
                manager.supportOwner = supportOwner.pathForSQLite
                manager.isOriginalArchived = true
                manager.progress = progress
                return try RecordedMigration(manager, of: staged).run()
            }
            return TransformedStore(
                before: before, after: version.name, losses: outcome.losses, notes: outcome.notes)
        }
    }

    package func mayRemoveContent(of store: StoreLocation) throws -> Bool {
        try translatingErrors(isIncompatible: { $0.isIncompatibleStore }) {
            guard let model = try StoreModel.read(store) else { return false }
            return try plan(for: model).mayRemoveContent
        }
    }

    package func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore? {
        try translatingErrors(isIncompatible: { $0.isIncompatibleObject }) {
            try StoreReader.read(store) { reader in
                guard let model = try StoreModel(reader) else { return nil }
                let plan = try plan(for: model)
                let outcome = try MigrationDryRun(plan)?.run(on: reader, faultHandler: faultHandler) ?? .none
                // If the store is moved and archived, orphaned files exist only in the archive.
                let orphanedFilesNote = isMoved && !outcome.losses.isEmpty ? nil : outcome.orphanedFilesNote
                return TransformedStore(
                    before: plan.sourceName, after: version.name, losses: outcome.losses,
                    notes: outcome.losses.sentences + outcome.remarks + [orphanedFilesNote].compactMap(\.self))
            }
        }
    }

    /// Returns the developers' name for the store's version; its version identifiers if no version has its hashes, or
    /// nil if it has none.
    package func versionName(of store: StoreLocation) throws -> String? {
        guard let store = try StoreModel.read(store) else { return nil }
        let name = bundle?.versionName(of: store)
        let identifiers = store.metadata.versionIdentifiers.filter { !$0.isEmpty }
        return name ?? (identifiers.isEmpty ? nil : identifiers.joined(separator: ", "))
    }

    private func translatingErrors<Result>(
        isIncompatible: (MigrationError) -> Bool, _ body: () throws -> Result
    ) throws -> Result {
        do {
            return try body()
        } catch let error as MigrationError {
            var failure = RelocationFailure(error)
            failure.isIncompatible = isIncompatible(error)
            throw failure
        } catch let fault as ModelFault {
            throw RelocationFailure(.badData, fault)
        }
    }
}

extension RelocationFailure {
    /// Translates a migration error. The stable code for scripts includes Core Data's code.
    package init(_ error: MigrationError) {
        let kind: Kind = error.isOfTheDisk ? .failed : .badData
        self.init(kind, error)
        // The message itself names the first finding, or none.
        let isNamed = error.findings.first.map { error.message.contains($0.sentence) } ?? false
        message += error.findings.dropFirst(isNamed ? 1 : 0).map { "; " + $0.sentence }.joined()
    }
}

extension MigrationError {
    /// True if planning found no path from the store's version to the requested one.
    fileprivate var isIncompatibleStore: Bool {
        guard !isOfTheDisk, !isAmbiguous, !isOfNamedMapping, !isOfTheAudit else { return false }
        switch code {
        case CoreDataError.incompatibleVersionHash, CoreDataError.incompatibleSchema, CoreDataError.missingSourceModel,
            CoreDataError.missingMappingModel, CoreDataError.inferredMappingModel:
            return true
        case CoreDataError.migration: return sqliteCode == nil
        default: return isIncompatibleObject
        }
    }

    /// True if the run found objects that the new version can't hold. Other failures of a run, such as a full disk, are
    /// not the store's fault.
    fileprivate var isIncompatibleObject: Bool {
        switch code {
        case CoreDataError.migrationConstraintViolation, CoreDataError.missingMandatoryProperty,
            CoreDataError.relationshipLacksMinimumCount, CoreDataError.relationshipExceedsMaximumCount:
            true
        // Objects that a mapping model made, and the newer version's rules refuse.
        case CoreDataError.migration: sqliteCode == nil && !findings.isEmpty && !isOfTheAudit
        default: false
        }
    }
}
