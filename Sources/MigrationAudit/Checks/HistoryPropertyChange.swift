import ManagedObjectModels

/// What becomes of the numbers by which persistent history knows the properties of one entity.
struct HistoryPropertyChange {
    private struct Slot: Hashable {
        let identifier: String
        let isRelationship: Bool
        /// The second one of a reference, for its target's entity.
        var isCompanion = false
    }

    let entity: String
    let oldNumber: Int64
    private let old: [Slot]
    private let new: [Slot]
    /// Whether the numbers can be told: nobody has seen those of a composite attribute.
    private let isKnown: Bool
    /// The newer number of each preserved attribute, and the older.
    let tombstones: [(new: Int, old: Int)]

    init(_ entity: (new: String, old: String), _ context: AuditContext) {
        self.entity = entity.new
        oldNumber = context.old.tree.number(of: entity.old)
        old = Self.slots(of: entity.old, context.old.tree)
        new = Self.slots(of: entity.new, context.new.tree)
        let all = Self.attributes(of: entity.old, context.old.tree) + Self.attributes(of: entity.new, context.new.tree)
        isKnown = !all.contains { [.composite, .undefined, .objectID].contains($0.type) }
        let was = Self.attributes(of: entity.old, context.old.tree).filter(\.preservesValueInHistoryOnDeletion)
        let now = Self.attributes(of: entity.new, context.new.tree).filter(\.preservesValueInHistoryOnDeletion)
        tombstones =
            isKnown
            ? now.enumerated().compactMap { index, attribute in
                was.firstIndex { $0.renamingIdentifier == attribute.renamingIdentifier && $0.type == attribute.type }
                    .map { (index, $0) }
            } : []
    }

    var isSame: Bool { old == new && isKnown && tombstones.allSatisfy { $0.new == $0.old } }

    /// To-one relationships, attributes, to-many relationships; in each group inherited ones first, then by name.
    private static func slots(of entity: String, _ tree: EntityTree) -> [Slot] {
        let line = tree.line(of: entity).reversed().compactMap(tree.model.entity(named:))
        let relationships = line.flatMap { entity in
            entity.relationships.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let toOne = relationships.filter { !$0.isToMany }.flatMap { relationship in
            let slot = Slot(identifier: relationship.renamingIdentifier, isRelationship: true)
            var companion = slot
            companion.isCompanion = true
            return tree.hasChildren(relationship.destinationEntityName) ? [slot, companion] : [slot]
        }
        return toOne
            + attributes(of: entity, tree).map { Slot(identifier: $0.renamingIdentifier, isRelationship: false) }
            + relationships.filter(\.isToMany).map { Slot(identifier: $0.renamingIdentifier, isRelationship: true) }
    }

    private static func attributes(of entity: String, _ tree: EntityTree) -> [AttributeDescription] {
        tree.line(of: entity).reversed().compactMap(tree.model.entity(named:)).flatMap { entity in
            entity.attributes.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
    }

    /// Whether the bits of the properties that live on are what they were, and those of new ones are not set.
    func agrees(was: [UInt8], now: [UInt8]) -> Bool {
        // Whoever wrote other bitmaps than these knew other properties.
        guard isKnown, was.count == (old.count + 7) / 8 else { return true }
        guard now.count == (new.count + 7) / 8 else { return false }
        func bit(_ bytes: [UInt8], _ index: Int) -> Bool { bytes[index / 8] & (0x80 >> (index % 8)) != 0 }
        return new.enumerated().allSatisfy { index, slot in
            if let before = old.firstIndex(of: slot) { return bit(now, index) == bit(was, before) }
            return slot.isCompanion || !bit(now, index)
        }
    }
}
