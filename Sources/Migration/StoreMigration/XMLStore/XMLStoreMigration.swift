import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The conversion of an XML store to a SQLite store of a version of its model: by way of the version that the XML store
/// has, if that is another one.
package struct XMLStoreMigration {
    package let file: XMLStoreFile
    /// The version that the XML store has.
    package let source: ModelVersion
    private let transform: MigrationTransform

    package struct Result {
        /// The names of the versions that the store was migrated to after the conversion, one after another.
        package let steps: [String]
        package let losses: RemovedContent
        package let notes: [String]
    }

    /// - Parameters:
    ///   - versions: The versions of the model, among which the store's is sought.
    ///   - transform: The migration to the target version.
    ///
    /// Throws `MigrationError` if none of the versions, or more than one, can be the store's.
    package init(_ file: XMLStoreFile, versions: [ModelVersion], _ transform: MigrationTransform) throws {
        self.file = file
        self.transform = transform
        source = try Self.version(of: file, versions)
    }

    /// Returns the version whose hashes the file has. A file without hashes, which old versions of Core Data write, is
    /// of the only version that has all of its entities and properties.
    private static func version(of file: XMLStoreFile, _ versions: [ModelVersion]) throws -> ModelVersion {
        let hashes = file.versionHashes
        let candidates =
            hashes.isEmpty
            ? versions.filter { (try? XMLStoreConversion(file, of: $0.model).checkFit()) != nil }
            : versions.filter { $0.model.entityVersionHashesByName == hashes }
        let distinct = candidates.reduce(into: [ModelVersion]()) { found, version in
            if !found.contains(where: {
                $0.model.entityVersionHashesByName == version.model.entityVersionHashesByName
            }) {
                found.append(version)
            }
        }
        if let only = distinct.first, distinct.count == 1 { return only }
        let path = PrintablePath(file.path)
        guard distinct.isEmpty else {
            throw MigrationError(
                CoreDataError.missingSourceModel,
                "\(path): the XML store has no version hashes, and may be of "
                    + distinct.map { "“\($0.name)”" }.joined(separator: " or "),
                remedy: "convert it with a --model that has only the version that it was made with, then migrate it")
        }
        if hashes.isEmpty, let only = versions.first, versions.count == 1 {
            // The error says what doesn't fit.
            _ = try XMLStoreConversion(file, of: only.model).checkFit()
        }
        throw MigrationError(
            CoreDataError.missingSourceModel,
            CoreDataError.reason(CoreDataError.missingSourceModel)
                + ": \(path): no version of the model "
                + (hashes.isEmpty
                    ? "has all of the XML store's entities and properties" : "has the XML store's hashes"),
            remedy: "name the model with the version that it was made with")
    }

    /// Fills the empty store `staged`. Throws `XMLStoreError`, `MigrationError`, `StoreError`, `SystemError`.
    package func run(
        into staged: StoreLocation, isCancelled: @escaping () -> Bool = { false },
        progress: @escaping MigrationManager.ProgressHandler = { _, _ in }
    ) throws -> Result {
        progress(0, "converting")
        var conversion = try XMLStoreConversion(file, of: source.model)
        try conversion.run(into: staged.pathForSQLite)
        guard let model = try StoreModel.read(staged) else {
            return Result(steps: [], losses: .none, notes: conversion.notes)
        }
        let plan = try transform.plan(for: model)
        guard !plan.steps.isEmpty else {
            return Result(steps: [], losses: .none, notes: conversion.notes)
        }
        try StoreReader.read(staged) { try plan.check($0) }
        var manager = transform.manager(plan)
        manager.isCancelled = isCancelled
        manager.progress = progress
        let outcome = try RecordedMigration(manager, of: staged).run()
        return Result(
            steps: plan.steps.map(\.destinationName), losses: outcome.losses,
            notes: conversion.notes + outcome.notes)
    }

    /// Tries the conversion and the migration in a scratch directory, and returns what `run` would. Throws its errors.
    package func rehearse() throws -> Result {
        let scratch = try ScratchDirectory()
        guard let name = StoreName("Rehearsal.sqlite") else { return Result(steps: [], losses: .none, notes: []) }
        let new = try NewStore(at: StoreLocation(directory: try Directory(scratch.path), name: name))
        return try run(into: new.staged)
    }
}
