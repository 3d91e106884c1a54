import ManagedObjectModels

/// The rules for the columns of relationships whose links are unchanged. `LinkCheck` checks the others link by link.
struct ReferenceExpectation {
    let pairing: EntityPairing
    let old: AuditLayout
    let new: AuditLayout
    /// The old table of the objects.
    let source: AuditSchema.Table
    let newSchema: AuditSchema

    /// Returns the rules for all relationships with a column in the rows of an entity.
    func rules(of entity: String, from before: String) -> [ColumnRule] {
        var rules: [ColumnRule] = []
        let lineage = new.tree.lineage(of: entity)
        for declaring in lineage {
            for relationship in new.tree.model.entity(named: declaring)?.relationships ?? [] {
                let key = PropertyKey(entity: declaring, name: relationship.name)
                guard let reference = new.references[key] else { continue }
                rules += self.rules(for: relationship, reference, entity)
            }
        }
        for (key, column) in new.reverseReferences {
            guard let relationship = new.tree.relationship(key), lineage.contains(relationship.destinationEntityName)
            else { continue }
            rules += self.rules(for: relationship, key, column, from: before)
        }
        return rules
    }

    private func rules(
        for relationship: RelationshipDescription, _ reference: AuditLayout.Reference, _ entity: String
    ) -> [ColumnRule] {
        let key = pairing.source(of: relationship, in: entity)
        let before = key.flatMap { old.references[$0] }
        var rules = [rule(reference.column, from: before?.column, of: relationship.name)]
        if let place = reference.place { rules.append(rule(place, from: before?.place, of: relationship.name)) }
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
                condition: ColumnRule.equal(ColumnRule.newValue(column), renumbered ?? ColumnRule.oldValue(number)),
                unchanged: renumbered == nil ? number : nil))
        return rules
    }

    private func rule(_ column: String, from before: String?, of property: String) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .link,
            condition: ColumnRule.equal(ColumnRule.newValue(column), before.map(ColumnRule.oldValue) ?? "NULL"),
            unchanged: before, constants: before == nil ? ["NULL"] : [])
    }

    /// Returns the rule for the entity number of a reference's target.
    private func rule(
        _ column: String, byTargetOf reference: AuditLayout.Reference, _ relationship: RelationshipDescription
    ) -> ColumnRule {
        let table = newSchema.qualified(new.tree.table(of: relationship.destinationEntityName))
        let target = ColumnRule.newValue(reference.column)
        return ColumnRule(
            column: column, property: relationship.name, subject: .link,
            condition: ColumnRule.equal(
                ColumnRule.newValue(column), "(SELECT Z_ENT FROM \(table) WHERE Z_PK = \(target))"),
            unchanged: nil)
    }

    private func rules(
        for relationship: RelationshipDescription, _ key: PropertyKey, _ column: AuditLayout.ReverseReference,
        from before: String
    ) -> [ColumnRule] {
        let sources = Set(new.tree.family(of: key.entity).compactMap { pairing.source(of: relationship, in: $0) })
        let found = sources.count == 1 ? sources.first.flatMap { old.reverseReferences[$0] } : nil
        let earlier = found.flatMap { sameName($0.table, source.name) ? $0 : nil }
        var rules = [rule(column.column, from: earlier?.column, of: relationship.name)]
        if let place = column.place { rules.append(rule(place, from: earlier?.place, of: relationship.name)) }
        return rules
    }

    /// Returns SQL that maps the entity number in a column to its new number; nil if no number changed.
    private func renumbering(of column: String, among entities: [String]) -> String? {
        let changed = entities.compactMap { name in
            pairing.successors[name].map { (old.tree.number(of: name), new.tree.number(of: $0)) }
        }.filter { $0.0 != $0.1 }
        guard !changed.isEmpty else { return nil }
        let cases = changed.map { "WHEN \($0.0) THEN \($0.1)" }.joined(separator: " ")
        return "(CASE \(ColumnRule.oldValue(column)) \(cases) ELSE \(ColumnRule.oldValue(column)) END)"
    }
}
