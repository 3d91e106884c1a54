import ManagedObjectModels

// The review of uniqueness constraints.
extension MigrationReview {
    /// Warns of new uniqueness constraints. Core Data checks them when it creates the index, and the migration fails on
    /// the first two equal objects.
    mutating func reviewConstraints(of entity: EntityDescription) {
        let family =
            [entity]
            + destination.entities.filter { candidate in
                destination.superentities(of: candidate).contains { $0.name == entity.name }
            }
        guard entities.all.contains(where: { old, new in old != nil && family.contains { $0.name == new.name } })
        else { return }
        for constraint in entity.uniquenessConstraints where !isKept(constraint, of: entity) {
            add(
                .warning, code: CoreDataError.migrationConstraintViolation, entity: entity.name,
                property: constraint.count == 1 ? constraint[0] : nil,
                "the older version has no such uniqueness constraint (\(constraint.joined(separator: ", "))): the migration "
                    + "fails when two objects have the same values",
                remedy: "remove duplicates first, or drop the uniqueness constraint",
                isConditional: true)
        }
    }

    /// Returns true if the older entity has the same constraint, and the migration changes none of the values.
    private func isKept(_ constraint: [String], of entity: EntityDescription) -> Bool {
        guard let old = entities.all.first(where: { $0.new.name == entity.name })?.old else { return false }
        let pairs = Pairing(
            source.properties(of: old), destination.properties(of: entity), identifier: \.renamingIdentifier,
            name: \.name)
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
