import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// Which version of a model a store is to be of, what helps it there, and what is to be done where it can't be: the same for
/// a command, a configuration and a client of the agent.
package struct MigrationRequest: Sendable, Equatable {
    /// An `.xcdatamodeld`, `.xcdatamodel`, `.momd`, `.mom`, or a store.
    package var model: FilePath
    /// A version of the model other than the current one.
    package var version: String?
    /// Besides those that lie in the model's directory.
    package var mappings: [FilePath] = []
    package var renamings: [ModelRenaming] = []
    package var allowsPartialHistory = false
    package var onIncompatible = RelocationRequest.IncompatiblePolicy.refuse
    /// Installed where a store is set aside; nil: an empty one.
    package var defaultStore: FilePath?

    package init(_ model: FilePath) { self.model = model }
}

extension RelocationRequest {
    /// Makes the store one of what `migration` asks for. Throws `RelocationFailure` where the model, a mapping model or the
    /// default store can't be read.
    package mutating func migrate(
        _ migration: MigrationRequest, trace: StatementTrace? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) throws(RelocationFailure) {
        let (version, bundle) = try migration.target()
        let transform = MigrationTransform(
            to: version, in: bundle, mappings: try migration.mappingModels(), renamings: migration.renamings,
            options: MigrationOptions(allowsPartialHistory: migration.allowsPartialHistory), trace: trace,
            isCancelled: isCancelled)
        self.transform = transform
        guard migration.onIncompatible == .setAside else { return }
        replacement = DefaultStore(migration.defaultStore, of: version, transform)
    }
}

extension MigrationRequest {
    fileprivate func target() throws(RelocationFailure) -> (ModelVersion, ModelBundle?) {
        let bundle: ModelBundle
        do {
            if let store = try storeModel() { return (store, nil) }
            bundle = try ModelBundle(reading: model)
        } catch let error as ModelError {
            throw RelocationFailure(
                .badData, code: error.code.rawValue, "the model can't be read: \(error)", remedy: error.remedy)
        } catch let failure as RelocationFailure {
            throw failure
        } catch {
            throw RelocationFailure(
                .badData, code: "bad_model", "the model can't be read: \(error)", remedy: "name a model that is there")
        }
        guard let version else { return (bundle.current, bundle) }
        if let unreadable = bundle.unreadable.first(where: { $0.name == version }) {
            throw RelocationFailure(
                .badData, code: unreadable.error.code.rawValue, "the version can't be read: \(unreadable.error)",
                remedy: unreadable.error.remedy)
        }
        guard let found = bundle.versions.first(where: { $0.name == version }) else {
            throw RelocationFailure(
                .badData, code: "no_such_version", "\(PrintablePath(model)): there is no version “\(version)”",
                remedy: "there are " + bundle.versions.map(\.name).joined(separator: ", "))
        }
        return (found, bundle)
    }

    /// The model that a store carries; nil where `model` is no store.
    private func storeModel() throws -> ModelVersion? {
        guard FileStatus(following: model)?.kind == .regular else { return nil }
        let (directory, last) = try Directory.resolving(file: model)
        guard let start = try? Descriptor(opening: model, flags: 0).read(count: 16, at: 0, path: model),
            start == Array("SQLite format 3\0".utf8), let name = StoreName(last)
        else { return nil }
        let store = try StoreModel.read(StoreLocation(directory: directory, name: name))
        guard let known = store?.cachedModel else {
            throw RelocationFailure(
                .badData, code: "no_model",
                "\(PrintablePath(model)): the store carries no model that its metadata agrees with",
                remedy: "name the model that it was made with")
        }
        return ModelVersion(name: model.stem ?? "", model: known, path: model)
    }

    fileprivate func mappingModels() throws(RelocationFailure) -> [MappingModelFile] {
        do {
            return try MappingModelFile.files(mappings, beside: model)
        } catch {
            throw RelocationFailure(
                .badData, code: error.code.rawValue, "a mapping model can't be read: \(error)", remedy: error.remedy)
        }
    }
}

extension MappingModelFile {
    /// Those named, then those that lie beside the model or in it.
    package static func files(
        _ named: [FilePath], beside model: FilePath
    ) throws(MappingModelError) -> [MappingModelFile] {
        var found: [MappingModelFile] = []
        for path in named {
            var file = try MappingModelFile(reading: path)
            file.isNamed = true
            found.append(file)
        }
        for place in places(around: model) where FileStatus(following: place)?.kind == .directory {
            for file in try MappingModelFile.all(in: place)
            where !found.contains(where: { $0.path.lexicallyNormalized() == file.path.lexicallyNormalized() }) {
                found.append(file)
            }
        }
        return found
    }

    /// The model, the directory that it is in, and where that is a bundle of versions, the one that the bundle is in.
    private static func places(around model: FilePath) -> [FilePath] {
        var found = [model]
        var place = model.lexicallyNormalized()
        repeat {
            let parent = place.removingLastComponent()
            place = parent.isEmpty ? "." : parent
            found.append(place)
        } while ["xcdatamodel", "xcdatamodeld", "momd"].contains(place.extension)
        return found
    }
}
