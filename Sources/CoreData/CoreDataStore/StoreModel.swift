import ManagedObjectModels
import PropertyLists
import SQLiteFormat
import SQLiteStore
import SystemPackage
import XMLDocuments

/// The model information that a Core Data store carries.
package struct StoreModel: Sendable {
    package let location: StoreLocation
    /// The metadata. Entities have the names of the store's cached model, or those in `Z_PRIMARYKEY` if it has none.
    package let metadata: CoreDataMetadata
    /// The model in `Z_MODELCACHE`; nil if there is none with the hashes of the metadata.
    package let cachedModel: ManagedObjectModel?
    /// The reason why the model cache was rejected; nil if it was accepted or there is none.
    package let cacheProblem: String?

    package var path: FilePath { location.path }
}

extension StoreModel {
    /// Reads the model information; nil if the store isn't Core Data's. Throws `StoreError`.
    package init?(_ reader: StoreReader) throws {
        guard let metadata = try CoreDataMetadata(reader, parsing: CoreDataMetadata.anyFormat) else { return nil }
        location = reader.location
        guard let content = try Self.cache(reader) else {
            self.metadata = metadata
            (cachedModel, cacheProblem) = (nil, nil)
            return
        }
        do {
            let model = try ModelCache.model(content, of: reader.location.path)
            // An old program may have written only the metadata. Then the cache is stale.
            let isCurrent = model.entityVersionHashesByName == metadata.versionHashes
            self.metadata = isCurrent ? metadata.named(by: model) : metadata
            cachedModel = isCurrent ? model : nil
            cacheProblem = isCurrent ? nil : "the store's model cache has another version than its metadata"
        } catch let error as ModelError {
            self.metadata = metadata
            (cachedModel, cacheProblem) = (nil, error.message)
        }
    }

    /// Reads a store without changing it; nil if it isn't Core Data's. Throws `StoreError` and `SystemError`.
    package static func read(_ location: StoreLocation) throws -> StoreModel? {
        try StoreReader.read(location) { try StoreModel($0) }
    }

    private static func cache(_ reader: StoreReader) throws -> [UInt8]? {
        guard try reader.hasTables("Z_MODELCACHE") else { return nil }
        let row = try reader.prepare("SELECT Z_CONTENT FROM Z_MODELCACHE LIMIT 1")
        return try row.step() ? row.bytes(0, limit: ModelCache.maximumContentSize) : nil
    }
}

extension CoreDataMetadata {
    /// The parser of binary lists and of those in XML.
    package static let anyFormat: ListParser = { try? PropertyListValue(parsing: $0) }

    /// Returns the metadata with the entity names of `model`, the store's own. `Z_PRIMARYKEY` keeps an entity's name
    /// from before a renaming; rows and history identify an entity by its number. Returns the metadata unchanged if the
    /// model's numbers aren't the store's.
    package func named(by model: ManagedObjectModel) -> CoreDataMetadata {
        let recorded = Dictionary(
            entities.compactMap { entity in entity.number.map { ($0, entity) } },
            uniquingKeysWith: { first, _ in first })
        let numbers = EntityNumbers(model)
        var names: [Int64: String] = [:]
        for entity in numbers.entities {
            let number = numbers.number(of: entity.name)
            let parent = entity.superentityName.map(numbers.number)
            guard let known = recorded[number], known.parent == parent else { return self }
            names[number] = entity.name
        }
        return naming(names)
    }

    /// The version hash of each entity, 32 bytes, by name.
    package var versionHashes: [String: [UInt8]] {
        let known = entities.compactMap { entity in entity.versionHash.map { (entity.name, $0) } }
        return Dictionary(known, uniquingKeysWith: { first, _ in first })
    }
}
