import CoreDataStore
import ManagedObjectModel

/// What an inferred migration does that its author may not have meant: values that are lost without a word, and
/// conditions that are only checked when it runs.
struct MigrationReview {
    private let source: ManagedObjectModel
    private let destination: ManagedObjectModel
    private let entities: Pairing<EntityDescription>
    /// By the older entity's name.
    private let successors: [String: EntityDescription]
    /// The older entities that inherit from one, directly or not, by its name.
    private let descendants: [String: [EntityDescription]]
    /// By the older entity's name: the names of its properties, by what they are known by.
    private let propertyNames: [String: [String: String]]
    private(set) var findings: [MigrationFinding] = []

    private static let wasOptional = "was optional"
    private static let whereMeant = "none needed where that is meant; what was renamed needs its renaming identifier"

    init(_ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        self.source = source
        self.destination = destination
        entities = Pairing(source.entities, destination.entities, \.renamingIdentifier, \.name)
        successors = Dictionary(
            entities.all.compactMap { old, new in old.map { ($0.name, new) } }, uniquingKeysWith: { first, _ in first })
        var descendants: [String: [EntityDescription]] = [:]
        for entity in source.entities {
            for ancestor in source.superentities(of: entity) { descendants[ancestor.name, default: []].append(entity) }
        }
        self.descendants = descendants
        propertyNames = Dictionary(
            source.entities.map { entity in
                let names = source.properties(of: entity).map { ($0.renamingIdentifier, $0.name) }
                return (entity.name, Dictionary(names, uniquingKeysWith: { first, _ in first }))
            }, uniquingKeysWith: { first, _ in first })
        review()
    }

    private mutating func review() {
        for entity in entities.removed {
            add(.note, entity.name, nil, "the entity's objects are removed", Self.whereMeant)
            add(
                .note, code: CoreDataError.migration, entity.name, nil,
                "the migration is refused where Core Data's persistent history has changes of the removed entity",
                "purge the history first, or allow it to lose them: groupstore migrate --allow-partial-history",
                requirement: .noHistory(entity: entity.name))
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

    private mutating func add(
        _ severity: MigrationFinding.Severity, code: Int? = nil, _ entity: String, _ property: String?,
        _ message: String, _ remedy: String, requirement: StoreRequirement? = nil
    ) {
        var finding = MigrationFinding(
            severity, code: code, entity: entity, property: property, message, remedy: remedy)
        finding.requirement = requirement
        findings.append(finding)
    }

    // MARK: Renaming identifiers

    /// The identifier names an entity of the older version, and that one is known by another: identifiers are compared,
    /// not names, so each later version must keep the first name.
    private mutating func reviewLostEntity(_ entity: EntityDescription) {
        guard entity.renamingIdentifier != entity.name, !entities.removed.isEmpty else { return }
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

    private mutating func reviewLost(
        _ property: PropertyDescription, of entity: String, _ removed: [PropertyDescription]
    ) {
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

    // MARK: Uniqueness

    /// Core Data looks when it makes the index: the migration fails on the first two objects that are the same.
    private mutating func reviewConstraints(of entity: EntityDescription) {
        let family =
            [entity]
            + destination.entities.filter { one in
                destination.superentities(of: one).contains { $0.name == entity.name }
            }
        guard entities.all.contains(where: { old, new in old != nil && family.contains { $0.name == new.name } })
        else { return }
        for constraint in entity.uniquenessConstraints where !isKept(constraint, of: entity) {
            add(
                .warning, code: CoreDataError.migrationConstraintViolation, entity.name,
                constraint.count == 1 ? constraint[0] : nil,
                "the older version has no such uniqueness constraint (\(constraint.joined(separator: ", "))): the migration "
                    + "fails when two objects have the same",
                "see that no two have, or leave the uniqueness constraint out",
                requirement: .unique(entity: entity.name, properties: constraint))
        }
    }

    /// Whether the older entity has the same constraint, and nothing changes the values that it is about.
    private func isKept(_ constraint: [String], of entity: EntityDescription) -> Bool {
        guard let old = entities.all.first(where: { $0.new.name == entity.name })?.old else { return false }
        let pairs = Pairing(
            source.properties(of: old), destination.properties(of: entity), \.renamingIdentifier, \.name)
        var former: [String] = []
        for name in constraint {
            guard let pair = pairs.all.first(where: { $0.new.name == name }), let was = pair.old else { return false }
            switch (was, pair.new) {
            case (.attribute(let before), .attribute(let after)):
                let fills = before.isOptional && !after.isOptional
                guard before.type == after.type, before.isTransient == after.isTransient, !fills else { return false }
            case (.relationship(let before), .relationship(let after)):
                guard before.isToMany == after.isToMany else { return false }
            default: return false
            }
            former.append(was.name)
        }
        return old.uniquenessConstraints.contains { Set($0) == Set(former) }
    }

    // MARK: Properties

    private mutating func review(from old: EntityDescription, to new: EntityDescription) {
        let declared = Set(new.declaredProperties.map(\.name))
        let pairs = Pairing(
            source.properties(of: old), destination.properties(of: new), \.renamingIdentifier, \.name)
        let lost = pairs.all.compactMap { was, property in was.map { $0.kind != property.kind } == true ? was : nil }
        let removed = pairs.removed + lost
        for property in pairs.removed where !property.isTransient && isGone(property, from: old) {
            add(
                .note, new.name, property.name, "the \(property.kind) and its values are removed",
                Self.whereMeant)
        }
        for case (let was?, let property) in pairs.all where declared.contains(property.name) {
            if !was.isTransient, property.isTransient, was.kind == property.kind {
                add(
                    .warning, new.name, property.name, "the \(property.kind) becomes transient: its values are removed",
                    "keep it stored, or add a transient one beside it, where they are to be kept")
            }
        }
        for (was, property) in pairs.all where declared.contains(property.name) && !property.isTransient {
            let kept = was.flatMap { $0.kind == property.kind && !$0.isTransient ? $0 : nil }
            if kept == nil { reviewLost(property, of: new.name, removed) }
            switch (property, kept) {
            case (.attribute(let attribute), .attribute(let before)?):
                if before.isOptional, !attribute.isOptional {
                    let needed = requirement(of: property, before.name, old, new)
                    reviewMissing(attribute, of: new.name, Self.wasOptional, needed)
                }
                review(before, attribute, of: new.name)
            case (.attribute(let attribute), _):
                let needed = attribute.isOptional ? nil : requirement(of: property, nil, old, new)
                reviewMissing(attribute, of: new.name, "is new", needed)
            case (.relationship(let relationship), .relationship(let before)?):
                if before.isOptional, !relationship.isOptional {
                    let needed = requirement(of: property, before.name, old, new)
                    reviewMissing(relationship, of: new.name, Self.wasOptional, needed)
                }
                review(before, relationship, of: new.name)
            case (.relationship(let relationship), _):
                if !relationship.isOptional { reviewMissing(relationship, of: new.name, "is new", nil) }
            case (.fetched, _): break
            }
        }
    }

    /// A property that an ancestor declared is told of there, unless only this entity loses it.
    private func isGone(_ property: PropertyDescription, from entity: EntityDescription) -> Bool {
        if entity.declares(property.name) { return true }
        let declaring = source.superentities(of: entity).first { $0.declares(property.name) }
        guard let successor = declaring.flatMap({ successors[$0.name] }) else { return true }
        return destination.properties(of: successor).contains { $0.renamingIdentifier == property.renamingIdentifier }
    }

    /// What the objects of the older entity, and of those that inherit from it, must have. Nil where they go different
    /// ways, so that one count doesn't tell: where some leave the hierarchy, or bring a value of their own along.
    private func requirement(
        of property: PropertyDescription, _ oldName: String?, _ old: EntityDescription, _ new: EntityDescription
    ) -> StoreRequirement? {
        for member in descendants[old.name] ?? [] {
            guard let successor = successors[member.name],
                destination.superentities(of: successor).contains(where: { $0.name == new.name })
            else { return nil }
            guard propertyNames[member.name]?[property.renamingIdentifier] == oldName else { return nil }
        }
        return .value(entity: old.name, property: oldName)
    }

    private mutating func review(_ old: AttributeDescription, _ new: AttributeDescription, of entity: String) {
        if new.type.narrows(old.type) {
            add(
                .warning, entity, new.name,
                "\(old.type.name) becomes \(new.type.name): values that don't fit are cut",
                "see that no value is outside of the new type's range")
        }
        if old.derivation == nil, let derivation = new.derivation {
            add(
                .warning, entity, new.name,
                "the attribute becomes derived (\(derivation.expression)): its values are replaced",
                "add a derived one beside it, where they are to be kept")
        }
    }

    private mutating func review(_ old: RelationshipDescription, _ new: RelationshipDescription, of entity: String) {
        guard let before = source.entity(named: old.destinationEntityName),
            let after = destination.entity(named: new.destinationEntityName)
        else { return }
        let successor = successors[before.name]
        let family = ([after] + destination.superentities(of: after)).map(\.name)
        let isSame = successor.map { one in
            family.contains(one.name) || destination.superentities(of: one).contains { $0.name == after.name }
        }
        if old.isOrdered, !new.isOrdered, new.isToMany {
            add(
                .note, entity, new.name, "the relationship is not ordered any more: the order of its objects is lost",
                Self.whereMeant)
        }
        if isSame == true, let successor, successor.name != after.name,
            destination.superentities(of: after).contains(where: { $0.name == successor.name })
        {
            add(
                .warning, entity, new.name,
                "the destination changes from \(before.name) to \(after.name), which inherits from it: objects of other "
                    + "entities are let go",
                "write a mapping model, where they are to be kept")
        }
        guard isSame != true else { return }
        add(
            .warning, entity, new.name,
            "the destination changes from \(before.name) to \(after.name), which is another entity: its objects are "
                + "let go",
            "give \(after.name) the renaming identifier “\(before.renamingIdentifier)”, where it is the same entity")
    }

    /// Checked by Core Data only when the migration runs: then it fails on the first object without a value.
    private mutating func reviewMissing(
        _ attribute: AttributeDescription, of entity: String, _ why: String,
        _ requirement: StoreRequirement?
    ) {
        guard !attribute.isOptional, attribute.defaultValue == nil, attribute.derivation == nil else { return }
        add(
            .warning, code: CoreDataError.migration, entity, attribute.name,
            "the attribute \(why), is mandatory and has no default: the migration fails when an object has no value",
            "give it a default, or make it optional", requirement: requirement)
    }

    /// A to-many relationship has no column that could be checked: the migration goes through, and saving fails.
    private mutating func reviewMissing(
        _ relationship: RelationshipDescription, of entity: String, _ why: String,
        _ requirement: StoreRequirement?
    ) {
        let fails = why == Self.wasOptional && !relationship.isToMany
        add(
            .warning, code: fails ? CoreDataError.migration : nil, entity, relationship.name,
            "the relationship \(why) and is mandatory: "
                + (fails
                    ? "the migration fails when an object has none" : "an object that has none can't be saved again"),
            "make it optional, or write a mapping model that sets it", requirement: fails ? requirement : nil)
    }
}

extension AttributeType {
    /// Whether a value of the older numeric type may not fit.
    fileprivate func narrows(_ old: AttributeType) -> Bool {
        let order: [AttributeType] = [.boolean, .integer16, .integer32, .integer64, .float, .double, .decimal]
        guard let from = order.firstIndex(of: old), let to = order.firstIndex(of: self) else { return false }
        return to < from
    }
}
