import CoreDataStore
import MappingModels
import PropertyLists
import SQLiteStore

/// Core Data's bookkeeping tables: entity numbers with their highest keys, metadata, the model cache.
extension LightweightMigration {
    /// Rewrites `Z_PRIMARYKEY`. An entity keeps its name in that table, as after Core Data's own migrations, and a root
    /// entity keeps its highest key.
    func writeEntityNumbers() throws {
        let numbers = matching.destination.numbers
        var rows: [[SQLiteValue]] = []
        for entity in numbers.entities {
            let old = matching.predecessors[entity.name].map(matching.source.numbers.number)
            let name = try old.flatMap { number in
                try store.text("SELECT Z_NAME FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(number)])
            }
            let root = entity.superentityName == nil ? tables.first { $0.destination.rootEntity == entity.name } : nil
            let oldRoot = (root?.source?.rootEntity).map(matching.source.numbers.number)
            let recorded = try oldRoot.flatMap { number in
                try store.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", [.integer(number)])
            }
            // If the recorded key is missing or too low, the next object would get a key that is already used.
            let used = try root.flatMap { try store.integer("SELECT max(Z_PK) FROM \($0.destination.name.sqlName)") }
            let highest = max(recorded ?? 0, used ?? 0)
            let parent = entity.superentityName.map(numbers.number) ?? 0
            rows.append([
                .integer(numbers.number(of: entity.name)), .text(name ?? entity.name), .integer(parent),
                .integer(highest),
            ])
        }
        // Core Data's own entities, such as history's, have higher numbers.
        try store.execute("DELETE FROM Z_PRIMARYKEY WHERE Z_ENT < \(FrameworkTables.firstNumber)")
        for row in rows {
            try store.execute("INSERT INTO Z_PRIMARYKEY (Z_ENT, Z_NAME, Z_SUPER, Z_MAX) VALUES (?, ?, ?, ?)", row)
        }
    }

    func writeMetadata() throws {
        guard var properties = try store.properties() else {
            throw MigrationError(
                CoreDataError.incompatibleSchema, "the store's metadata can't be read", remedy: "restore a backup")
        }
        properties.set(matching.destination.model)
        try store.execute("UPDATE Z_METADATA SET Z_PLIST = ?", [.blob(properties.bytes)])
        // Stores from before 2014 have no model cache; with one, no later migration needs the model's older versions.
        if !schema.has(table: "Z_MODELCACHE") { try store.execute(StoreWriter.modelCacheTable) }
        try store.writeModelCache(matching.destination.model)
    }
}

extension StoreWriter {
    /// Returns the store's metadata; nil if they can't be read.
    func properties() throws -> StoreProperties? {
        let row = try prepare("SELECT Z_PLIST FROM Z_METADATA LIMIT 1")
        guard try row.step(), let bytes = row.bytes(0, limit: PropertyListValue.maximumSize) else { return nil }
        return StoreProperties(bytes)
    }
}
