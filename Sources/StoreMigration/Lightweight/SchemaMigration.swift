import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// What becomes of indexes, triggers and views: Core Data's are those of the new model, somebody else's are carried over
/// where they still make sense, and named where not.
struct SchemaMigration {
    private let store: StoreWriter
    private let schema: StoreSchema
    private let succession: ModelSuccession
    private var droppedIndexes: Set<String> = []
    private var replacedTriggers: Set<String> = []
    private(set) var notes: [String] = []

    init(_ store: StoreWriter, _ schema: StoreSchema, _ succession: ModelSuccession) {
        self.store = store
        self.schema = schema
        self.succession = succession
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

    /// An index that is made at the end is made faster than one that is kept up to date row by row.
    mutating func dropIndexes(of table: TableMigration) throws {
        for index in schema.objects
        where index.kind == .index && index.table == table.source?.name && !droppedIndexes.contains(index.name) {
            droppedIndexes.insert(index.name)
            try store.execute("DROP INDEX IF EXISTS \(index.name.sqlName)")
        }
    }

    // MARK: After

    /// - Parameter joins: The join tables that were made anew or renamed.
    mutating func restore(_ tables: [TableMigration], joins: Set<String>) throws {
        try restoreIndexes(tables, joins)
        try restoreSpatialIndexes(tables)
        let foreign = schema.objects.filter {
            $0.kind == .index && droppedIndexes.contains($0.name) && !isCoreDatas($0)
        }
        for index in foreign { try restoreForeign(index) }
        try store.addCoreDataFunctions()
        for view in schema.objects where view.kind == .view { try restore(view) }
        let derived = succession.destination.derivedAttributeTriggers.flatMap(\.triggers)
        for trigger in derived { try store.execute(trigger.creation) }
        let made = replacedTriggers.union(derived.map(\.name))
        for trigger in schema.objects where trigger.kind == .trigger && !made.contains(trigger.name) {
            if trigger.name.hasPrefix("Z_DA_") { try restoreDerived(trigger) } else { try restore(trigger) }
        }
    }

    /// Those of tables that were touched, or whose entities have another hash; others keep what they have.
    private func restoreIndexes(_ tables: [TableMigration], _ joins: Set<String>) throws {
        let touched = Set(tables.filter { !$0.isUnchanged || $0.isTransformed }.map(\.destination.name))
        let changed = touched.union(joins)
        let wanted = succession.destination.indexes.filter { changed.contains($0.table) }
        let there = try StoreSchema(store).objects.filter { $0.kind == .index }
        for index in there where changed.contains(index.table) {
            guard isCoreDatas(index), !wanted.contains(where: { $0.creation == index.creation }) else { continue }
            try store.execute("DROP INDEX \(index.name.sqlName)")
        }
        let left = Set(try StoreSchema(store).objects.filter { $0.kind == .index }.map(\.name))
        for index in wanted where !left.contains(index.name) { try store.execute(index.creation) }
    }

    /// Core Data names its indexes after tables and entities: `ZNOTE_ZFOLDER_INDEX`, `Z_Note_byTitle`, once `ZNOTE_ZTITLE`.
    private func isCoreDatas(_ index: StoreSchema.Object) -> Bool {
        let layouts = [succession.source, succession.destination]
        let tables = layouts.flatMap { $0.tables.map(\.name) + $0.joinTables.map(\.name) }
        let entities = layouts.flatMap { $0.model.entities.map(\.name) }
        return tables.contains { index.name.hasPrefix($0 + "_Z") || index.name == $0 + "_REFLEXIVE_INDEX" }
            || entities.contains { index.name.hasPrefix("Z_" + $0 + "_") }
    }

    private mutating func restoreForeign(_ index: StoreSchema.Object) throws {
        // Only SQLite's own collations are known here: an index in another order would be a damaged one.
        let names = index.creation.uppercased().split(whereSeparator: { !$0.isLetter && $0 != "_" })
        let collations = zip(names, names.dropFirst()).filter { $0.0 == "COLLATE" }.map(\.1)
        let isKnown = collations.allSatisfy { ["BINARY", "NOCASE", "RTRIM"].contains(String($0)) }
        if isKnown, store.refusal(of: index.creation) == nil { return try store.execute(index.creation) }
        notes.append("the index \(index.name) is dropped: what it is of is not there any more")
    }

    private mutating func restore(_ object: StoreSchema.Object) throws {
        do { try store.execute(object.creation) } catch let error as StoreError {
            notes.append("the \(object.kind.rawValue) \(object.name) is dropped: \(error)")
            return
        }
        guard let refusal = refusal(of: object) else { return }
        try store.execute("DROP \(object.kind.rawValue) \(object.name.sqlName)")
        notes.append("the \(object.kind.rawValue) \(object.name) is dropped: \(refusal)")
    }

    /// What SQLite says to a statement that would use it; a function that only the store's programs have is no reason.
    private func refusal(of object: StoreSchema.Object) -> String? {
        let uses: [String]
        if object.kind == .view {
            uses = ["SELECT * FROM \(object.name.sqlName)"]
        } else {
            let table = object.table.sqlName
            let columns = (try? StoreSchema(store).columns[object.table]) ?? []
            let names = Set(columns.map { $0.name.lowercased() })
            // SQLite doesn't look at these before one of them is set.
            if let gone = object.watchedColumns.first(where: { !names.contains($0) }) {
                return "no such column: \(gone)"
            }
            let sets = columns.map { "\($0.name.sqlName) = \($0.name.sqlName)" }
            uses =
                ["INSERT INTO \(table) DEFAULT VALUES", "DELETE FROM \(table)"]
                + (sets.isEmpty ? [] : ["UPDATE \(table) SET \(sets.joined(separator: ", "))"])
        }
        return uses.lazy.compactMap { store.refusal(of: $0) }.first { !$0.contains("no such function") }
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

extension StoreSchema.Object {
    /// The columns of a trigger's `UPDATE OF`, in small letters.
    fileprivate var watchedColumns: [String] {
        let words = creation.lowercased().split(whereSeparator: { $0.isWhitespace || "\",[]`".contains($0) })
        guard let update = words.indices.dropLast().first(where: { words[$0] == "update" && words[$0 + 1] == "of" }),
            let begin = words.firstIndex(of: "begin"), update < begin
        else { return [] }
        return words[(update + 2)...].prefix { $0 != "on" }.map(String.init)
    }
}
