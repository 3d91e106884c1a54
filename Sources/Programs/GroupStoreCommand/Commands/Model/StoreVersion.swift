import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat

/// The version of a model that a store has.
struct StoreVersion {
    private let bundle: ModelBundle
    /// The store's version. Several if versions with the same hashes can't be told apart; none if no version has the
    /// store's hashes.
    private let versions: [ModelVersion]

    /// The store's version; nil if no version has its hashes. Several candidates have the same names for their
    /// entities.
    var version: ModelVersion? { versions.first }

    /// Finds the store's version.
    init(of location: StoreLocation, _ models: [String], configuration: String? = nil) throws {
        guard case .bundle(let bundle) = try ModelArgument(models, configuration: configuration) else {
            throw CommandFailure(
                .usage, code: "usage", "--model \(models.first ?? ""): this is a store",
                remedy: "name an .xcdatamodeld or .momd")
        }
        guard let store = try StoreModel.read(location) else {
            throw CommandFailure(
                .badData, code: "not_core_data", "\(PrintablePath(location.path)): this isn't a Core Data store",
                remedy: "omit --model")
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
