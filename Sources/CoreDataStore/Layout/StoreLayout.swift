import ManagedObjectModel

/// A model laid out in SQLite as Core Data does it: which tables and columns a store of this model has. Apple documents
/// nothing of it; the rules were found on stores, and predict those exactly.
package struct StoreLayout: Sendable {
    package let numbers: EntityNumbers
    /// One for each root entity, by entity number.
    package let tables: [TableLayout]
    package let joinTables: [JoinTableLayout]

    package init(_ model: ManagedObjectModel) {
        let numbers = EntityNumbers(model)
        let members = Dictionary(grouping: numbers.entities) { model.rootEntity(of: $0).name }
        var tables: [TableLayout] = []
        for root in numbers.entities where root.superentityName == nil {
            var naming = TableNaming(model, numbers)
            let hierarchy = members[root.name] ?? []
            for entity in hierarchy { naming.add(entity) }
            for (source, relationship) in Self.referencesWithoutInverse(to: root, model, numbers) {
                naming.addReference(from: source, relationship)
            }
            tables.append(
                TableLayout(
                    name: "Z" + root.name.uppercased(), rootEntity: root.name, columns: naming.columns,
                    isHierarchy: hierarchy.count > 1))
        }
        self.numbers = numbers
        self.tables = tables
        var joins = JoinTableNaming(model, numbers)
        joinTables = joins.layout()
    }

    private static func referencesWithoutInverse(
        to root: EntityDescription, _ model: ManagedObjectModel, _ numbers: EntityNumbers
    ) -> [(EntityDescription, RelationshipDescription)] {
        numbers.entities.flatMap { entity in
            entity.relationships.filter { relationship in
                guard relationship.isToMany, !relationship.isTransient, relationship.inverseName == nil,
                    let destination = model.entity(named: relationship.destinationEntityName)
                else { return false }
                return model.rootEntity(of: destination).name == root.name
            }.map { (entity, $0) }
        }
    }
}
