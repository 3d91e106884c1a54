import CoreDataStore
import MappingModels
import SQLiteStore

/// What becomes of indexes, triggers and views: Core Data's are those of the new model, somebody else's are carried over
/// where they still make sense, and named where not.
struct SchemaMigration {
    private let store: StoreWriter
    private let schema: StoreSchema
    private let succession: EntityMatching
    private let indexes: [StoreIndex]
    private var droppedIndexes: Set<String> = []
    private var reindexedTables: Set<String> = []
    private var replacedTriggers: Set<String> = []
    private(set) var notes: [String] = []
    /// The indexes that Core Data has made for the source's model, in lower case.
    private let expectedIndexes: Set<String>

    /// - Parameter indexes: Those that the store has.
    init(_ store: StoreWriter, _ schema: StoreSchema, _ succession: EntityMatching, _ indexes: [StoreIndex]) {
        self.store = store
        self.indexes = indexes
        self.schema = schema
        self.succession = succession
        expectedIndexes = succession.source.indexNames
    }

    // MARK: Before

    /// While rows are moved nobody's trigger may run, and no view may stand in the way of a new name.
    func dropTriggersAndViews() throws {
        for object in schema.objects where object.kind == .trigger || object.kind == .view {
            try store.execute("DROP \(object.kind.rawValue) IF EXISTS \(object.name.sqlName)")
        }
    }

    /// Those of tables whose rows are written, or whose entities have another version hash: they are made anew.
    mutating func dropSpatialIndexes(_ tables: [TableMigration]) throws {
        let kept = Set(tables.filter { $0.isUnchanged && !$0.isTransformed }.compactMap { $0.source?.name })
        for index in succession.source.spatialIndexes where !kept.contains(index.table) {
            replacedTriggers.formUnion(index.triggers.map(\.name))
            try store.execute("DROP TABLE IF EXISTS \(index.name.sqlName)")
        }
    }

    private mutating func restoreSpatialIndexes(_ tables: [TableMigration]) throws {
        let changed = Set(tables.filter { !$0.isUnchanged || $0.isTransformed }.map(\.destination.name))
        for index in succession.destination.spatialIndexes where changed.contains(index.table) {
            try store.create(index)
            try store.execute(index.filling)
            replacedTriggers.formUnion(index.triggers.map(\.name))
        }
    }

    /// Core Data's own index may have the name that a new table needs: it is made anew, with another one.
    mutating func dropIndexesInTheWay() throws {
        let destination = succession.destination
        let wanted = Set((destination.tables.map(\.name) + destination.joinTables.map(\.name)).map { $0.lowercased() })
        for index in indexes where wanted.contains(index.name.lowercased()) {
            droppedIndexes.insert(index.name)
            reindexedTables.insert(index.table)
            try store.execute("DROP INDEX \(index.name.sqlName)")
        }
    }

    /// An index that is made at the end is made faster than one that is kept up to date row by row. One of columns that
    /// stay as they are stays, too.
    mutating func dropIndexes(of change: TableChange) throws {
        for index in indexes where index.table == change.table.source?.name && !droppedIndexes.contains(index.name) {
            if let written = change.written, !index.isTouched(by: written) { continue }
            droppedIndexes.insert(index.name)
            noteUnexpected(index.name)
            try store.execute("DROP INDEX IF EXISTS \(index.name.sqlName)")
        }
    }

    // MARK: After

    /// - Parameter joins: The join tables that were made anew or renamed.
    mutating func restore(_ tables: [TableMigration], joins: Set<String>) throws {
        try restoreIndexes(tables, joins)
        try restoreSpatialIndexes(tables)
        let foreign = schema.objects.filter {
            $0.kind == .index && droppedIndexes.contains($0.name) && !isCoreDatas($0.name)
        }
        for index in foreign { try restoreForeign(index) }
        try store.addCoreDataFunctions()
        let check = ForeignObjectCheck(store)
        notes += try check.restore(views: schema.objects.filter { $0.kind == .view })
        let derived = succession.destination.derivedAttributeTriggers.flatMap(\.triggers)
        for trigger in derived { try store.execute(trigger.creation) }
        let made = replacedTriggers.union(derived.map(\.name))
        let others = schema.objects.filter { $0.kind == .trigger && !made.contains($0.name) }
        for trigger in others where isCoreDatas(trigger: trigger.name) { try restoreDerived(trigger) }
        notes += try check.restore(triggers: others.filter { !isCoreDatas(trigger: $0.name) })
    }

    /// Whether Core Data has made the trigger, for a derived attribute of the source.
    private func isCoreDatas(trigger: String) -> Bool {
        guard trigger.hasPrefix("Z_DA_") else { return false }
        return succession.source.numbers.entities.contains { entity in
            entity.attributes.contains { attribute in
                attribute.derivation != nil && (trigger + "_").contains("_\(entity.name)_\(attribute.name)_")
            }
        }
    }

    /// An index that is named like Core Data's goes as Core Data's do. Where the source's model has none of the name it is
    /// one of an older model, or somebody else's, who should hear of it.
    private mutating func noteUnexpected(_ index: String) {
        guard isCoreDatas(index), !expectedIndexes.contains(index.lowercased()) else { return }
        notes.append("the index \(index) is dropped: it is named like Core Data's, and the model has none of the name")
    }

    /// Those of tables that were touched, or whose entities have another hash; others keep what they have.
    private mutating func restoreIndexes(_ tables: [TableMigration], _ joins: Set<String>) throws {
        let touched = Set(tables.filter { !$0.isUnchanged || $0.isTransformed }.map(\.destination.name))
        let changed = touched.union(joins).union(reindexedTables)
        let version = try store.properties()?.frameworkVersion ?? StoreProperties.frameworkVersion
        let wanted = succession.destination.indexes(ofFramework: version).filter { changed.contains($0.table) }
        for index in try StoreIndex.all(store, try StoreSchema(store)) where changed.contains(index.table) {
            guard isCoreDatas(index.name), !wanted.contains(where: { index.isMade(by: $0.creation) }) else { continue }
            noteUnexpected(index.name)
            try store.execute("DROP INDEX \(index.name.sqlName)")
        }
        let left = Set(try StoreSchema(store).objects.filter { $0.kind == .index }.map(\.name))
        for index in wanted where !left.contains(index.name) { try store.execute(index.creation) }
        let unmade = succession.destination.unmadeIndexes.filter { index in
            succession.destination.table(of: index.entity).map { touched.contains($0.name) } ?? false
        }
        notes += unmade.map { $0.entity + ": " + $0.sentence }
    }

    private func isCoreDatas(_ index: String) -> Bool {
        CoreDataIndexName([succession.source, succession.destination]).matches(index)
    }

    private mutating func restoreForeign(_ index: StoreSchema.Object) throws {
        guard let refusal = ForeignObjectCheck(store).refusal(ofIndex: index.creation) else {
            return try store.execute(index.creation)
        }
        notes.append("the index \(index.name) is dropped: \(refusal)")
    }

    /// A derived attribute's trigger of a kind that isn't made here stays where all that it names is as it was.
    private mutating func restoreDerived(_ trigger: StoreSchema.Object) throws {
        let now = try StoreSchema(store)
        let known = Set(now.columns.keys).union(now.columns.values.flatMap { $0.map(\.name) })
        let words = trigger.creation.split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" })
        let named = words.filter { $0.hasPrefix("Z") && !$0.hasPrefix("Z_DA_") && $0 == $0.uppercased() }
        let attributes = Set(
            succession.destination.unknownDerivations.map { $0.replacing(".", with: "_") })
        let isWanted = attributes.contains { trigger.name.contains("_" + $0 + "_") }
        if isWanted, named.allSatisfy({ known.contains(String($0)) }) { return try store.execute(trigger.creation) }
        if isWanted {
            notes.append("the trigger \(trigger.name) is dropped: Core Data makes it anew when it migrates next")
        }
    }
}
