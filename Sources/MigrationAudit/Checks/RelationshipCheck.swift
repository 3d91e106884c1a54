/// Holds all relationships of the migrated copy against the store's; looks at single links only where the tables'
/// comparison didn't settle it.
struct RelationshipCheck {
    let context: AuditContext
    /// What is known of each table, by its root entity.
    let outcomes: [String: ObjectCheck.Outcome]

    func check() throws {
        for (key, _) in context.new.tree.relationships {
            guard let link = try LinkCheck(key, context), !isSettled(link) else { continue }
            if isCheckedHere(link) {
                try link.checkKept()
                try link.checkNothingElse()
                try link.checkTargetEntities()
            }
            try OrderCheck(context: context, link: link).check()
        }
    }

    /// Links that both relationships tell of are kept once, and looked at once.
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
        case .owner: isSettledByColumns(link.key, link.own, link.inverse, link.inverseKey)
        case .target:
            if let inverse = link.inverseKey {
                isSettledByColumns(inverse, link.inverse, link.own, link.key)
                    && (!link.relationship.isOrdered || link.own.allSatisfy(\.isOrdered))
            } else {
                isSettledBackward(link)
            }
        case .join: isSettledByTable(link)
        }
    }

    /// A to-one relationship's column has been compared with its rows.
    private func isSettledByColumns(
        _ key: PropertyKey, _ own: [LinkSet], _ inverse: [LinkSet], _ inverseKey: PropertyKey?
    ) -> Bool {
        guard linksAreSame(in: key.entity), own.allSatisfy({ $0.refused.isEmpty && $0.columns.form == .owner }) else {
            return false
        }
        let survivors = context.pairing.survivors(among: context.new.tree.family(of: key.entity))
        return inverse.isEmpty || own.reduce(0) { $0 + $1.owners.count } == survivors.count
    }

    private func isSettledBackward(_ link: LinkCheck) -> Bool {
        guard linksAreSame(in: link.relationship.destinationEntityName) else { return false }
        guard let set = link.own.first else { return link.inverse.isEmpty }
        return link.own.count == 1 && set.columns.form == .target && isWhole(set)
            && context.old.backward[set.key] != nil && (!link.relationship.isOrdered || set.isOrdered)
    }

    private func linksAreSame(in entity: String) -> Bool {
        switch outcomes[context.new.tree.root(of: entity)] {
        case .untouched: true
        case .compared(let linksAreSame): linksAreSame
        case .empty, nil: false
        }
    }

    /// Whether all objects that had it have it, and all of their targets may be targets.
    private func isWhole(_ set: LinkSet) -> Bool {
        set.refused.isEmpty
            && Set(set.owners).isSuperset(of: context.old.tree.numbers(of: context.old.tree.family(of: set.key.entity)))
    }

    /// A join table in which nobody wrote, with its columns where they were.
    private func isSettledByTable(_ link: LinkCheck) -> Bool {
        guard link.own.count == 1, let own = link.own.first, own.columns.form == .join, isWhole(own),
            link.inverseKey == nil || link.inverse.count == 1 && link.inverse.allSatisfy(isWhole),
            let table = context.now.table(link.columns.table), let before = context.was.table(own.columns.table),
            link.inverse.allSatisfy({ sameName($0.columns.table, before.name) }),
            context.isUntouched(table, earlier: before)
        else { return false }
        let now = [link.columns.owner, link.columns.target, link.columns.place].map { $0.flatMap(table.index) }
        let was = [own.columns.owner, own.columns.target, own.columns.place].map { $0.flatMap(before.index) }
        return now[0] == was[0] && now[1] == was[1] && (now[2] == nil || now[2] == was[2])
    }
}
