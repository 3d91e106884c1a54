import ManagedObjectModels

/// The tables and columns that Core Data creates in SQLite for a model. Apple doesn't document them; the rules were
/// derived from stores and predict those exactly.
package struct StoreLayout: Sendable {
    package let model: ManagedObjectModel
    package let numbers: EntityNumbers
    /// The tables of the root entities, by entity number.
    package let tables: [TableLayout]
    package private(set) var joinTables: [JoinTableLayout]

    /// The rule that named the join tables.
    package let rule: JoinTableNaming.Rule

    /// Creates the layout of a new store, or that of a store whose join tables follow another rule.
    package init(_ model: ManagedObjectModel, rule: JoinTableNaming.Rule = .declared) {
        self.rule = rule
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
        self.model = model
        self.numbers = numbers
        self.tables = tables
        var joins = JoinTableNaming(model, numbers, rule)
        joinTables = joins.layout()
    }

    /// The relationships that name join tables of this store against every rule, by renaming identifiers.
    private var namingRelationships: Set<[String]> = []

    /// Returns the layout that a store with this one has for another model: the same rule names its join tables. If no
    /// rule explains them, each one stays named by the same relationship.
    package func layout(for model: ManagedObjectModel) -> StoreLayout {
        var layout = StoreLayout(model, rule: rule)
        guard !namingRelationships.isEmpty else { return layout }
        layout.namingRelationships = namingRelationships
        layout.joinTables = layout.joinTables.map { table in
            let isException = layout.identifiers(of: table.inverse).map(namingRelationships.contains) ?? false
            return isException ? table.namedByInverse(layout.numbers) : table
        }
        return layout
    }

    /// Returns the layout with other join tables, which follow no rule.
    func replacing(_ joinTables: [JoinTableLayout]) -> StoreLayout {
        var layout = self
        layout.joinTables = joinTables
        layout.namingRelationships = Set(joinTables.compactMap { layout.identifiers(of: $0.owner) })
        return layout
    }

    private func identifiers(of side: JoinTableLayout.Side) -> [String]? {
        guard let entity = model.entity(named: side.entity),
            let relationship = entity.relationships.first(where: { $0.name == side.relationship })
        else { return nil }
        return [entity.renamingIdentifier, relationship.renamingIdentifier]
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
            }.sorted { $0.name.precedes($1.name) }.map { (entity, $0) }
        }
    }

    /// Returns the table of an entity's objects; nil if the model doesn't have the entity.
    package func table(of entity: String) -> TableLayout? {
        guard let entity = model.entity(named: entity) else { return nil }
        let root = model.rootEntity(of: entity).name
        return tables.first { $0.rootEntity == root }
    }

    /// Returns the entity that declares a property of `entity`: the entity itself or an ancestor; nil if none does.
    package func declaringEntity(of property: String, of entity: String) -> EntityDescription? {
        guard let entity = model.entity(named: entity) else { return nil }
        return ([entity] + model.superentities(of: entity)).first {
            model.declaredProperty(named: property, of: $0) != nil
        }
    }

    /// Returns the column of an attribute or a to-one relationship; nil for a property without a column of its own. A
    /// key path names an element of a composite attribute: `place.latitude`.
    package func column(of property: String, of entity: String) -> ColumnLayout? {
        let path = property.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        if path.count > 1 {
            guard let declaring = declaringEntity(of: path[0], of: entity)?.name else { return nil }
            return column(.attribute(entity: declaring, path: path), in: entity)
        }
        guard let declaring = declaringEntity(of: property, of: entity)?.name,
            case let found? = model.entity(named: declaring).flatMap({ model.property(named: property, of: $0) })
        else { return nil }
        switch found {
        case .attribute: return column(.attribute(entity: declaring, path: [property]), in: entity)
        case .relationship(let relationship) where !relationship.isToMany:
            return column(.reference(entity: declaring, name: property), in: entity)
        case .relationship, .fetched: return nil
        }
    }

    private func column(_ content: ColumnLayout.Content, in entity: String) -> ColumnLayout? {
        table(of: entity)?.column(of: content)
    }
}
