import ArgumentParser
import CoreDataStore
import Glibc
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// A model as it is named on the command line: its file or directory, or a store.
enum ModelArgument {
    case bundle(ModelBundle)
    case store(StoreModel)

    /// Reads what `text` names. Throws `CommandFailure`.
    init(_ text: String) throws {
        do {
            let path = ArgumentBytes.path(text)
            if try Self.isStore(path) {
                self = .store(try Self.storeModel(text))
            } else {
                self = .bundle(try ModelBundle(reading: path))
            }
        } catch let error as ModelError {
            throw CommandFailure(error)
        } catch let error as StoreError {
            throw CommandFailure(error)
        } catch let error as SystemError {
            throw CommandFailure(error)
        } catch let error as ConfigurationError {
            throw CommandFailure(error)
        }
    }

    /// Whether the file is a SQLite database. What isn't there may be named by its group.
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
                .badData, code: "not_core_data", "\(PrintablePath(location.path)): this store is not Core Data's",
                remedy: "name a store that has the table Z_METADATA, or a model")
        }
        return model
    }

    /// Nil for a model.
    var store: StoreModel? { if case .store(let store) = self { store } else { nil } }

    var path: FilePath {
        switch self {
        case .bundle(let bundle): bundle.path
        case .store(let store): store.path
        }
    }
}

/// A version of a model as far as it is known: a store may tell its hashes only.
struct NamedModel {
    let name: String
    let isCurrent: Bool
    let hashes: [String: [UInt8]]
    let model: ManagedObjectModel?
    /// Nil for a store's.
    let version: ModelVersion?
}

extension ModelArgument {
    /// All versions, merged with the models named by `merge`. Throws `CommandFailure`.
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
                    remedy: "open the store once with the app that made it")
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
    /// The version of this name, else the current one. Throws `CommandFailure`.
    func version(named name: String?, _ merge: ModelMergeOptions) throws -> NamedModel {
        if case .bundle(let bundle) = self, let unreadable = bundle.unreadable.first(where: { $0.name == name }) {
            throw CommandFailure(unreadable.error)
        }
        let all = try versions(merge)
        guard let found = all.first(where: { name == nil ? $0.isCurrent : $0.name == name }) else {
            throw CommandFailure(
                .badData, code: "no_such_version", "\(PrintablePath(path)): there is no version “\(name ?? "")”",
                remedy: "there are " + all.map(\.name).joined(separator: ", "))
        }
        return found
    }
}

extension NamedModel {
    /// The model. Throws `CommandFailure` where only its hashes are known.
    var knownModel: ManagedObjectModel {
        get throws {
            guard let model else {
                throw CommandFailure(
                    .badData, code: "no_model", "\(name): the store carries no model that its metadata agrees with",
                    remedy: "name the model that it was made with")
            }
            return model
        }
    }
}

/// What was renamed, where a model's renaming identifiers don't say it.
struct ModelRenameOptions: ParsableArguments {
    @Option(
        name: .customLong("rename"),
        help: "OLD=NEW or ENTITY.OLD=NEW: an entity or property was renamed; may be repeated.")
    var renamings: [String] = []

    /// Throws `CommandFailure`.
    func parsed() throws -> [ModelRenaming] {
        try renamings.map { text in
            guard let renaming = ModelRenaming(text) else {
                throw CommandFailure(
                    .usage, code: "usage", "--rename \(text): this is no renaming",
                    remedy: "write Car=Automobile or Car.color=paintColor")
            }
            return renaming
        }
    }

    /// The newer model with its renaming identifiers set. Throws `CommandFailure`.
    func applied(to model: ManagedObjectModel, from old: ManagedObjectModel) throws -> ManagedObjectModel {
        guard !renamings.isEmpty else { return model }
        let parsed = try parsed()
        do { return try model.renamed(parsed, from: old) } catch let fault as ModelFault {
            throw CommandFailure(renaming: fault)
        }
    }
}

extension CommandFailure {
    /// What `--rename` says doesn't fit the models.
    init(renaming fault: ModelFault) {
        self.init(
            .usage, code: "bad_renaming", "--rename: \(fault.element.map { $0 + ": " } ?? "")\(fault.message)",
            remedy: fault.remedy)
    }
}

/// Models that are one at run time, as `NSManagedObjectModel.mergedModel(from:)` makes it.
struct ModelMergeOptions: ParsableArguments {
    /// Nothing to merge.
    static var none: ModelMergeOptions {
        var options = ModelMergeOptions()
        options.others = []
        return options
    }

    @Option(name: .customLong("merge"), help: "A model to merge in, as an app does with several; may be repeated.")
    var others: [String] = []

    /// Throws `CommandFailure`.
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
            throw CommandFailure(
                .badData, code: ModelError.Code.unmergeable.rawValue,
                "\(PrintablePath(path)): " + (fault.element.map { $0 + ": " } ?? "") + fault.message,
                remedy: fault.remedy)
        }
    }
}

extension CommandFailure {
    init(_ error: ModelError) {
        let status: ExitStatus =
            switch error.code {
            case .missing: .inputOutput
            case .unreadable:
                [.permissionDenied, .notPermitted].contains(error.errno) ? .notPermitted : .inputOutput
            case .notAModel, .malformed, .invalid, .unmergeable: .badData
            }
        self.init(status, code: error.code.rawValue, "\(error)", remedy: error.remedy)
    }
}
