import CoreDataStore
import ManagedObjectModels

/// What an inferred migration does that its author may not have meant: values that are lost without a word, and
/// conditions that are only checked when it runs.
package struct MigrationReview {
    let source: ManagedObjectModel
    let destination: ManagedObjectModel
    let entities: Pairing<EntityDescription>
    /// By the older entity's name.
    let successors: [String: EntityDescription]
    package private(set) var findings: [MigrationFinding] = []

    static let wasOptional = "was optional"
    package static let whereMeant = "none needed where that is meant; what was renamed needs its renaming identifier"

    package init(_ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        self.source = source
        self.destination = destination
        entities = Pairing(source.entities, destination.entities, \.renamingIdentifier, \.name)
        successors = Dictionary(
            entities.all.compactMap { old, new in old.map { ($0.name, new) } }, uniquingKeysWith: { first, _ in first })
        review()
    }

    private mutating func review() {
        for entity in entities.removed {
            addRemoval(entity.name, nil, "the entity's objects are removed", Self.whereMeant)
            add(
                .note, code: CoreDataError.migration, entity.name, nil,
                "the migration is refused where Core Data's persistent history has changes of the removed entity",
                "purge the history first, or allow it to lose them: groupstore migrate --allow-partial-history",
                isConditional: true)
        }
        for (old, new) in entities.all {
            guard let old else {
                reviewLostEntity(new)
                continue
            }
            review(from: old, to: new)
        }
        for entity in destination.entities { reviewConstraints(of: entity) }
        reviewUnmade()
        noteRemovalsOfWhatIsLost()
    }

    /// Something that was renamed and isn't known by its identifier is removed and begins anew: the warning of the latter says
    /// what would help.
    private mutating func noteRemovalsOfWhatIsLost() {
        for index in findings.indices where findings[index].isRemoval {
            let removal = findings[index]
            let isLost = findings.contains { other in
                other.isLoss && (other.property == nil) == (removal.property == nil)
                    && (removal.property == nil || other.entity == removal.entity)
            }
            if isLost { findings[index].severity = .note }
        }
    }

    /// What is left to Core Data: told where the entity is migrated.
    private mutating func reviewUnmade() {
        let before = source.entityVersionHashesByName
        let after = destination.entityVersionHashesByName
        let migrated = Set(
            entities.all.filter { old, new in old.flatMap { before[$0.name] } != after[new.name] }.map(\.new.name))
        let layout = StoreLayout(destination)
        for index in layout.unmadeIndexes where migrated.contains(index.entity) {
            add(.note, index.entity, nil, index.sentence, "none needed: requests are slower without it, no less right")
        }
        for name in layout.unknownDerivations {
            let parts = name.split(separator: ".", maxSplits: 1).map(String.init)
            guard parts.count == 2, migrated.contains(parts[0]) else { continue }
            let attribute = destination.entity(named: parts[0])?.attributes.first { $0.name == parts[1] }
            add(
                .warning, parts[0], parts[1],
                "the attribute is derived as “\(attribute?.derivation?.expression ?? "")”, which isn't computed here: "
                    + "where it is new it has no value before an object is saved",
                "derive it by a function that Core Data documents, where it isn't one: count, sum, min, max, canonical, "
                    + "uppercase, lowercase, now, or a key path")
        }
    }

    mutating func add(
        _ severity: MigrationFinding.Severity, code: Int? = nil, _ entity: String, _ property: String?,
        _ message: String, _ remedy: String, isConditional: Bool = false
    ) {
        var finding = MigrationFinding(
            severity, code: code, entity: entity, property: property, message, remedy: remedy)
        finding.isConditional = isConditional
        findings.append(finding)
    }

    mutating func addRemoval(_ entity: String, _ property: String?, _ message: String, _ remedy: String) {
        var finding = MigrationFinding(.warning, entity: entity, property: property, message, remedy: remedy)
        finding.isRemoval = true
        findings.append(finding)
    }

    // MARK: Renaming identifiers

    /// The identifier names an entity of the older version, and that one is known by another: identifiers are compared,
    /// not names, so each later version must keep the first name.
    private mutating func reviewLostEntity(_ entity: EntityDescription) {
        guard entity.renamingIdentifier != entity.name, !entities.removed.isEmpty else { return }
        defer { findings[findings.count - 1].isLoss = true }
        guard let named = entities.removed.first(where: { $0.name == entity.renamingIdentifier }) else {
            return add(
                .warning, entity.name, nil,
                "nothing in the older version is known by the renaming identifier “\(entity.renamingIdentifier)”: "
                    + "the entity begins without objects",
                "set it to the name that the entity had first, or remove it")
        }
        add(
            .warning, entity.name, nil,
            "all objects are lost: the renaming identifier “\(named.name)” is the older version's name, but that "
                + "entity is known by “\(named.renamingIdentifier)”",
            "set the renaming identifier to “\(named.renamingIdentifier)”")
    }

    mutating func reviewLost(
        _ property: PropertyDescription, of entity: String, _ removed: [PropertyDescription]
    ) {
        let count = findings.count
        defer { for index in count..<findings.count { findings[index].isLoss = true } }
        if property.renamingIdentifier != property.name,
            let named = removed.first(where: { $0.name == property.renamingIdentifier && $0.kind == property.kind })
        {
            add(
                .warning, entity, property.name,
                "all values are lost: the renaming identifier “\(named.name)” is the older version's name, but that "
                    + "\(named.kind) is known by “\(named.renamingIdentifier)”",
                "set the renaming identifier to “\(named.renamingIdentifier)”")
        } else if property.renamingIdentifier != property.name, removed.contains(where: { $0.kind == property.kind }) {
            add(
                .warning, entity, property.name,
                "nothing in the older version is known by the renaming identifier “\(property.renamingIdentifier)”: "
                    + "the property begins without values",
                "set it to the name that the property had first, or remove it")
        } else if let named = removed.first(where: {
            $0.renamingIdentifier == property.name && $0.kind != property.kind
        }) {
            add(
                .warning, entity, property.name,
                "the \(named.kind) becomes a new \(property.kind) of the same name: its values are lost",
                "write a mapping model, where they are to be kept")
        }
    }
}
