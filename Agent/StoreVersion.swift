import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModel
import PersistentStore

/// Which version of a model a store is of.
struct StoreVersion {
    private let bundle: ModelBundle
    /// Nil when no version has the store's hashes.
    let version: ModelVersion?

    /// Throws `CommandFailure`.
    init(of store: StoreDescription, _ model: String) throws {
        guard case .bundle(let bundle) = try ModelArgument(model) else {
            throw CommandFailure(
                .usage, code: "usage", "--model \(model): this is a store", remedy: "name an .xcdatamodeld or .momd")
        }
        guard let metadata = store.coreData else {
            throw CommandFailure(
                .badData, code: "not_core_data", "\(PrintablePath(store.path)): this store is not Core Data's",
                remedy: "leave --model out")
        }
        self.bundle = bundle
        version = bundle.version(matching: metadata.versionHashes)
    }

    var sentence: String {
        guard let version else {
            return "no version of \(PrintablePath(bundle.path)) has the hashes of this store"
        }
        return "this store is version \(version.name)" + (bundle.isCurrent(version) ? ", the current one" : "")
    }

    var record: JSONObject {
        var object: JSONObject = ["type": "model_version"]
        object.setPath("model", bytes: bundle.path.bytes)
        object["version"] = version.map { .string($0.name) } ?? .null
        object["current"] = .bool(version.map(bundle.isCurrent) ?? false)
        return object
    }
}
