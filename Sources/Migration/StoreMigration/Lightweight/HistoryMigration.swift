import CoreDataStore
import MappingModels
import SQLiteStore

/// Migrates Core Data's persistent history: the bitmaps of updated columns and the tombstones in `ACHANGE` become those
/// of the new model.
struct HistoryMigration {
    private let store: StoreWriter
    private let schema: DatabaseSchema
    private let matching: EntityMatching

    init(_ store: StoreWriter, schema: DatabaseSchema, matching: EntityMatching) {
        self.store = store
        self.schema = schema
        self.matching = matching
    }

    private var hasHistory: Bool { schema.has(column: "ZENTITY", in: "ACHANGE") }

    /// Runs before `ObjectReferences` gives the changes their new entity numbers.
    func migrate() throws {
        guard hasHistory else { return }
        try migrateColumns()
        try migrateTombstones()
    }

    // MARK: Bitmaps

    /// Rewrites the bitmaps. Bit 0 is the most significant bit of the first byte.
    private func migrateColumns() throws {
        var moves: [Int64: [Int]] = [:]
        for (old, new) in matching.successors {
            let before = HistoryPropertyOrder(old, matching.source).names
            let after = HistoryPropertyOrder(new, matching.destination).names
            // The old slot for each new one, or -1.
            let former = after.map { slot -> Int in
                guard let name = formerName(of: slot, in: new) else { return -1 }
                return before.firstIndex(of: name) ?? -1
            }
            guard before.count != after.count || former != Array(before.indices) else { continue }
            moves[matching.source.numbers.number(of: old)] = former
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
            matching.attribute(slot.property, of: entity)?.attribute.name
            ?? matching.relationship(slot.property, of: entity)?.relationship.name
        return former.map { HistoryPropertyOrder.Slot(property: $0, isEntityNumber: slot.isEntityNumber) }
    }

    // MARK: Tombstones

    /// Rewrites `ZTOMBSTONE0` and the following columns: a deleted object's preserved attributes, in order.
    private func migrateTombstones() throws {
        var values: [Int64: [Int?]] = [:]
        var width = 0
        for (old, new) in matching.successors {
            let before = HistoryPropertyOrder(old, matching.source).preserved
            let after = HistoryPropertyOrder(new, matching.destination).preserved
            width = max(width, after.count)
            let former = after.map { name in
                matching.attribute(name, of: new).flatMap { before.firstIndex(of: $0.attribute.name) }
            }
            guard former != before.indices.map(Optional.init) else { continue }
            values[matching.source.numbers.number(of: old)] = former
        }
        let present = schema.columnNames(of: "ACHANGE").filter { $0.hasPrefix("ZTOMBSTONE") }.count
        for index in present..<max(present, width) {
            try store.execute("ALTER TABLE ACHANGE ADD COLUMN ZTOMBSTONE\(index) BLOB")
        }
        let total = max(present, width)
        guard !values.isEmpty, total > 0 else { return }
        let sets = (0..<total).map { index in
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

/// The order in which persistent history numbers an entity's properties.
struct HistoryPropertyOrder {
    struct Slot: Hashable {
        let property: String
        let isEntityNumber: Bool
    }

    /// The slots, one bit each: to-one relationships, each followed by its entity number if it has one, then
    /// attributes, then to-many relationships. Within each group an ancestor's properties come first, then they are
    /// sorted by name.
    let names: [Slot]
    /// The attributes that are preserved after deletion, in tombstone order.
    let preserved: [String]

    init(_ entity: String, _ layout: StoreLayout) {
        let found = layout.model.entity(named: entity)
        let lineage = (found.map { [$0] + layout.model.superentities(of: $0) } ?? []).reversed()
        let attributes = lineage.flatMap { ancestor in
            ancestor.attributes.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let relationships = lineage.flatMap { ancestor in
            ancestor.relationships.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let toOne = relationships.filter { !$0.isToMany }.flatMap { relationship in
            let hasNumber = layout.numbers.hasSubentities(relationship.destinationEntityName)
            return (hasNumber ? [false, true] : [false]).map {
                Slot(property: relationship.name, isEntityNumber: $0)
            }
        }
        let toMany = relationships.filter(\.isToMany)
        names =
            toOne + attributes.map { Slot(property: $0.name, isEntityNumber: false) }
            + toMany.map { Slot(property: $0.name, isEntityNumber: false) }
        preserved = attributes.filter(\.preservesValueInHistoryOnDeletion).map(\.name)
    }
}
