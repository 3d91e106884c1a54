import ManagedObjectModels

/// What the columns of relationships must hold where their links are kept as they were. Where they aren't, `LinkCheck`
/// looks at each link.
struct ReferenceExpectation {
    let pairing: EntityPairing
    let old: AuditLayout
    let new: AuditLayout
    /// The table that the objects were in.
    let source: AuditSchema.Table
    let newSchema: AuditSchema

    /// The rules for all relationships that have a column in the rows of an entity's objects.
    func rules(of entity: String, was before: String) -> [ColumnRule] {
        var rules: [ColumnRule] = []
        let line = new.tree.line(of: entity)
        for declaring in line {
            for relationship in new.tree.model.entity(named: declaring)?.relationships ?? [] {
                let key = PropertyKey(entity: declaring, name: relationship.name)
                guard let reference = new.references[key] else { continue }
                rules += self.rules(for: relationship, reference, entity)
            }
        }
        for (key, column) in new.backward {
            guard let relationship = new.tree.relationship(key), line.contains(relationship.destinationEntityName)
            else { continue }
            rules += self.rules(for: relationship, key, column, was: before)
        }
        return rules
    }

    private func rules(
        for relationship: RelationshipDescription, _ reference: AuditLayout.Reference, _ entity: String
    ) -> [ColumnRule] {
        let key = pairing.source(of: relationship, in: entity)
        let before = key.flatMap { old.references[$0] }
        var rules = [rule(reference.column, before?.column, relationship.name)]
        if let place = reference.place { rules.append(rule(place, before?.place, relationship.name)) }
        guard let column = reference.entity else { return rules }
        guard let number = before?.entity,
            let destination = key.flatMap(old.tree.relationship)?.destinationEntityName
        else {
            rules.append(rule(column, byTargetOf: reference, relationship))
            return rules
        }
        let renumbered = renumbering(of: number, among: old.tree.family(of: destination))
        rules.append(
            ColumnRule(
                column: column, property: relationship.name, subject: .link,
                condition: ColumnRule.equal(ColumnRule.now(column), renumbered ?? ColumnRule.was(number)),
                unchanged: renumbered == nil ? number : nil))
        return rules
    }

    private func rule(_ column: String, _ before: String?, _ property: String) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .link,
            condition: ColumnRule.equal(ColumnRule.now(column), before.map(ColumnRule.was) ?? "NULL"),
            unchanged: before, fresh: before == nil ? ["NULL"] : [])
    }

    /// The number of the entity that the object which the reference leads to is of.
    private func rule(
        _ column: String, byTargetOf reference: AuditLayout.Reference, _ relationship: RelationshipDescription
    ) -> ColumnRule {
        let table = newSchema.qualified(new.tree.table(of: relationship.destinationEntityName))
        let target = ColumnRule.now(reference.column)
        return ColumnRule(
            column: column, property: relationship.name, subject: .link,
            condition: ColumnRule.equal(
                ColumnRule.now(column), "(SELECT Z_ENT FROM \(table) WHERE Z_PK = \(target))"),
            unchanged: nil)
    }

    private func rules(
        for relationship: RelationshipDescription, _ key: PropertyKey, _ column: AuditLayout.Backward,
        was before: String
    ) -> [ColumnRule] {
        let sources = Set(new.tree.family(of: key.entity).compactMap { pairing.source(of: relationship, in: $0) })
        let found = sources.count == 1 ? sources.first.flatMap { old.backward[$0] } : nil
        let earlier = found.flatMap { sameName($0.table, source.name) ? $0 : nil }
        var rules = [rule(column.column, earlier?.column, relationship.name)]
        if let place = column.place { rules.append(rule(place, earlier?.place, relationship.name)) }
        return rules
    }

    /// The new number of the entity whose older one is in the column, as SQL; nil where all are the same.
    private func renumbering(of column: String, among entities: [String]) -> String? {
        let changed = entities.compactMap { name in
            pairing.successors[name].map { (old.tree.number(of: name), new.tree.number(of: $0)) }
        }.filter { $0.0 != $0.1 }
        guard !changed.isEmpty else { return nil }
        let cases = changed.map { "WHEN \($0.0) THEN \($0.1)" }.joined(separator: " ")
        return "(CASE \(ColumnRule.was(column)) \(cases) ELSE \(ColumnRule.was(column)) END)"
    }
}
