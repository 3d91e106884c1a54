import SystemPackage

/// The model that a store carries itself: `Z_CONTENT` of `Z_MODELCACHE`, a deflated keyed archive.
package enum ModelCache {
    /// What it may grow to: a few bytes can stand for very many.
    private static let largestArchive = 64 << 20
    /// What is read of a store for it.
    package static let largestContent = 16 << 20

    /// Throws `ModelError`.
    package static func model(_ content: [UInt8], of store: FilePath) throws -> ManagedObjectModel {
        guard let archive = Deflate.inflate(content, limit: largestArchive) else {
            throw ModelError(
                .malformed, store, element: "Z_MODELCACHE",
                "the store's model cache is damaged, or holds more than \(largestArchive >> 20) MiB",
                remedy: "name the model that the store was made with")
        }
        return try ArchivedModelReader.read(archive, path: store, name: "").model
    }

    /// `Z_CONTENT` for a store of this model; nil when its archive, read again, is not of this version, so that a store
    /// is better off without.
    package static func content(of model: ManagedObjectModel) -> [UInt8]? {
        guard let content = Deflate.deflate(ArchivedModelWriter.archive(model)) else { return nil }
        let again = try? self.model(content, of: "Z_MODELCACHE")
        return again?.entityVersionHashesByName == model.entityVersionHashesByName ? content : nil
    }
}
