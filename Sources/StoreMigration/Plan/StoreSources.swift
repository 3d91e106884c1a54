import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels

/// The models that a store may be of: one, or several versions with the same hashes that nothing in the store tells apart.
package struct StoreSources {
    package struct Source {
        package let model: ManagedObjectModel
        /// Nil where the model is the one that the store carries.
        package let version: ModelVersion?
    }

    private let store: StoreModel
    /// The likeliest first; none where the store's model isn't known.
    package let all: [Source]

    package init(_ store: StoreModel, _ bundle: ModelBundle?) {
        self.store = store
        let versions = bundle?.versions(of: store) ?? []
        all =
            versions.isEmpty
            ? store.cachedModel.map { [Source(model: $0, version: nil)] } ?? []
            : versions.map { Source(model: $0.model, version: $0) }
    }

    /// What comes of each source, where it is the same for all. Throws what `make` throws where it throws for all, and
    /// `MigrationError` where the sources lead to different ends.
    package func agreed<Made>(
        isSame: (Made, Made) -> Bool, _ make: (Source) throws -> Made
    ) throws -> Made {
        let results = all.map { source in Result { try make(source) } }
        guard let first = results.first else { throw ambiguity }
        let made = results.compactMap { try? $0.get() }
        guard !made.isEmpty else { return try first.get() }
        guard made.count == results.count, made.dropFirst().allSatisfy({ isSame($0, made[0]) }) else { throw ambiguity }
        return made[0]
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
    /// Whether both do the same to a store.
    func isSame(as other: [MigrationStep]) -> Bool {
        count == other.count
            && zip(self, other).allSatisfy { $0.destinationName == $1.destinationName && $0.method == $1.method }
    }
}
