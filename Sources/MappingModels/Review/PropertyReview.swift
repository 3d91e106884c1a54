import ManagedObjectModels

/// What becomes of an entity's properties.
extension MigrationReview {
    mutating func review(from old: EntityDescription, to new: EntityDescription) {
        let declared = Set(new.declaredProperties.map(\.name))
        let pairs = Pairing(
            source.properties(of: old), destination.properties(of: new), \.renamingIdentifier, \.name)
        let lost = pairs.all.compactMap { was, property in was.map { $0.kind != property.kind } == true ? was : nil }
        let removed = pairs.removed + lost
        for property in pairs.removed where !property.isTransient && isGone(property, from: old) {
            addRemoval(
                new.name, property.name, "the \(property.kind) and its values are removed", Self.whereMeant)
        }
        for case (let was?, let property) in pairs.all where declared.contains(property.name) {
            if !was.isTransient, property.isTransient, was.kind == property.kind {
                addRemoval(
                    new.name, property.name, "the \(property.kind) becomes transient: its values are removed",
                    "keep it stored, or add a transient one beside it, where they are to be kept")
            }
        }
        // What an ancestor declares now is told of there, where the ancestor had it; one that moved up is only here.
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
                if before.isOptional, !relationship.isOptional {
                    reviewMissing(relationship, of: new.name, Self.wasOptional)
                }
                review(before, relationship, of: new.name)
            case (.relationship(let relationship), _):
                if !relationship.isOptional { reviewMissing(relationship, of: new.name, "is new") }
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
    private mutating func reviewMissing(_ attribute: AttributeDescription, of entity: String, _ why: String) {
        guard !attribute.isOptional, attribute.defaultValue == nil, attribute.derivation == nil else { return }
        add(
            .warning, code: CoreDataError.migration, entity, attribute.name,
            "the attribute \(why), is mandatory and has no default: the migration fails when an object has no value",
            "give it a default, or make it optional", isConditional: true)
    }

    /// A to-many relationship has no column that could be checked: the migration goes through, and saving fails.
    private mutating func reviewMissing(_ relationship: RelationshipDescription, of entity: String, _ why: String) {
        let fails = why == Self.wasOptional && !relationship.isToMany
        add(
            .warning, code: fails ? CoreDataError.migration : nil, entity, relationship.name,
            "the relationship \(why) and is mandatory: "
                + (fails
                    ? "the migration fails when an object has none" : "an object that has none can't be saved again"),
            "make it optional, or write a mapping model that sets it", isConditional: fails)
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
