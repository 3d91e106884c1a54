import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Migrates the references to objects in Core Data's own tables (`FrameworkTables`): the history's and those that
/// mirror the store to CloudKit. They follow their entities' new numbers and names.
///
/// A reference to an entity that is gone is deleted, as by Core Data: its number or name may be another entity's in
/// the new model, and the row would then describe that one's objects. CloudKit keeps its record, which no object has
/// any more.
struct ObjectReferences {
    private let store: SQLiteConnection
    private let schema: DatabaseSchema
    private let matching: EntityMatching

    init(_ store: SQLiteConnection, schema: DatabaseSchema, matching: EntityMatching) {
        self.store = store
        self.schema = schema
        self.matching = matching
    }

    // MARK: Rows of removed entities

    /// The numbers that have no entity in the older model, or whose entity is removed, and that may have one in the
    /// newer model. Rows of entities that were removed earlier have the former.
    private var obsoleteNumbers: [Int64] {
        let source = matching.source.numbers
        let removed = source.entities.filter { matching.successors[$0.name] == nil }.map { source.number(of: $0.name) }
        let (known, wanted) = (source.entities.count, matching.destination.numbers.entities.count)
        return removed + (wanted > known ? (known + 1...wanted).map(Int64.init) : [])
    }

    private var obsoleteNames: [String] {
        let source = Set(matching.source.model.entities.map(\.name))
        let added = matching.destination.model.entities.map(\.name).filter { !source.contains($0) }
        return (source.filter { matching.successors[$0] == nil } + added).sorted()
    }

    /// The tables with the SQL condition of their rows that refer to removed entities and relationships. Rows that
    /// belong to others come before those.
    private var obsoleteRows: [(table: String, condition: String)] {
        let numbers = obsoleteNumbers
        var found: [(table: String, condition: String)] = []
        if !numbers.isEmpty {
            let objects = FrameworkTables.objectTables(of: schema)
            if let records = objects.first(where: { $0.name.uppercased() == "ANSCKRECORDMETADATA" }) {
                let keys = "SELECT Z_PK FROM \(records.name.sqlName) WHERE \(records.entity) IN (\(numbers.list))"
                found += FrameworkTables.recordParts(of: schema).map { ($0, "ZRECORDMETADATA IN (\(keys))") }
            }
            found += objects.map { ($0.name, "\($0.entity) IN (\(numbers.list))") }
        }
        let names = obsoleteNames.map(\.sqlText).joined(separator: ", ")
        for table in FrameworkTables.nameTables(of: schema) {
            var conditions = names.isEmpty ? [] : ["\(table.entity) IN (\(names))"]
            if let related = table.relatedEntity, !names.isEmpty { conditions.append("\(related) IN (\(names))") }
            if let name = table.relationship {
                let gone = relationships.filter { $0.new == nil }.map { "(\($0.entity.sqlText), \($0.old.sqlText))" }
                let pairs = gone.joined(separator: ", ")
                if !gone.isEmpty { conditions.append("(\(table.entity), \(name)) IN (VALUES \(pairs))") }
            }
            if !conditions.isEmpty { found.append((table.name, conditions.joined(separator: " OR "))) }
        }
        return found
    }

    /// Returns what `deleteObsolete` reports.
    func notes() throws -> [String] {
        try obsoleteRows.compactMap { table, condition in
            let count =
                try store.integer("SELECT count(*) FROM \(table.sqlName) NOT INDEXED WHERE \(condition)") ?? 0
            guard count > 0 else { return nil }
            return table.uppercased() == "ACHANGE"
                ? "persistent history loses \(Counted(count, "change")) of removed entities"
                : "CloudKit's table \(table) loses \(Counted(count, "row")) about removed entities or "
                    + "relationships"
        }
    }

    /// Remarks about tables that are left as they are.
    var suspicions: [String] {
        guard matching.numbers.contains(where: { $0.key != $0.value }) || !obsoleteNumbers.isEmpty else { return [] }
        let columns = FrameworkTables.suspects(in: schema, besides: matching.source)
        guard !columns.isEmpty else { return [] }
        return [
            "entity numbers change, and these columns of tables that aren't Core Data's may hold them; they are left "
                + "unchanged: \(columns.joined(separator: ", "))"
        ]
    }

    /// Deletes the rows that refer to removed entities. Core Data refuses to lose changes of them unless it is allowed
    /// to (`StoreObstacles`).
    func deleteObsolete() throws {
        for (table, condition) in obsoleteRows {
            try store.execute("DELETE FROM \(table.sqlName) WHERE \(condition)")
        }
    }

    // MARK: Numbers

    func renumber() throws {
        let changed = matching.numbers.filter { $0.key != $0.value }
        guard !changed.isEmpty else { return }
        for table in FrameworkTables.objectTables(of: schema) { try renumber(table, changed) }
    }

    private func renumber(_ table: FrameworkTables.ObjectTable, _ changed: [Int64: Int64]) throws {
        let (name, column) = (table.name.sqlName, table.entity)
        // Where the number and a key are unique together, a row must not collide with one that isn't renumbered yet:
        // all rows get numbers first that none has.
        let isNumber = "typeof(\(column)) = 'integer'"
        let lowest = min(try store.integer("SELECT min(\(column)) FROM \(name) WHERE \(isNumber)") ?? 0, 0)
        guard lowest > Int64.min / 2 else {
            throw MigrationError(
                CoreDataError.migration, "\(table.name) has the entity number \(lowest)", remedy: "restore a backup")
        }
        let number = EntityNumberExpression(changed, of: column).text
        try store.execute(
            "UPDATE \(name) SET \(column) = \(lowest) - (\(number)) WHERE \(column) IN (\(changed.keys.sorted().list))")
        try store.execute(
            "UPDATE \(name) SET \(column) = \(lowest) - \(column) WHERE \(isNumber) AND \(column) < \(lowest)")
    }

    // MARK: Names

    /// The relationships of each entity that stays, with their new names; nil for one that is gone, or that was to-one
    /// and is to-many, or the other way around.
    private var relationships: [(entity: String, old: String, new: String?)] {
        matching.source.numbers.entities.flatMap { entity -> [(entity: String, old: String, new: String?)] in
            guard let successor = matching.successors[entity.name],
                let later = matching.destination.model.entity(named: successor)
            else { return [] }
            var names: [String: String] = [:]
            for case .relationship(let new) in matching.destination.model.properties(of: later) {
                guard let old = matching.relationship(new.name, of: successor)?.relationship,
                    !new.isTransient, old.isToMany == new.isToMany
                else { continue }
                names[old.name] = new.name
            }
            return matching.source.model.properties(of: entity).compactMap { property in
                guard case .relationship(let old) = property, !old.isTransient else { return nil }
                return (entity.name, old.name, names[old.name])
            }
        }
    }

    /// Gives the renamed entities and relationships their new names.
    func rename() throws {
        let entities = matching.successors.filter { $0.key != $0.value }.sorted { $0.key < $1.key }
        let renamed = relationships.filter { $0.new != nil && $0.new != $0.old }
        guard !entities.isEmpty || !renamed.isEmpty else { return }
        func newName(_ column: String) -> String? {
            guard !entities.isEmpty else { return nil }
            let cases = entities.map { "WHEN \($0.key.sqlText) THEN \($0.value.sqlText)" }.joined(separator: " ")
            return "\(column) = CASE \(column) \(cases) ELSE \(column) END"
        }
        for table in FrameworkTables.nameTables(of: schema) {
            var sets = [newName(table.entity), table.relatedEntity.flatMap(newName)].compactMap(\.self)
            if let name = table.relationship, !renamed.isEmpty {
                let cases = renamed.map {
                    "WHEN \(table.entity) = \($0.entity.sqlText) AND \(name) = \($0.old.sqlText) "
                        + "THEN \(($0.new ?? $0.old).sqlText)"
                }
                sets.append("\(name) = CASE \(cases.joined(separator: " ")) ELSE \(name) END")
            }
            // One statement: each expression reads the old names.
            if !sets.isEmpty { try store.execute("UPDATE \(table.name.sqlName) SET \(sets.joined(separator: ", "))") }
        }
    }
}
