import CoreDataStore
import MappingModels
import SQLiteStore

/// Migrates indexes, triggers and views. Core Data's become those of the new model; foreign ones, which the app or
/// another program created, are kept if they still work, and reported if not.
struct SchemaMigration {
    private let store: StoreWriter
    private let schema: DatabaseSchema
    private let matching: EntityMatching
    private let indexes: [StoreIndex]
    private var droppedIndexes: Set<String> = []
    private var reindexedTables: Set<String> = []
    private var replacedTriggers: Set<String> = []
    private(set) var notes: [String] = []
    /// The names of the indexes that Core Data creates for the source's model, in lower case.
    private let expectedIndexes: Set<String>

    /// - Parameter indexes: The store's indexes.
    init(_ store: StoreWriter, schema: DatabaseSchema, matching: EntityMatching, indexes: [StoreIndex]) {
        self.store = store
        self.indexes = indexes
        self.schema = schema
        self.matching = matching
        expectedIndexes = matching.source.indexNames
    }

    // MARK: Before

    /// Drops all triggers and views: no trigger may run while rows are moved, and no view may block a rename.
    func dropTriggersAndViews() throws {
        for object in schema.objects where object.kind == .trigger || object.kind == .view {
            try store.execute("DROP \(object.kind.rawValue) IF EXISTS \(object.name.sqlName)")
        }
    }

    /// Drops the spatial indexes of tables whose rows are written, or whose entities' version hashes changed. They are
    /// rebuilt.
    mutating func dropSpatialIndexes(_ tables: [TableMigration]) throws {
        let kept = Set(tables.filter { $0.isUnchanged && !$0.isTransformed }.compactMap { $0.source?.name })
        for index in matching.source.spatialIndexes where !kept.contains(index.table) {
            replacedTriggers.formUnion(index.triggers.map(\.name))
            try store.execute("DROP TABLE IF EXISTS \(index.name.sqlName)")
        }
    }

    private mutating func restoreSpatialIndexes(_ tables: [TableMigration]) throws {
        let changed = Set(tables.filter { !$0.isUnchanged || $0.isTransformed }.map(\.destination.name))
        for index in matching.destination.spatialIndexes where changed.contains(index.table) {
            try store.create(index)
            try store.execute(index.populateStatement)
            replacedTriggers.formUnion(index.triggers.map(\.name))
        }
    }

    /// Drops indexes that have the name of a new table. One of Core Data's may, and is created again under another
    /// name.
    mutating func dropConflictingIndexes() throws {
        let destination = matching.destination
        let wanted = Set((destination.tables.map(\.name) + destination.joinTables.map(\.name)).map { $0.lowercased() })
        for index in indexes where wanted.contains(index.name.lowercased()) {
            droppedIndexes.insert(index.name)
            reindexedTables.insert(index.table)
            try store.execute("DROP INDEX \(index.name.sqlName)")
        }
    }

    /// Drops the indexes that the change affects: to build an index at the end is faster than to update it row by row.
    /// An index of unchanged columns stays.
    mutating func dropIndexes(of change: TableChange) throws {
        for index in indexes where index.table == change.table.source?.name && !droppedIndexes.contains(index.name) {
            if let written = change.writtenColumns, !index.isAffected(by: written) { continue }
            droppedIndexes.insert(index.name)
            noteUnexpected(index.name)
            try store.execute("DROP INDEX IF EXISTS \(index.name.sqlName)")
        }
    }

    // MARK: After

    /// - Parameter joins: The join tables that were rebuilt or renamed.
    mutating func restore(_ tables: [TableMigration], joins: Set<String>) throws {
        try restoreIndexes(tables, joins)
        try restoreSpatialIndexes(tables)
        // A table that is dropped takes its indexes with it.
        let present = Set(try DatabaseSchema(store).objects(.index).map(\.name))
        for index in schema.objects(.index) where !present.contains(index.name) {
            if !isCoreDataIndex(index.name) {
                try restoreForeign(index)
            } else if !droppedIndexes.contains(index.name) {
                noteUnexpected(index.name)
            }
        }
        try store.addCoreDataFunctions()
        let check = ForeignObjectCheck(store)
        notes += try check.restore(views: schema.objects(.view))
        let derived = matching.destination.derivedAttributeTriggers.flatMap(\.triggers)
        for trigger in derived { try store.execute(trigger.creation) }
        let created = replacedTriggers.union(derived.map(\.name))
        let remaining = schema.objects(.trigger).filter { !created.contains($0.name) }
        for trigger in remaining where isCoreDataTrigger(trigger.name) { try restoreDerived(trigger) }
        notes += try check.restore(triggers: remaining.filter { !isCoreDataTrigger($0.name) })
    }

    /// True if Core Data created the trigger, for a derived attribute of the source.
    private func isCoreDataTrigger(_ trigger: String) -> Bool {
        guard trigger.hasPrefix("Z_DA_") else { return false }
        return matching.source.numbers.entities.contains { entity in
            entity.attributes.contains { attribute in
                attribute.derivation != nil && (trigger + "_").contains("_\(entity.name)_\(attribute.name)_")
            }
        }
    }

    /// Reports an index that is dropped only because its name looks like Core Data's. If the source's model has no
    /// index of that name, it is an older model's or a foreign one, whose owner needs to know.
    private mutating func noteUnexpected(_ index: String) {
        guard isCoreDataIndex(index), !expectedIndexes.contains(index.lowercased()) else { return }
        notes.append("the index \(index) is dropped: its name is one of Core Data's, but the model has no such index")
    }

    /// Creates the indexes of tables that were rewritten, or whose entities' version hashes changed. Other tables keep
    /// theirs.
    private mutating func restoreIndexes(_ tables: [TableMigration], _ joins: Set<String>) throws {
        let touched = Set(tables.filter { !$0.isUnchanged || $0.isTransformed }.map(\.destination.name))
        let changed = touched.union(joins).union(reindexedTables)
        let version = try store.properties()?.frameworkVersion ?? StoreProperties.frameworkVersion
        let wanted = matching.destination.indexes(ofFramework: version).filter { changed.contains($0.table) }
        let statements = Set(wanted.map { StoreIndex.comparable($0.creation) })
        for index in StoreIndex.all(try DatabaseSchema(store)) where changed.contains(index.table) {
            guard isCoreDataIndex(index.name), !statements.contains(StoreIndex.comparable(index.creation)) else {
                continue
            }
            droppedIndexes.insert(index.name)
            noteUnexpected(index.name)
            try store.execute("DROP INDEX \(index.name.sqlName)")
        }
        let present = Set(try DatabaseSchema(store).objects(.index).map(\.name))
        for index in wanted where !present.contains(index.name) { try store.execute(index.creation) }
        let unmade = matching.destination.unsupportedIndexes.filter { index in
            matching.destination.table(of: index.entity).map { touched.contains($0.name) } ?? false
        }
        notes += unmade.map { $0.entity + ": " + $0.message }
    }

    private func isCoreDataIndex(_ index: String) -> Bool {
        CoreDataIndexName([matching.source, matching.destination]).matches(index)
    }

    private mutating func restoreForeign(_ index: DatabaseSchema.Object) throws {
        guard let refusal = ForeignObjectCheck(store).refusal(ofIndex: index.creation) else {
            return try store.execute(index.creation)
        }
        notes.append("the index \(index.name) is dropped: \(refusal)")
    }

    /// Restores a trigger of a derivation that groupstore can't express, if everything that it names still exists.
    private mutating func restoreDerived(_ trigger: DatabaseSchema.Object) throws {
        let current = try DatabaseSchema(store)
        let known = Set(current.tables.flatMap { [$0.name] + $0.assignableColumns.map(\.name) })
        let words = trigger.creation.split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" })
        let named = words.filter { $0.hasPrefix("Z") && !$0.hasPrefix("Z_DA_") && $0 == $0.uppercased() }
        let attributes = Set(
            matching.destination.unsupportedDerivations.map { $0.replacing(".", with: "_") })
        let isWanted = attributes.contains { trigger.name.contains("_" + $0 + "_") }
        if isWanted, named.allSatisfy({ known.contains(String($0)) }) { return try store.execute(trigger.creation) }
        if isWanted {
            notes.append("the trigger \(trigger.name) is dropped: Core Data recreates it in its next migration")
        }
    }
}
