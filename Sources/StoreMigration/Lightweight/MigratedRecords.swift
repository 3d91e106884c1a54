import CoreDataStore
import MappingModels
import SQLiteStore

/// What a store says of itself: entity numbers and highest keys, metadata, the model cache.
extension LightweightMigration {
    /// `Z_PRIMARYKEY`: an entity keeps the name that it has there, as after Core Data's own migrations, and a root entity
    /// its highest key.
    func writeEntityNumbers() throws {
        let numbers = succession.destination.numbers
        var rows: [[SQLiteValue]] = []
        for entity in numbers.entities {
            let old = succession.predecessors[entity.name].map(succession.source.numbers.number)
            let name = try old.flatMap { number in
                try store.text("SELECT Z_NAME FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(number)])
            }
            let root = entity.superentityName == nil ? tables.first { $0.destination.rootEntity == entity.name } : nil
            let oldRoot = (root?.source?.rootEntity).map(succession.source.numbers.number)
            let recorded = try oldRoot.flatMap { number in
                try store.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(number)])
            }
            // Without a record, or with one that is too low, the next object would get a key that is taken.
            let used = try root.flatMap { try store.integer("SELECT max(Z_PK) FROM \($0.destination.name.sqlName)") }
            let highest = max(recorded ?? 0, used ?? 0)
            let parent = entity.superentityName.map(numbers.number) ?? 0
            rows.append([
                .integer(numbers.number(of: entity.name)), .text(name ?? entity.name), .integer(parent),
                .integer(highest),
            ])
        }
        // Core Data's own entities, such as history's, have numbers from 16001 on.
        try store.execute("DELETE FROM Z_PRIMARYKEY WHERE Z_ENT < 16000")
        for row in rows {
            try store.execute("INSERT INTO Z_PRIMARYKEY (Z_ENT, Z_NAME, Z_SUPER, Z_MAX) VALUES (?, ?, ?, ?)", row)
        }
    }

    func writeMetadata() throws {
        guard var properties = try store.properties() else {
            throw MigrationError(
                CoreDataError.incompatibleSchema, "the store's metadata can't be read", remedy: "restore a backup")
        }
        properties.set(succession.destination.model)
        try store.execute("UPDATE Z_METADATA SET Z_PLIST = ?", [.blob(properties.bytes)])
        // Stores of before 2014 have none; with one, no next migration needs the model's older versions.
        if !schema.has(table: "Z_MODELCACHE") { try store.execute(StoreWriter.modelCacheTable) }
        try store.writeModelCache(succession.destination.model)
    }
}

extension StoreWriter {
    /// What the store's metadata say; nil where they can't be read.
    func properties() throws -> StoreProperties? {
        let row = try prepare("SELECT Z_PLIST FROM Z_METADATA LIMIT 1")
        guard try row.step(), let bytes = row.bytes(0, limit: 16 << 20) else { return nil }
        return StoreProperties(bytes)
    }
}
