import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// A request to migrate a store: the target version, the means, and the policy for an incompatible store. Commands, the
/// configuration and clients of the agent share it.
package struct MigrationRequest: Sendable, Equatable {
    /// The path of an `.xcdatamodeld`, `.xcdatamodel`, `.momd`, `.mom`, or a store.
    package var model: FilePath
    /// The paths of models that are merged with it.
    package var mergedModels: [FilePath] = []
    /// The configuration whose entities the store holds; nil for all of the model's entities.
    package var configuration: String?
    /// The name of the target version; nil for the model's current one.
    package var version: String?
    /// The paths of mapping models in addition to those in the model's directory.
    package var mappings: [FilePath] = []
    package var renamings: [ModelRenaming] = []
    package var options = MigrationOptions()
    package var onIncompatible = RelocationRequest.IncompatiblePolicy.refuse
    /// The store that replaces one that is set aside; nil for an empty store.
    package var defaultStore: FilePath?

    package init(_ model: FilePath) { self.model = model }
}

extension RelocationRequest {
    /// Adds a migration to the relocation. Throws `RelocationFailure` if the model, a mapping model or the default
    /// store can't be read.
    package mutating func migrate(
        _ migration: MigrationRequest, trace: StatementTrace? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false },
        faultHandler: (@Sendable (InvalidContent.Fault) -> Void)? = nil
    ) throws(RelocationFailure) {
        let (version, bundle) = try migration.target()
        var transform: MigrationTransform
        do { transform = try MigrationTransform(migration, to: version, in: bundle, isCancelled: isCancelled) } catch {
            throw RelocationFailure(.badData, error, context: "a mapping model can't be read: ")
        }
        transform.trace = trace
        transform.faultHandler = faultHandler
        self.transform = transform
        guard migration.onIncompatible == .setAside else { return }
        replacement = DefaultStore(migration.defaultStore, of: version, transform)
    }
}

extension MigrationRequest {
    /// Returns the target version, and the model with its other versions; nil if the model comes from a store.
    fileprivate func target() throws(RelocationFailure) -> (ModelVersion, ModelBundle?) {
        let bundle: ModelBundle
        do {
            if mergedModels.isEmpty, configuration == nil, let store = try storeModel() { return (store, nil) }
            bundle = try ModelBundle(reading: [model] + mergedModels, configuration: configuration)
        } catch let error as ModelError {
            throw RelocationFailure(.badData, error, context: "the model can't be read: ")
        } catch let failure as RelocationFailure {
            throw failure
        } catch {
            throw RelocationFailure(
                .badData, code: "bad_model", "the model can't be read: \(error)", remedy: "name an existing model")
        }
        guard let version else { return (bundle.current, bundle) }
        if let unreadable = bundle.unreadable.first(where: { $0.name == version }) {
            throw RelocationFailure(.badData, unreadable.error, context: "the version can't be read: ")
        }
        guard let found = bundle.versions.first(where: { $0.name == version }) else {
            throw RelocationFailure(
                .badData, code: "no_such_version", "\(PrintablePath(model)): there is no version “\(version)”",
                remedy: "there are " + bundle.versions.map(\.name).joined(separator: ", "))
        }
        return (found, bundle)
    }

    /// Returns the model that the store at `model` carries; nil if `model` is not a store.
    private func storeModel() throws -> ModelVersion? {
        guard FileStatus(following: model)?.kind == .regular else { return nil }
        let (directory, last) = try Directory.resolving(file: model)
        guard let start = try? Descriptor(opening: model, flags: 0).read(count: 16, at: 0, path: model),
            start == Array("SQLite format 3\0".utf8), let name = StoreName.existing(last)
        else { return nil }
        let store = try StoreModel.read(StoreLocation(directory: directory, name: name))
        guard let cachedModel = store?.cachedModel else {
            throw RelocationFailure(
                .badData, code: "no_model",
                "\(PrintablePath(model)): the store carries no model that agrees with its metadata",
                remedy: "name the model that it was made with")
        }
        return ModelVersion(name: model.stem ?? "", model: cachedModel, path: model)
    }
}

extension MappingModelFile {
    /// Returns the named mapping models, then those found beside the models or in them.
    package static func files(
        _ named: [FilePath], beside models: [FilePath]
    ) throws(MappingModelError) -> [MappingModelFile] {
        var files: [MappingModelFile] = []
        for path in named {
            var file = try MappingModelFile(reading: path)
            file.isNamed = true
            files.append(file)
        }
        for directory in models.flatMap(directories) where FileStatus(following: directory)?.kind == .directory {
            for file in try MappingModelFile.all(in: directory)
            where !files.contains(where: { $0.path.lexicallyNormalized() == file.path.lexicallyNormalized() }) {
                files.append(file)
            }
        }
        return files
    }

    /// Returns the model, its directory, and, if that is a bundle of versions, the directory of the bundle.
    private static func directories(around model: FilePath) -> [FilePath] {
        var directories = [model]
        var current = model.lexicallyNormalized()
        repeat {
            let parent = current.removingLastComponent()
            current = parent.isEmpty ? "." : parent
            directories.append(current)
        } while ["xcdatamodel", "xcdatamodeld", "momd"].contains(current.extension)
        return directories
    }
}
