import ManagedObjectModels

/// What may be the same in several objects that was free to be before.
extension MigrationReview {
    /// Core Data looks when it makes the index: the migration fails on the first two objects that are the same.
    mutating func reviewConstraints(of entity: EntityDescription) {
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
                isConditional: true)
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
}
