import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// What a Core Data store says of its own model.
package struct StoreModel: Sendable {
    package let location: StoreLocation
    /// Its entities are called as the store's own model calls them; where it carries none, as `Z_PRIMARYKEY` does.
    package let metadata: CoreDataMetadata
    /// The model in `Z_MODELCACHE`; nil when there is none that the metadata agrees with.
    package let cachedModel: ManagedObjectModel?
    /// Why the model cache is not believed; nil when it is, or when there is none.
    package let cacheProblem: String?

    package var path: FilePath { location.path }
}

extension StoreModel {
    /// Nil when the store isn't Core Data's. Throws `StoreError`.
    package init?(_ reader: StoreReader) throws {
        guard let metadata = try CoreDataMetadata(reader) else { return nil }
        location = reader.location
        guard let content = try Self.cache(reader) else {
            self.metadata = metadata
            (cachedModel, cacheProblem) = (nil, nil)
            return
        }
        do {
            let model = try ModelCache.model(content, of: reader.location.path)
            // It is a cache: when an old program has written the metadata only, the metadata is right.
            let agrees = model.entityVersionHashesByName == metadata.versionHashes
            self.metadata = agrees ? metadata.named(by: model) : metadata
            cachedModel = agrees ? model : nil
            cacheProblem = agrees ? nil : "the store's model cache is of another version than its metadata"
        } catch let error as ModelError {
            self.metadata = metadata
            (cachedModel, cacheProblem) = (nil, error.message)
        }
    }

    /// Looks at the store; nothing of it changes. Throws `StoreError`, `SystemError`; nil when it isn't Core Data's.
    package static func read(_ location: StoreLocation) throws -> StoreModel? {
        try StoreReader.read(location) { try StoreModel($0) }
    }

    private static func cache(_ reader: StoreReader) throws -> [UInt8]? {
        let tables = try reader.integer(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'Z_MODELCACHE'")
        guard tables == 1 else { return nil }
        let row = try reader.prepare("SELECT Z_CONTENT FROM Z_MODELCACHE LIMIT 1")
        return try row.step() ? row.bytes(0, limit: ModelCache.largestContent) : nil
    }
}

extension CoreDataMetadata {
    /// The same with its entities called as `model`, the store's own, calls them. What rows and history know an entity by is
    /// its number: `Z_PRIMARYKEY` keeps the name that it had before it was renamed. Unchanged where the model's numbers
    /// aren't the store's.
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

    /// Each entity's 32 bytes.
    package var versionHashes: [String: [UInt8]] {
        let known = entities.compactMap { entity in entity.versionHash.map { (entity.name, $0) } }
        return Dictionary(known, uniquingKeysWith: { first, _ in first })
    }
}
