import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat

/// Which version of a model a store is of.
struct StoreVersion {
    private let bundle: ModelBundle
    /// Several where nothing tells which of those with the store's hashes it is; none when no version has them.
    private let versions: [ModelVersion]

    /// Nil when no version has the store's hashes; what any of several calls its entities is the same.
    var version: ModelVersion? { versions.first }

    /// Throws `CommandFailure`, `StoreError`, `SystemError`.
    init(of location: StoreLocation, _ model: String) throws {
        guard case .bundle(let bundle) = try ModelArgument(model) else {
            throw CommandFailure(
                .usage, code: "usage", "--model \(model): this is a store", remedy: "name an .xcdatamodeld or .momd")
        }
        guard let store = try StoreModel.read(location) else {
            throw CommandFailure(
                .badData, code: "not_core_data", "\(PrintablePath(location.path)): this store is not Core Data's",
                remedy: "leave --model out")
        }
        self.bundle = bundle
        versions = bundle.versions(of: store)
    }

    var sentence: String {
        guard let version else {
            return "no version of \(PrintablePath(bundle.path)) has the hashes of this store"
        }
        guard versions.count == 1 else {
            return "this store is version \(versions.map(\.name).joined(separator: " or ")), which have the same hashes"
        }
        return "this store is version \(version.name)" + (bundle.isCurrent(version) ? ", the current one" : "")
    }

    var record: JSONObject {
        var object: JSONObject = ["type": "model_version"]
        object.setPath("model", bytes: bundle.path.bytes)
        object["version"] = version.map { .string($0.name) } ?? .null
        if versions.count > 1 { object["versions"] = .array(versions.map { .string($0.name) }) }
        object["current"] = .bool(version.map(bundle.isCurrent) ?? false)
        return object
    }
}
