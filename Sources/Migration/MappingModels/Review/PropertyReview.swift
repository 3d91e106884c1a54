import ManagedObjectModels

// The review of an entity's properties.
extension MigrationReview {
    mutating func review(from old: EntityDescription, to new: EntityDescription) {
        let declared = Set(new.declaredProperties.map(\.name))
        let pairs = Pairing(
            source.properties(of: old), destination.properties(of: new), identifier: \.renamingIdentifier, name: \.name)
        let lost = pairs.all.compactMap { was, property in was.map { $0.kind != property.kind } == true ? was : nil }
        let removed = pairs.removed + lost
        for property in pairs.removed where !property.isTransient && isGone(property, from: old) {
            addRemoval(
                entity: new.name, property: property.name, "the \(property.kind) and its values are removed",
                remedy: Self.whereMeant)
        }
        for case (let was?, let property) in pairs.all where declared.contains(property.name) {
            if !was.isTransient, property.isTransient, was.kind == property.kind {
                addRemoval(
                    entity: new.name, property: property.name,
                    "the \(property.kind) becomes transient: its values are removed",
                    remedy: "to keep them, keep it stored, or add a transient one beside it")
            }
        }
        // An attribute of an ancestor is reported there if the ancestor had it before. One that moved up is reported
        // here.
        for case (.attribute(let was)?, .attribute(let attribute)) in pairs.all
        where !declared.contains(attribute.name) && old.declares(was.name) && !was.isTransient {
            review(was, attribute, of: new.name)
        }
        for (was, property) in pairs.all where declared.contains(property.name) && !property.isTransient {
            let kept = was.flatMap { $0.kind == property.kind && !$0.isTransient ? $0 : nil }
            if kept == nil { reviewLost(property, of: new.name, removed) }
            switch (property, kept) {
            case (.attribute(let attribute), .attribute(let before)?):
                if before.isOptional, !attribute.isOptional {
                    reviewMissing(attribute, of: new.name, Self.wasOptional)
                }
                review(before, attribute, of: new.name)
            case (.attribute(let attribute), _):
                reviewMissing(attribute, of: new.name, "is new")
            case (.relationship(let relationship), .relationship(let before)?):
                if !before.requiresObject {
                    reviewMissing(relationship, of: new.name, before.isOptional ? Self.wasOptional : "could be empty")
                }
                review(before, relationship, of: new.name)
            case (.relationship(let relationship), _):
                reviewMissing(relationship, of: new.name, "is new")
            case (.fetched, _): break
            }
        }
    }

    /// Returns true if the removal is reported for this entity. A property that an ancestor declared is reported there,
    /// unless only this entity loses it.
    private func isGone(_ property: PropertyDescription, from entity: EntityDescription) -> Bool {
        if entity.declares(property.name) { return true }
        let declaring = source.superentities(of: entity).first { $0.declares(property.name) }
        guard let successor = declaring.flatMap({ successors[$0.name] }) else { return true }
        return destination.properties(of: successor).contains { $0.renamingIdentifier == property.renamingIdentifier }
    }

    private mutating func review(_ old: AttributeDescription, _ new: AttributeDescription, of entity: String) {
        if new.type.narrows(old.type) {
            add(
                .warning, entity: entity, property: new.name,
                "\(old.type.name) becomes \(new.type.name): values that don't fit are truncated",
                remedy: "make sure that no value is outside the new type's range", isCounted: true)
        }
        if old.derivation == nil, let derivation = new.derivation {
            add(
                .warning, entity: entity, property: new.name,
                "the attribute becomes derived (\(derivation.expression)): its values are replaced",
                remedy: "to keep them, add a derived one beside it", isCounted: true)
        }
    }

    private mutating func review(_ old: RelationshipDescription, _ new: RelationshipDescription, of entity: String) {
        guard let before = source.entity(named: old.destinationEntityName),
            let after = destination.entity(named: new.destinationEntityName)
        else { return }
        let successor = successors[before.name]
        let family = ([after] + destination.superentities(of: after)).map(\.name)
        let isSame = successor.map { entity in
            family.contains(entity.name) || destination.superentities(of: entity).contains { $0.name == after.name }
        }
        if old.isOrdered, !new.isOrdered, new.isToMany {
            add(
                .note, entity: entity, property: new.name,
                "the relationship is not ordered any more: the order of its objects is lost", remedy: Self.whereMeant,
                isCounted: true)
        }
        if isSame == true, let successor, successor.name != after.name,
            destination.superentities(of: after).contains(where: { $0.name == successor.name })
        {
            add(
                .warning, entity: entity, property: new.name,
                "the destination changes from \(before.name) to \(after.name), which inherits from it: links to objects of "
                    + "other entities are removed",
                remedy: "write a mapping model to keep them", isCounted: true)
        }
        guard isSame != true else { return }
        add(
            .warning, entity: entity, property: new.name,
            "the destination changes from \(before.name) to \(after.name), which is another entity: its links are "
                + "removed",
            remedy:
                "give \(after.name) the renaming identifier “\(before.renamingIdentifier)” if it is the same entity",
            isCounted: true
        )
    }

    /// Warns of a mandatory attribute without a default. Core Data checks it only when the migration runs, which then
    /// fails on the first object without a value.
    private mutating func reviewMissing(_ attribute: AttributeDescription, of entity: String, _ why: String) {
        guard !attribute.isOptional, attribute.defaultValue == nil, attribute.derivation == nil else { return }
        add(
            .warning, code: CoreDataError.migration, entity: entity, property: attribute.name,
            "the attribute \(why), is mandatory and has no default: the migration fails when an object has no value",
            remedy: "give it a default, or make it optional", isConditional: true)
    }

    /// Warns of a mandatory relationship. A to-many relationship has no column to check, so the migration succeeds and
    /// saving fails.
    private mutating func reviewMissing(_ relationship: RelationshipDescription, of entity: String, _ why: String) {
        guard relationship.requiresObject else { return }
        let fails = why == Self.wasOptional && !relationship.isToMany
        add(
            .warning, code: fails ? CoreDataError.migration : nil, entity: entity, property: relationship.name,
            "the relationship \(why) and is mandatory: "
                + (fails
                    ? "the migration fails when an object has none" : "an object that has none can't be saved again"),
            remedy: "make it optional, or write a mapping model that sets it", isConditional: fails)
    }
}

extension AttributeType {
    /// Returns true if this numeric type may not fit a value of the older one.
    fileprivate func narrows(_ old: AttributeType) -> Bool {
        let order: [AttributeType] = [.boolean, .integer16, .integer32, .integer64, .float, .double, .decimal]
        guard let from = order.firstIndex(of: old), let to = order.firstIndex(of: self) else { return false }
        return to < from
    }
}
