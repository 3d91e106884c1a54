import CoreDataStore
import ManagedObjectModels

/// Finds possibly unintended effects of an inferred migration: values that are silently lost, and conditions that are
/// checked only when it runs.
package struct MigrationReview {
    let source: ManagedObjectModel
    let destination: ManagedObjectModel
    let entities: Pairing<EntityDescription>
    /// The newer entities by the older entities' names.
    let successors: [String: EntityDescription]
    package private(set) var findings: [MigrationFinding] = []

    static let wasOptional = "was optional"
    package static let whereAbstract =
        "make them objects of another entity first, by the app or by a mapping model, or keep the entity concrete"
    package static let whereMeant = "none needed if this is intended; a renamed element needs its renaming identifier"

    package init(_ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        self.source = source
        self.destination = destination
        entities = Pairing(source.entities, destination.entities, identifier: \.renamingIdentifier, name: \.name)
        successors = Dictionary(
            entities.all.compactMap { old, new in old.map { ($0.name, new) } }, uniquingKeysWith: { first, _ in first })
        review()
    }

    private mutating func review() {
        for entity in entities.removed {
            addRemoval(entity: entity.name, "the entity's objects are removed", remedy: Self.whereMeant)
            add(
                .note, code: CoreDataError.migration, entity: entity.name,
                "the migration is refused if Core Data's persistent history has changes of the removed entity",
                remedy: "purge the history first, or allow it to lose them: groupstore migrate --allow-partial-history",
                isConditional: true)
        }
        for (old, new) in entities.all {
            guard let old else {
                reviewLostEntity(new)
                continue
            }
            if new.isAbstract, !old.isAbstract {
                add(
                    .warning, entity: new.name,
                    "the entity becomes abstract: its own objects stay in the store, but no request finds them",
                    remedy: Self.whereAbstract, isConditional: true)
            }
            review(from: old, to: new)
        }
        for entity in destination.entities { reviewConstraints(of: entity) }
        reviewUnsupportedElements()
        downgradeRemovalsOfLostElements()
    }

    /// Downgrades removals that accompany a loss to notes. An element that was renamed without its identifier is
    /// removed and added again; the warning about the addition has the remedy.
    private mutating func downgradeRemovalsOfLostElements() {
        for index in findings.indices where findings[index].isRemoval {
            let removal = findings[index]
            let isLost = findings.contains { other in
                other.isLoss && (other.property == nil) == (removal.property == nil)
                    && (removal.property == nil || other.entity == removal.entity)
            }
            if isLost { findings[index].severity = .note }
        }
    }

    /// Reports the indexes and derived attributes that are left to Core Data, for migrated entities.
    private mutating func reviewUnsupportedElements() {
        let before = source.entityVersionHashesByName
        let after = destination.entityVersionHashesByName
        let migrated = Set(
            entities.all.filter { old, new in old.flatMap { before[$0.name] } != after[new.name] }.map(\.new.name))
        let layout = StoreLayout(destination)
        for index in layout.unsupportedIndexes where migrated.contains(index.entity) {
            add(
                .note, entity: index.entity, index.message,
                remedy: "none needed: requests are slower without it, but correct")
        }
        for name in layout.unsupportedDerivations {
            let parts = name.split(separator: ".", maxSplits: 1).map(String.init)
            guard parts.count == 2, migrated.contains(parts[0]) else { continue }
            let attribute = destination.entity(named: parts[0])?.attributes.first { $0.name == parts[1] }
            add(
                .warning, entity: parts[0], property: parts[1],
                "the attribute is derived as “\(attribute?.derivation?.expression ?? "")”, which isn't computed here: "
                    + "if it is new, it has no value until an object is saved",
                remedy: "derive it by a function that Core Data documents: count, sum, min, max, canonical, uppercase, "
                    + "lowercase, now, or a key path")
        }
    }

    mutating func add(
        _ severity: MigrationFinding.Severity, code: Int? = nil, entity: String, property: String? = nil,
        _ message: String, remedy: String, isConditional: Bool = false, isCounted: Bool = false
    ) {
        var finding = MigrationFinding(
            severity, code: code, entity: entity, property: property, message, remedy: remedy)
        finding.isConditional = isConditional
        finding.isCounted = isCounted
        findings.append(finding)
    }

    mutating func addRemoval(entity: String, property: String? = nil, _ message: String, remedy: String) {
        var finding = MigrationFinding(.warning, entity: entity, property: property, message, remedy: remedy)
        finding.isRemoval = true
        findings.append(finding)
    }

    // MARK: Renaming identifiers

    /// Reports a renaming identifier that matches no older entity's identifier. Identifiers are compared with
    /// identifiers, not names, so each later version must keep the entity's first name.
    private mutating func reviewLostEntity(_ entity: EntityDescription) {
        guard entity.renamingIdentifier != entity.name, !entities.removed.isEmpty else { return }
        defer { findings[findings.count - 1].isLoss = true }
        guard let named = entities.removed.first(where: { $0.name == entity.renamingIdentifier }) else {
            return add(
                .warning, entity: entity.name,
                "nothing in the older version has the renaming identifier “\(entity.renamingIdentifier)”: "
                    + "the entity begins without objects",
                remedy: "set it to the name that the entity had first, or remove it")
        }
        add(
            .warning, entity: entity.name,
            "all objects are lost: the renaming identifier “\(named.name)” is the older version's name, but that "
                + "entity's identifier is “\(named.renamingIdentifier)”",
            remedy: "set the renaming identifier to “\(named.renamingIdentifier)”")
    }

    /// Reports a property that loses its values because its renaming identifier or kind doesn't match.
    mutating func reviewLost(
        _ property: PropertyDescription, of entity: String, _ removed: [PropertyDescription]
    ) {
        let count = findings.count
        defer { for index in count..<findings.count { findings[index].isLoss = true } }
        if property.renamingIdentifier != property.name,
            let named = removed.first(where: { $0.name == property.renamingIdentifier && $0.kind == property.kind })
        {
            add(
                .warning, entity: entity, property: property.name,
                "all values are lost: the renaming identifier “\(named.name)” is the older version's name, but that "
                    + "\(named.kind)'s identifier is “\(named.renamingIdentifier)”",
                remedy: "set the renaming identifier to “\(named.renamingIdentifier)”")
        } else if property.renamingIdentifier != property.name, removed.contains(where: { $0.kind == property.kind }) {
            add(
                .warning, entity: entity, property: property.name,
                "nothing in the older version has the renaming identifier “\(property.renamingIdentifier)”: "
                    + "the property begins without values",
                remedy: "set it to the name that the property had first, or remove it")
        } else if let named = removed.first(where: {
            $0.renamingIdentifier == property.name && $0.kind != property.kind
        }) {
            add(
                .warning, entity: entity, property: property.name,
                "the \(named.kind) becomes a new \(property.kind) of the same name: its values are lost",
                remedy: "write a mapping model to keep them")
        }
    }
}
