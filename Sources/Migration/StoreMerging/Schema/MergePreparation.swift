import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreRelocation

/// Reads the content that two stores have to merge, and refuses stores that don't fit together.
struct MergePreparation {
    let group: StoreLocation
    let legacy: StoreLocation
    /// The model that the user names; nil for the stores' own.
    let model: ManagedObjectModel?
    let options: MergeOptions

    struct Prepared {
        var schema: MergeSchema
        /// The columns of `newer:`, by attribute, table and entity.
        var newer: [String: [Int: [Int64: String]]]
    }

    func schema() throws -> Prepared {
        let (groupStored, settings) = try stored(group)
        let (legacyStored, legacySettings) = try stored(legacy)
        guard settings.encoding == legacySettings.encoding else {
            throw RelocationFailure.schemasDiffer(
                "the text encodings \(settings.encoding) and \(legacySettings.encoding)")
        }
        var schema = MergeSchema()
        let tables = try coreDataTables(groupStored, legacyStored)
        if let tables {
            try tables.add(to: &schema)
            try checkCloudKit(legacyStored)
            for (store, side) in [(group, "group's"), (self.legacy, "legacy")] {
                try checkEntities(of: store, side, schema)
            }
        } else {
            try checkSettings(settings, legacySettings)
        }
        let modelled = Set(
            ((tables?.names ?? []) + (tables?.legacyLayout.joinTables ?? []).map(\.name)).map(DatabaseSchema.key))
        func others(_ stored: DatabaseSchema) -> [DatabaseSchema.Table] {
            stored.tables.filter { table in
                !table.isShadow && !modelled.contains(DatabaseSchema.key(of: table.name))
                    && !HistorySchema.isOwn(table)
                    && !(tables != nil && FrameworkTables.contains(table.name.uppercased()))
            }
        }
        let shadows = shadowNames(groupStored).union(shadowNames(legacyStored))
        let plain = PlainTables(group: declaring(options.references, in: groupStored), legacy: legacyStored)
        let all = Set(
            (others(groupStored) + others(legacyStored)).map { DatabaseSchema.key(of: $0.name) }.filter {
                !shadows.contains($0)
            }
        )
        try plain.check(all)
        let merged = others(groupStored).filter {
            $0.kind != .virtual && !shadows.contains(DatabaseSchema.key(of: $0.name))
        }
        try plain.add(merged.map(\.name), to: &schema)
        for reference in options.references { try check(reference, groupStored, schema) }
        try addVirtualTables(groupStored, to: &schema)
        try apply(tables, &schema)
        try schema.sort()
        return Prepared(schema: schema, newer: try newer(tables, schema))
    }

    /// Returns the schema with the user's references as foreign keys.
    private func declaring(_ references: [MergeReference], in stored: DatabaseSchema) -> DatabaseSchema {
        var stored = stored
        for reference in references {
            let key = DatabaseSchema.key(of: reference.source.table)
            guard let index = stored.tables.firstIndex(where: { DatabaseSchema.key(of: $0.name) == key }) else {
                continue
            }
            stored.tables[index].foreignKeys.append(
                DatabaseSchema.ForeignKey(
                    column: reference.source.column, table: reference.target.table, target: reference.target.column))
        }
        return stored
    }

    /// Throws `RelocationFailure` unless the reference leads from a column of a table without a model to a column.
    private func check(_ reference: MergeReference, _ stored: DatabaseSchema, _ schema: MergeSchema) throws {
        func refuse(_ reason: String) -> RelocationFailure {
            .merge(
                "unknown_reference", "--reference \(PrintableText(reference.text)): \(PrintableText(reason))",
                remedy: "name two columns of tables that both stores have: --reference TABLE.COLUMN=TABLE.COLUMN")
        }
        for place in [reference.source, reference.target] {
            guard stored.table(place.table) != nil else { throw refuse("there is no table \(place.table)") }
            guard let index = schema.index(of: place.table) else {
                throw refuse("the table \(place.table) is not merged row by row")
            }
            guard schema.tables[index].column(place.column) != nil else {
                throw refuse("the table \(place.table) has no stored column \(place.column)")
            }
        }
        guard let index = schema.index(of: reference.source.table), !schema.tables[index].isCoreData else {
            throw refuse("the model describes the table \(reference.source.table) and its relationships")
        }
    }

    private func stored(_ store: StoreLocation) throws -> (DatabaseSchema, StoreDescription.Settings) {
        try StoreReader.read(store) { (try DatabaseSchema($0), try StoreDescription.Settings($0)) }
    }

    /// Returns the names that full-text and spatial modules give to the tables of their content. SQLite calls them
    /// shadow tables only if it has the module.
    private func shadowNames(_ stored: DatabaseSchema) -> Set<String> {
        Set(
            stored.tables.flatMap { table in
                let suffixes =
                    switch table.module {
                    case "fts5": ["data", "idx", "content", "docsize", "config"]
                    case "fts3", "fts4": ["content", "segments", "segdir", "docsize", "stat"]
                    case "rtree", "rtree_i32", "geopoly": ["node", "parent", "rowid"]
                    default: [String]()
                    }
                return suffixes.map { DatabaseSchema.key(of: "\(table.name)_\($0)") }
            })
    }

    private func checkSettings(_ group: StoreDescription.Settings, _ legacy: StoreDescription.Settings) throws {
        if group.userVersion != legacy.userVersion {
            throw RelocationFailure.schemasDiffer(
                "user_version is \(group.userVersion) in the group's store and \(legacy.userVersion) in the legacy one")
        }
        if group.applicationID != legacy.applicationID {
            throw RelocationFailure.schemasDiffer("application_id differs")
        }
    }

    private func checkCloudKit(_ legacy: DatabaseSchema) throws {
        let names = legacy.tables.filter { FrameworkTables.isMirroring($0.name) && $0.kind != .virtual }.map(\.name)
        guard !names.isEmpty else { return }
        try StoreReader.read(self.legacy) { reader in
            for name in names where try reader.integer("SELECT 1 FROM \(name.sqlName) LIMIT 1") != nil {
                throw RelocationFailure.mergeUnsupported(
                    "the legacy store has rows of CloudKit in \(name): CloudKit would create its objects a second time")
            }
        }
    }

    /// Throws `RelocationFailure` if a row's entity is none of its table's: it has no name by which it could be
    /// matched.
    private func checkEntities(of store: StoreLocation, _ side: String, _ schema: MergeSchema) throws {
        try StoreReader.read(store) { reader in
            for table in schema.tables where table.isCoreData {
                let numbers = table.entities.map { String($0.number) }.joined(separator: ", ")
                let name = store.path == group.path ? table.name : table.legacyName
                let found = try reader.prepare(
                    "SELECT Z_PK, quote(Z_ENT), count(*) OVER () FROM \(name.sqlName) "
                        + "WHERE Z_ENT IS NULL OR Z_ENT NOT IN (\(numbers)) ORDER BY Z_PK LIMIT 1")
                guard try found.step() else { continue }
                throw RelocationFailure.mergeUnsupported(
                    "\(table.name) in the \(side) store has \(Counted(found.integer(2), "row")) of no entity of that "
                        + "table: row \(found.integer(0)) has Z_ENT \(found.text(1) ?? "NULL")")
            }
        }
    }

    // MARK: Models

    private func coreDataTables(
        _ groupStored: DatabaseSchema, _ legacyStored: DatabaseSchema
    ) throws -> CoreDataTables? {
        let (one, other) = (try StoreModel.read(group), try StoreModel.read(legacy))
        guard let one, let other else {
            if one == nil, other == nil { return nil }
            throw RelocationFailure.schemasDiffer("only one of them is a Core Data store")
        }
        guard one.metadata.versionHashes == other.metadata.versionHashes else {
            throw RelocationFailure.merge(
                "models_differ", "the two stores have different models",
                remedy: "name the model that both are migrated to first: --model M")
        }
        let known = [one.cachedModel, other.cachedModel, model].compactMap(\.self).first {
            !one.metadata.versionHashes.isEmpty && $0.entityVersionHashesByName == one.metadata.versionHashes
        }
        guard let known else {
            throw RelocationFailure.merge(
                "no_model", "the stores carry no model that agrees with their metadata",
                remedy: "name the model that they were made with: --model M")
        }
        let layout = StoreLayout(known)
        for (store, side) in [(one, "group's"), (other, "legacy")] {
            for entity in layout.numbers.entities {
                let number = layout.numbers.number(of: entity.name)
                let parent = entity.superentityName.map(layout.numbers.number) ?? 0
                guard let found = store.metadata.entities.first(where: { $0.number == number }),
                    found.parent ?? 0 == parent
                else {
                    throw RelocationFailure.schemasDiffer(
                        "the \(side) store numbers the entity \(entity.name) otherwise than its model")
                }
            }
        }
        return CoreDataTables(
            layout: layout.usingJoinTableNames(of: groupStored),
            legacyLayout: layout.usingJoinTableNames(of: legacyStored), group: groupStored, legacy: legacyStored)
    }

    // MARK: Virtual tables

    private func addVirtualTables(_ stored: DatabaseSchema, to schema: inout MergeSchema) throws {
        let spatial = Set((schema.layout?.spatialIndexes ?? []).map { $0.name.lowercased() })
        for table in stored.tables where table.kind == .virtual {
            var made = MergedVirtualTable(table, spatialIndexes: spatial)
            if made.treatment == .content {
                made.columns = try StoreReader.read(group) { reader in
                    try DatabaseSchema.columns(of: table.name, in: reader).filter(\.isAssignable).map(\.name)
                }
            }
            schema.virtualTables.append(made)
        }
    }

    // MARK: Options

    private func apply(_ tables: CoreDataTables?, _ schema: inout MergeSchema) throws {
        let entities = try tables?.apply(options.keys, to: &schema) ?? []
        for key in options.keys where !entities.contains(key.name) {
            guard let index = schema.index(of: key.name), !schema.tables[index].isCoreData else {
                throw RelocationFailure.merge(
                    "unknown_merge_key",
                    "there is no \(tables == nil ? "table" : "entity or table") \(PrintableText(key.name)) to match by a key",
                    remedy: "there are "
                        + names(tables, schema).map { PrintableText($0).description }.joined(separator: ", "))
            }
            var columns: [String] = []
            for name in key.properties {
                guard let column = schema.tables[index].column(name) else {
                    throw RelocationFailure.merge(
                        "unknown_merge_key",
                        "the table \(PrintableText(key.name)) has no column \(PrintableText(name)) that can be part of a key",
                        remedy: "name stored columns: --merge-key \(PrintableText(key.name))=NAME[,NAME…]")
                }
                columns.append(column.name)
            }
            schema.tables[index].entities[0].rules =
                columns.isEmpty ? [] : [MergeTable.Rule(columns: columns, properties: columns)]
            schema.tables[index].entities[0].comparesWholeRows = key.comparesWholeObjects
        }
    }

    private func names(_ tables: CoreDataTables?, _ schema: MergeSchema) -> [String] {
        (tables?.layout.numbers.entities.map(\.name) ?? []) + schema.tables.filter { !$0.isCoreData }.map(\.name)
    }

    private func newer(_ tables: CoreDataTables?, _ schema: MergeSchema) throws -> [String: [Int: [Int64: String]]] {
        var found: [String: [Int: [Int64: String]]] = [:]
        for case .newer(let attribute) in options.preferences {
            var columns: [Int: [Int64: String]] = [:]
            for (index, table) in schema.tables.enumerated() {
                if table.isCoreData {
                    columns[index] = tables?.columns(ofAttribute: attribute, in: table)
                } else if let column = table.column(attribute) {
                    columns[index] = [0: column.name]
                }
            }
            guard columns.values.contains(where: { !$0.isEmpty }) else {
                throw RelocationFailure.merge(
                    "unknown_attribute", "nothing that is merged has \(PrintableText(attribute))",
                    remedy: "name an attribute or column with the time of the last change: --prefer newer:NAME")
            }
            found[attribute] = columns
        }
        return found
    }
}
