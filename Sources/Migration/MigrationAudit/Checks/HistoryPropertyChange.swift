import ManagedObjectModels

/// The change of the numbers by which persistent history identifies the properties of an entity.
struct HistoryPropertyChange {
    private struct Slot: Hashable {
        let identifier: String
        let isRelationship: Bool
        /// True for a reference's second slot, which stands for its target's entity.
        var isCompanion = false
    }

    let entity: String
    let oldNumber: Int64
    private let old: [Slot]
    private let new: [Slot]
    /// True if the numbers are known. Those of a composite attribute were never seen.
    private let isKnown: Bool
    /// The new and old number of each preserved attribute.
    let tombstones: [(new: Int, old: Int)]

    init(_ entity: (new: String, old: String), _ context: AuditContext) {
        self.entity = entity.new
        oldNumber = context.oldLayout.tree.number(of: entity.old)
        old = Self.slots(of: entity.old, context.oldLayout.tree)
        new = Self.slots(of: entity.new, context.newLayout.tree)
        let all =
            Self.attributes(of: entity.old, context.oldLayout.tree)
            + Self.attributes(of: entity.new, context.newLayout.tree)
        isKnown = !all.contains { [.composite, .undefined, .objectID].contains($0.type) }
        let oldPreserved = Self.attributes(of: entity.old, context.oldLayout.tree).filter(
            \.preservesValueInHistoryOnDeletion)
        let newPreserved = Self.attributes(of: entity.new, context.newLayout.tree).filter(
            \.preservesValueInHistoryOnDeletion)
        tombstones =
            isKnown
            ? newPreserved.enumerated().compactMap { index, attribute in
                oldPreserved.firstIndex {
                    $0.renamingIdentifier == attribute.renamingIdentifier && $0.type == attribute.type
                }
                .map { (index, $0) }
            } : []
    }

    /// True if every property keeps its number.
    var isUnchanged: Bool { old == new && isKnown && tombstones.allSatisfy { $0.new == $0.old } }

    /// Returns the slots: to-one relationships, attributes, to-many relationships. In each group inherited properties
    /// come first, then the order is by name.
    private static func slots(of entity: String, _ tree: EntityTree) -> [Slot] {
        let lineage = tree.lineage(of: entity).reversed().compactMap(tree.model.entity(named:))
        let relationships = lineage.flatMap { entity in
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
        tree.lineage(of: entity).reversed().compactMap(tree.model.entity(named:)).flatMap { entity in
            entity.attributes.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
    }

    /// Returns true if the bits of surviving properties are unchanged and those of new properties are not set.
    func matches(before: [UInt8], after: [UInt8]) -> Bool {
        // A program that wrote bitmaps of another size used another model.
        guard isKnown, before.count == (old.count + 7) / 8 else { return true }
        guard after.count == (new.count + 7) / 8 else { return false }
        func bit(_ bytes: [UInt8], _ index: Int) -> Bool { bytes[index / 8] & (0x80 >> (index % 8)) != 0 }
        return new.enumerated().allSatisfy { index, slot in
            if let oldIndex = old.firstIndex(of: slot) { return bit(after, index) == bit(before, oldIndex) }
            return slot.isCompanion || !bit(after, index)
        }
    }
}
