import PropertyLists
import SystemPackage

/// The codec for the model that a store carries: `Z_CONTENT` of `Z_MODELCACHE`, a deflated keyed archive.
package enum ModelCache {
    /// The limit of the inflated archive, in bytes. A few bytes can expand to very many.
    private static let maximumArchiveSize = PropertyListValue.maximumSize
    /// The limit of `Z_CONTENT`, in bytes.
    package static let maximumContentSize = 16 << 20

    /// Decodes the model of the store at `store`. Throws `ModelError`.
    package static func model(_ content: [UInt8], of store: FilePath) throws -> ManagedObjectModel {
        guard let archive = Deflate.inflate(content, limit: maximumArchiveSize) else {
            throw ModelError(
                .malformed, store, element: "Z_MODELCACHE",
                "the store's model cache is damaged or larger than \(maximumArchiveSize >> 20) MiB",
                remedy: "name the model that the store was made with")
        }
        return try ArchivedModelReader.read(archive, path: store, name: "").model
    }

    /// Returns `Z_CONTENT` for a store of this model. Returns nil if decoding it doesn't give the same version hashes,
    /// because no cache is better than a wrong one.
    package static func content(of model: ManagedObjectModel) -> [UInt8]? {
        guard let content = Deflate.deflate(ArchivedModelWriter.archive(model)) else { return nil }
        let decoded = try? self.model(content, of: "Z_MODELCACHE")
        return decoded?.entityVersionHashesByName == model.entityVersionHashesByName ? content : nil
    }
}
