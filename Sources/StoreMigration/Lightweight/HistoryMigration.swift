import CoreDataStore
import MappingModels
import SQLiteStore

/// What becomes of Core Data's persistent history: entity numbers, the bitmaps of updated columns, and tombstones are
/// those of the new model. (Format notes: table `ACHANGE`; also the tables that mirror to CloudKit.)
struct HistoryMigration {
    private let store: StoreWriter
    private let schema: StoreSchema
    private let succession: EntityMatching
    private(set) var notes: [String] = []

    init(_ store: StoreWriter, _ schema: StoreSchema, _ succession: EntityMatching) {
        self.store = store
        self.schema = schema
        self.succession = succession
    }

    private var hasHistory: Bool { schema.has(column: "ZENTITY", in: "ACHANGE") }

    /// The numbers of the entities that are removed.
    private static func removed(_ succession: EntityMatching) -> [Int64] {
        succession.source.numbers.entities.filter { succession.successors[$0.name] == nil }
            .map { succession.source.numbers.number(of: $0.name) }
    }

    /// The changes of entities that are removed go: Core Data refuses to lose them, unless it is allowed to
    /// (`StoreObstacles`).
    mutating func removeChangesOfRemoved() throws {
        guard hasHistory, !Self.removed(succession).isEmpty else { return }
        notes = try Self.notes(store, schema, succession)
        try store.execute("DELETE FROM ACHANGE WHERE ZENTITY IN (\(Self.removed(succession).list))")
    }

    /// What `removeChangesOfRemoved` tells.
    static func notes(
        _ store: SQLiteConnection, _ schema: StoreSchema, _ succession: EntityMatching
    ) throws -> [String] {
        let removed = removed(succession)
        guard schema.has(column: "ZENTITY", in: "ACHANGE"), !removed.isEmpty else { return [] }
        let count =
            try store.integer("SELECT count(*) FROM ACHANGE NOT INDEXED WHERE ZENTITY IN (\(removed.list))") ?? 0
        return count > 0 ? ["persistent history has lost \(count) changes of entities that are removed"] : []
    }

    func migrate() throws {
        if hasHistory {
            try migrateColumns()
            try migrateTombstones()
            try renumber("ACHANGE", "ZENTITY")
        }
        for table in ["ANSCKRECORDMETADATA", "ANSCKHISTORYANALYZERSTATE"]
        where schema.has(column: "ZENTITYID", in: table) {
            try renumber(table, "ZENTITYID")
        }
    }

    private func renumber(_ table: String, _ column: String) throws {
        let changed = succession.numbers.filter { $0.key != $0.value }
        guard !changed.isEmpty else { return }
        let number = EntityNumberExpression(changed, of: column).text
        // By way of negative numbers: where the number and a key are unique, a row must not meet one that is yet to move.
        try store.execute(
            "UPDATE \(table) SET \(column) = -(\(number)) WHERE \(column) IN (\(changed.keys.sorted().list))")
        try store.execute("UPDATE \(table) SET \(column) = -\(column) WHERE \(column) < 0")
    }

    // MARK: Bitmaps

    /// Bit 0 is the highest one of the first byte.
    private func migrateColumns() throws {
        var moves: [Int64: [Int]] = [:]
        for (old, new) in succession.successors {
            let before = HistoryPropertyOrder(old, succession.source).names
            let after = HistoryPropertyOrder(new, succession.destination).names
            // For each new slot the old one, or -1.
            let former = after.map { slot -> Int in
                guard let name = formerName(of: slot, in: new) else { return -1 }
                return before.firstIndex(of: name) ?? -1
            }
            guard before.count != after.count || former != Array(before.indices) else { continue }
            moves[succession.source.numbers.number(of: old)] = former
        }
        guard !moves.isEmpty else { return }
        try store.addFunction("groupstore_history_columns", arguments: 2) { values in
            guard case .integer(let entity) = values[0], case .blob(let bits) = values[1], let move = moves[entity]
            else {
                return values[1]
            }
            var moved = [UInt8](repeating: 0, count: (move.count + 7) / 8)
            for (new, old) in move.enumerated() where old >= 0 && old / 8 < bits.count {
                if bits[old / 8] & (0x80 >> UInt8(old % 8)) != 0 { moved[new / 8] |= 0x80 >> UInt8(new % 8) }
            }
            return .blob(moved)
        }
        try store.execute(
            "UPDATE ACHANGE SET ZCOLUMNS = groupstore_history_columns(ZENTITY, ZCOLUMNS) WHERE ZCOLUMNS IS NOT NULL "
                + "AND ZENTITY IN (\(moves.keys.sorted().list))")
    }

    private func formerName(of slot: HistoryPropertyOrder.Slot, in entity: String) -> HistoryPropertyOrder.Slot? {
        let former =
            succession.attribute(slot.property, of: entity)?.attribute.name
            ?? succession.relationship(slot.property, of: entity)?.relationship.name
        return former.map { HistoryPropertyOrder.Slot(property: $0, isEntityNumber: slot.isEntityNumber) }
    }

    // MARK: Tombstones

    /// `ZTOMBSTONE0` and on: what a deleted object's attributes were, those that are preserved, in order.
    private func migrateTombstones() throws {
        var values: [Int64: [Int?]] = [:]
        var width = 0
        for (old, new) in succession.successors {
            let before = HistoryPropertyOrder(old, succession.source).preserved
            let after = HistoryPropertyOrder(new, succession.destination).preserved
            width = max(width, after.count)
            let former = after.map { name in
                succession.attribute(name, of: new).flatMap { before.firstIndex(of: $0.attribute.name) }
            }
            guard former != before.indices.map(Optional.init) else { continue }
            values[succession.source.numbers.number(of: old)] = former
        }
        let there = (schema.columns["ACHANGE"] ?? []).filter { $0.name.hasPrefix("ZTOMBSTONE") }.count
        for index in there..<max(there, width) {
            try store.execute("ALTER TABLE ACHANGE ADD COLUMN ZTOMBSTONE\(index) BLOB")
        }
        let all = max(there, width)
        guard !values.isEmpty, all > 0 else { return }
        let sets = (0..<all).map { index in
            let cases = values.sorted { $0.key < $1.key }.map { entity, former in
                let value = index < former.count ? former[index].map { "ZTOMBSTONE\($0)" } ?? "NULL" : "NULL"
                return "WHEN \(entity) THEN \(value)"
            }
            return "ZTOMBSTONE\(index) = CASE ZENTITY \(cases.joined(separator: " ")) ELSE ZTOMBSTONE\(index) END"
        }
        try store.execute(
            "UPDATE ACHANGE SET \(sets.joined(separator: ", ")) WHERE ZENTITY IN (\(values.keys.sorted().list))")
    }
}

/// The order in which persistent history counts an entity's properties.
struct HistoryPropertyOrder {
    struct Slot: Hashable {
        let property: String
        let isEntityNumber: Bool
    }

    /// A bit each: to-one relationships, each with its entity number where it has one, attributes, to-many relationships;
    /// within each, an ancestor's first, then by name.
    let names: [Slot]
    /// The attributes that are preserved after deletion, in the order of tombstones.
    let preserved: [String]

    init(_ entity: String, _ layout: StoreLayout) {
        let found = layout.model.entity(named: entity)
        let line = (found.map { [$0] + layout.model.superentities(of: $0) } ?? []).reversed()
        let attributes = line.flatMap { one in
            one.attributes.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let relationships = line.flatMap { one in
            one.relationships.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let toOne = relationships.filter { !$0.isToMany }.flatMap { one in
            let hasNumber = layout.numbers.hasSubentities(one.destinationEntityName)
            return (hasNumber ? [false, true] : [false]).map { Slot(property: one.name, isEntityNumber: $0) }
        }
        let toMany = relationships.filter(\.isToMany)
        names =
            toOne + attributes.map { Slot(property: $0.name, isEntityNumber: false) }
            + toMany.map { Slot(property: $0.name, isEntityNumber: false) }
        preserved = attributes.filter(\.preservesValueInHistoryOnDeletion).map(\.name)
    }
}
