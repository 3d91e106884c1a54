import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The replacement for a store that can't be migrated: a copy of a store that the app ships, migrated if it has an
/// older version, or an empty store as Core Data would create it.
package struct DefaultStore: StoreReplacement {
    private let version: ModelVersion
    private let migration: MigrationTransform
    /// The shipped store; nil for an empty store.
    private let file: FilePath?

    package init(_ file: FilePath?, of version: ModelVersion, _ migration: MigrationTransform) {
        self.file = file
        self.version = version
        self.migration = migration
    }

    package var description: String {
        file.map { "a copy of \(PrintablePath($0))" } ?? "an empty store of \(version.name)"
    }

    package var bytes: Int64 {
        guard let file, let location = try? location(file) else { return 0 }
        let parts = [location.name.database, location.name.wal]
        return parts.reduce(0) { $0 + ((try? location.directory.status($1))?.size ?? 0) }
    }

    package func check() throws {
        guard let file else {
            do throws(ModelFault) { try StoreLayout(version.model).validate() } catch {
                throw RelocationFailure(.badData, error)
            }
            return
        }
        try blaming(file) { _ = try migration.isNeeded(location(file)) }
    }

    package func make(
        at staged: StoreLocation, replacing old: StoreLocation,
        progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore {
        // The name is only informative; an unreadable store has none.
        let before = try? migration.versionName(of: old)
        guard let file else {
            try StoreLayout(version.model).makeStore(at: staged.pathForSQLite)
            return TransformedStore(before: before, after: version.name)
        }
        let notes = try blaming(file) { try copy(location(file), to: staged, instead: old, progress) }
        return TransformedStore(before: before, after: version.name, notes: notes)
    }

    private func copy(
        _ origin: StoreLocation, to staged: StoreLocation, instead old: StoreLocation,
        _ progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> [String] {
        guard
            try origin.directory.status(origin.name.database)?.identity
                != old.directory.status(old.name.database)?.identity
        else { throw StoreError.notAFile(origin.path) }
        try StoreReader.read(origin) { reader in
            try reader.copy(to: staged.pathForSQLite)
            let content = try StoreContent(reader)
            let difference = try StoreReader.read(staged) { try content.difference(from: StoreContent($0)) }
            if let difference {
                throw StoreError.corrupt(code: 0, message: "the copy is not the same: \(difference)", origin.path)
            }
        }
        try origin.copySupport(to: staged)
        let migration = migration.planned(for: staged)
        return try migration.isNeeded(staged)
            ? migration.run(on: staged, of: origin.path, supportBeside: staged, progress: progress).notes : []
    }

    private func location(_ file: FilePath) throws -> StoreLocation {
        let (directory, last) = try Directory.resolving(file: file)
        guard let name = StoreName.existing(last) else { throw StoreError.notAFile(file) }
        return StoreLocation(directory: directory, name: name)
    }

    /// Runs `body` and attributes its errors to the default store instead of the store that it replaces.
    private func blaming<Result>(_ file: FilePath, _ body: () throws -> Result) throws -> Result {
        let message: String
        do {
            return try body()
        } catch let failure as RelocationFailure {
            guard failure.kind == .badData else { throw failure }
            message = failure.message
        } catch let error as StoreError where !error.isFull {
            message = "\(error)"
        } catch let error as SystemError
            where [.noSuchFileOrDirectory, .notDirectory, .permissionDenied].contains(error.errno)
        {
            message = "\(error)"
        }
        throw RelocationFailure(
            .badData, code: "bad_default_store", "the default store \(PrintablePath(file)) can't be used: \(message)",
            remedy: "name a store of \(version.name), or of a version that can be migrated to it")
    }
}
