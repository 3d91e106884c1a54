/// A check of all relationships. It checks single links only if the comparison of the tables didn't settle them.
struct RelationshipCheck {
    let context: AuditContext
    /// The results of the table comparisons, by root entity.
    let outcomes: [String: ObjectComparison.Outcome]

    func check() throws {
        for (key, _) in context.newLayout.tree.relationships {
            guard let link = try LinkCheck(key, context), !isSettled(link) else { continue }
            if isCheckedHere(link) {
                try link.checkRequiredLinks()
                try link.checkUnexpectedLinks()
                try link.checkTargetEntities()
            }
            try OrderCheck(context: context, link: link).check()
        }
    }

    /// Returns true for one of a relationship and its inverse. Their links are stored once and checked once.
    private func isCheckedHere(_ link: LinkCheck) -> Bool {
        switch link.columns.form {
        case .owner: true
        case .target: link.inverseKey == nil
        case .join:
            link.inverseKey.map { inverse in
                (link.key.entity, link.key.name) < (inverse.entity, inverse.name)
            } ?? true
        }
    }

    private func isSettled(_ link: LinkCheck) -> Bool {
        switch link.columns.form {
        case .owner: isSettledByColumns(link.key, own: link.own, inverse: link.inverse)
        case .target:
            if let inverse = link.inverseKey {
                isSettledByColumns(inverse, own: link.inverse, inverse: link.own)
                    && (!link.relationship.isOrdered || link.own.allSatisfy(\.isOrdered))
            } else {
                isSettledByReverseReference(link)
            }
        case .join: isSettledByTable(link)
        }
    }

    /// Returns true if the comparison of rows settled a to-one relationship's column.
    private func isSettledByColumns(
        _ key: PropertyKey, own: [LinkSet], inverse: [LinkSet]
    ) -> Bool {
        guard linksAreSame(in: key.entity), own.allSatisfy({ $0.excludedTargets.isEmpty && $0.columns.form == .owner })
        else {
            return false
        }
        let survivors = context.pairing.survivors(among: context.newLayout.tree.family(of: key.entity))
        return inverse.isEmpty || own.reduce(0) { $0 + $1.owners.count } == survivors.count
    }

    /// Returns true if the comparison of rows settled the column of a to-many relationship without an inverse.
    private func isSettledByReverseReference(_ link: LinkCheck) -> Bool {
        guard linksAreSame(in: link.relationship.destinationEntityName) else { return false }
        guard let set = link.own.first else { return link.inverse.isEmpty }
        return link.own.count == 1 && set.columns.form == .target && isComplete(set)
            && context.oldLayout.reverseReferences[set.key] != nil && (!link.relationship.isOrdered || set.isOrdered)
    }

    private func linksAreSame(in entity: String) -> Bool {
        switch outcomes[context.newLayout.tree.root(of: entity)] {
        case .untouched: true
        case .compared(let linksAreSame): linksAreSame
        case .empty, nil: false
        }
    }

    /// Returns true if all objects that had the relationship have it, and all their targets may be targets.
    private func isComplete(_ set: LinkSet) -> Bool {
        set.excludedTargets.isEmpty
            && Set(set.owners).isSuperset(
                of: context.oldLayout.tree.numbers(of: context.oldLayout.tree.family(of: set.key.entity)))
    }

    /// Returns true for a join table that wasn't written and whose columns have their old positions.
    private func isSettledByTable(_ link: LinkCheck) -> Bool {
        guard link.own.count == 1, let own = link.own.first, own.columns.form == .join, isComplete(own),
            link.inverseKey == nil || link.inverse.count == 1 && link.inverse.allSatisfy(isComplete),
            let table = context.newSchema.table(link.columns.table),
            let before = context.oldSchema.table(own.columns.table),
            link.inverse.allSatisfy({ sameName($0.columns.table, before.name) }),
            context.isUntouched(table, earlier: before)
        else { return false }
        let newIndexes = [link.columns.owner, link.columns.target, link.columns.place].map { $0.flatMap(table.index) }
        let oldIndexes = [own.columns.owner, own.columns.target, own.columns.place].map { $0.flatMap(before.index) }
        return newIndexes[0] == oldIndexes[0] && newIndexes[1] == oldIndexes[1]
            && (newIndexes[2] == nil || newIndexes[2] == oldIndexes[2])
    }
}
