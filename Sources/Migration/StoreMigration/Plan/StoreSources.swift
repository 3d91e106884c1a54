import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels

/// The models that a store may have: one, or several versions with the same hashes that the store's content can't tell
/// apart.
package struct StoreSources {
    package struct Source {
        package let model: ManagedObjectModel
        /// The bundle's version; nil if the model is the one that the store carries.
        package let version: ModelVersion?
    }

    private let store: StoreModel
    /// The candidates, the most likely first; empty if the store's model is unknown.
    package let all: [Source]

    package init(_ store: StoreModel, _ bundle: ModelBundle?) {
        self.store = store
        let versions = bundle?.versions(of: store) ?? []
        all =
            versions.isEmpty
            ? store.cachedModel.map { [Source(model: $0, version: nil)] } ?? []
            : versions.map { Source(model: $0.model, version: $0) }
    }

    /// Returns the result of `make`, if it is the same for all sources. Rethrows the error of `make` if it fails for
    /// all of them; throws `MigrationError` if the results differ.
    package func commonResult<Output>(
        isSame: (Output, Output) -> Bool, _ make: (Source) throws -> Output
    ) throws -> Output {
        let results = all.map { source in Result { try make(source) } }
        guard let first = results.first else { throw ambiguity }
        let outputs = results.compactMap { try? $0.get() }
        guard !outputs.isEmpty else { return try first.get() }
        guard outputs.count == results.count, outputs.dropFirst().allSatisfy({ isSame($0, outputs[0]) }) else {
            throw ambiguity
        }
        return outputs[0]
    }

    private var ambiguity: MigrationError {
        let names = all.compactMap(\.version?.name)
        var error = MigrationError(
            CoreDataError.missingSourceModel,
            "\(PrintablePath(store.path)): the store may be of \(names.joined(separator: " or ")), which have the same "
                + "version hashes; they are migrated in different ways, and neither the store's version identifier nor "
                + "its model cache tells which it is",
            remedy: "name a copy of the model without the versions that the store isn't of")
        error.isAmbiguous = true
        return error
    }
}

extension [MigrationStep] {
    /// Returns true if both lists of steps do the same to a store.
    func isSame(as other: [MigrationStep]) -> Bool {
        count == other.count
            && zip(self, other).allSatisfy { $0.destinationName == $1.destinationName && $0.method == $1.method }
    }
}
