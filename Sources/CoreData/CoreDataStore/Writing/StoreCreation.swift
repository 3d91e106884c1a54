import FoundationEssentials
import ManagedObjectModels
import SQLiteStore
import SystemPackage

extension StoreLayout {
    /// Creates an empty store in the empty file at `path`, in one transaction. Throws `ModelFault` before writing
    /// anything, and `StoreError`.
    package func makeStore(at path: FilePath) throws {
        try validate()
        let writer = try StoreWriter(path)
        try writer.prepareEmptyStore()
        try writer.transaction(.deferred) { try writer.createStore(self) }
    }
}

extension StoreWriter {
    /// Configures the database as Core Data does before a store's first table: `_NSAutoVacuumLevel` 2, pages of 4096
    /// bytes.
    package func prepareEmptyStore() throws {
        try execute("PRAGMA page_size = 4096")
        try execute("PRAGMA encoding = 'UTF-8'")
        try execute("PRAGMA auto_vacuum = 2")
    }

    /// Creates an empty store in an empty database. Throws `StoreError`.
    ///
    /// - Parameters:
    ///   - uuid: The store's identity in upper case; nil for a new one.
    ///   - properties: The metadata; nil for that of a new store.
    package func createStore(
        _ layout: StoreLayout, uuid: String? = nil, properties: StoreProperties? = nil
    ) throws {
        for table in layout.tables { try execute(table.creation) }
        for table in layout.joinTables { try execute(table.creation) }
        for index in layout.indexes { try execute(index.creation) }
        for index in layout.spatialIndexes { try create(index) }
        for derived in layout.derivedAttributeTriggers {
            for trigger in derived.triggers { try execute(trigger.creation) }
        }
        try execute(Self.primaryKeyTable)
        try execute(Self.metadataTable)
        try execute(Self.modelCacheTable)
        for entity in layout.numbers.entities {
            try execute(
                "INSERT INTO Z_PRIMARYKEY (Z_ENT, Z_NAME, Z_SUPER, Z_MAX) VALUES (?, ?, ?, 0)",
                [
                    .integer(layout.numbers.number(of: entity.name)), .text(entity.name),
                    .integer(entity.superentityName.map(layout.numbers.number) ?? 0),
                ])
        }
        var properties = properties ?? StoreProperties(for: layout.model)
        properties.set(layout.model)
        try execute(
            "INSERT INTO Z_METADATA (Z_VERSION, Z_UUID, Z_PLIST) VALUES (1, ?, ?)",
            [.text(uuid ?? UUID().uuidString), .blob(properties.bytes)])
        try writeModelCache(layout.model)
    }

    /// Creates an empty index and the triggers that keep it up to date.
    package func create(_ index: SpatialIndexLayout) throws {
        try execute(index.creation)
        for trigger in index.triggers { try execute(trigger.creation) }
    }

    /// Replaces the model cache of the store.
    package func writeModelCache(_ model: ManagedObjectModel) throws {
        try execute("DELETE FROM Z_MODELCACHE")
        guard let content = ModelCache.content(of: model) else { return }
        try execute("INSERT INTO Z_MODELCACHE (Z_CONTENT) VALUES (?)", [.blob(content)])
    }

    package static let primaryKeyTable =
        "CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME VARCHAR, Z_SUPER INTEGER, Z_MAX INTEGER)"
    package static let metadataTable =
        "CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR(255), Z_PLIST BLOB)"
    package static let modelCacheTable = "CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB)"
}
