import ArgumentParser
import CoreDataStore
import Glibc
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// A model named on the command line: its file or directory, or a store.
enum ModelArgument {
    case bundle(ModelBundle)
    case store(StoreModel)

    /// Reads the model or store at `text`.
    init(_ text: String) throws {
        let path = ArgumentBytes.path(text)
        if try Self.isStore(path) {
            self = .store(try Self.storeModel(text))
        } else {
            self = .bundle(try ModelBundle(reading: path))
        }
    }

    /// Reads the model or store at the only path, or merges the models at several. With a configuration, the models are
    /// restricted to its entities; a store has those that it has.
    init(_ texts: [String], configuration: String? = nil) throws {
        if texts.count == 1 {
            self = try ModelArgument(texts[0])
        } else {
            if let store = try texts.first(where: { try Self.isStore(ArgumentBytes.path($0)) }) {
                throw CommandFailure(
                    .usage, code: "usage", "\(PrintableText(store)): a store can't be merged with models",
                    remedy: "name models")
            }
            self = .bundle(try ModelBundle(merging: texts.map { try ModelBundle(reading: ArgumentBytes.path($0)) }))
        }
        if case .bundle(let bundle) = self, let configuration {
            self = .bundle(try bundle.restricted(toConfiguration: configuration))
        }
    }

    /// Returns whether the path is a SQLite database. If nothing exists there, it may be `GROUP_ID/NAME`.
    private static func isStore(_ path: FilePath) throws -> Bool {
        guard let status = FileStatus(following: path) else {
            return (try? StoreArgument(path.string).location()) != nil
        }
        guard status.kind == .regular else { return false }
        let file = try Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK)
        return try file.read(count: 16, at: 0, path: path) == Array("SQLite format 3\0".utf8)
    }

    private static func storeModel(_ text: String) throws -> StoreModel {
        let location = try StoreArgument(text).location()
        guard let model = try StoreModel.read(location) else {
            throw CommandFailure(
                .badData, code: "not_core_data", "\(PrintablePath(location.path)): this isn't a Core Data store",
                remedy: "name a store with the table Z_METADATA, or a model")
        }
        return model
    }

    /// The model with all of its versions; nil for a store.
    var bundle: ModelBundle? { if case .bundle(let bundle) = self { bundle } else { nil } }

    /// The store; nil for a model.
    var store: StoreModel? { if case .store(let store) = self { store } else { nil } }

    /// The paths of all models that were merged.
    var paths: [FilePath] {
        switch self {
        case .bundle(let bundle): bundle.paths
        case .store(let store): [store.path]
        }
    }

    var path: FilePath {
        switch self {
        case .bundle(let bundle): bundle.path
        case .store(let store): store.path
        }
    }
}

/// A model version, as far as it is known: a store may provide only its hashes.
struct NamedModel {
    let name: String
    let isCurrent: Bool
    let hashes: [String: [UInt8]]
    let model: ManagedObjectModel?
    /// The version; nil for a store's model.
    let version: ModelVersion?
}

extension ModelArgument {
    /// Returns all versions, merged with the models of `--merge`.
    func versions(_ merge: ModelMergeOptions) throws -> [NamedModel] {
        switch self {
        case .bundle(let bundle):
            return try bundle.versions.map { version in
                let merged = version.replacing(try merge.merged(version.model, path))
                return NamedModel(
                    name: version.name, isCurrent: bundle.isCurrent(version),
                    hashes: merged.model.entityVersionHashesByName, model: merged.model, version: merged)
            }
        case .store(let store):
            let hashes = store.metadata.versionHashes
            guard !hashes.isEmpty else {
                throw CommandFailure(
                    .badData, code: "no_version_hashes",
                    "\(PrintablePath(store.path)): the store's metadata has no version hashes"
                        + (store.metadata.problem.map { ": " + $0 } ?? ""),
                    remedy: "open the store once with the app that created it")
            }
            return [
                NamedModel(
                    name: store.path.stem ?? "", isCurrent: true, hashes: hashes, model: store.cachedModel, version: nil
                )
            ]
        }
    }
}

extension ModelArgument {
    /// Returns the version with this name, or the current one if the name is nil.
    func version(named name: String?, _ merge: ModelMergeOptions) throws -> NamedModel {
        if case .bundle(let bundle) = self, let unreadable = bundle.unreadable.first(where: { $0.name == name }) {
            throw unreadable.error
        }
        let all = try versions(merge)
        guard let found = all.first(where: { name == nil ? $0.isCurrent : $0.name == name }) else {
            throw CommandFailure(
                .badData, code: "no_such_version", "\(PrintablePath(path)): there is no version “\(name ?? "")”",
                remedy: "the versions are " + all.map(\.name).joined(separator: ", "))
        }
        return found
    }
}

extension NamedModel {
    /// The model. Throws `CommandFailure` if only its hashes are known.
    var knownModel: ManagedObjectModel {
        get throws {
            guard let model else {
                throw CommandFailure(
                    .badData, code: "no_model", "\(name): the store has no model that matches its metadata",
                    remedy: "name the model that it was created with")
            }
            return model
        }
    }
}

/// The renamings that a model's renaming identifiers don't declare.
struct ModelRenameOptions: ParsableArguments {
    @Option(
        name: .customLong("rename"),
        help: ArgumentHelp(
            "Treat an entity or property as renamed: OLD=NEW or ENTITY.OLD=NEW. May be repeated.", valueName: "old=new")
    )
    var renamings: [String] = []

    /// Parses the renamings. Throws `CommandFailure`.
    func parsed() throws -> [ModelRenaming] {
        try renamings.map { text in
            guard let renaming = ModelRenaming(text) else {
                throw CommandFailure(
                    .usage, code: "usage", "--rename \(text): not a renaming",
                    remedy: "write Car=Automobile or Car.color=paintColor")
            }
            return renaming
        }
    }

    /// Returns the newer model with its renaming identifiers set.
    func applied(to model: ManagedObjectModel, from old: ManagedObjectModel) throws -> ManagedObjectModel {
        guard !renamings.isEmpty else { return model }
        return try model.renamed(parsed(), from: old)
    }
}

/// Models that form one model at run time, as `NSManagedObjectModel.mergedModel(from:)` makes it.
struct ModelMergeOptions: ParsableArguments {
    /// Options without models to merge.
    static var none: ModelMergeOptions {
        var options = ModelMergeOptions()
        options.others = []
        options.configuration = nil
        return options
    }

    @Option(help: "Use only the entities of this configuration of the model.")
    var configuration: String?

    @Option(
        name: .customLong("merge"),
        // The former way: --model repeated does the same.
        help: .hidden)
    var others: [String] = []

    /// Returns the model merged with the others.
    func merged(_ model: ManagedObjectModel, _ path: FilePath) throws -> ManagedObjectModel {
        guard !others.isEmpty else { return model }
        let more = try others.map { other in
            guard case .bundle(let bundle) = try ModelArgument(other) else {
                throw CommandFailure(
                    .usage, code: "usage", "--merge \(other): a store can't be merged", remedy: "name a model")
            }
            return bundle.current.model
        }
        do { return try ManagedObjectModel(merging: [model] + more) } catch let fault as ModelFault {
            throw ModelError(.unmergeable, path, element: fault.element, fault.message, remedy: fault.remedy)
        }
    }
}

/// The option that selects a version of a model. `FormerOptions` accepts its former name, `--version NAME`.
struct ModelVersionOption: ParsableArguments {
    @Option(
        name: .customLong("model-version"),
        help: ArgumentHelp("Use this version of the model instead of the current one.", valueName: "name"))
    var modelVersion: String?
}
