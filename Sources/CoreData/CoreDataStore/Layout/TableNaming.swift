import ManagedObjectModels

/// The naming of a table's columns. Core Data walks the hierarchy from its root: first an entity's attributes by name,
/// then its to-one relationships by name. A name in use gets a numeric suffix, so a property's name alone doesn't
/// determine its column.
struct TableNaming {
    private let model: ManagedObjectModel
    private let numbers: EntityNumbers
    private var usedNames = Set(TableLayout.ownColumns)
    private(set) var columns: [ColumnLayout] = []

    init(_ model: ManagedObjectModel, _ numbers: EntityNumbers) {
        self.model = model
        self.numbers = numbers
    }

    mutating func add(_ entity: EntityDescription) {
        for attribute in entity.attributes.sorted(by: { $0.name.precedes($1.name) }) where !attribute.isTransient {
            add(attribute, of: entity, path: [attribute.name])
        }
        let references = entity.relationships.sorted { $0.name.precedes($1.name) }
            .filter { !$0.isTransient && !$0.isToMany }
        for relationship in references { add(relationship, of: entity) }
        for relationship in references where model.inverse(of: relationship)?.isOrdered == true {
            let name = unused("Z_FOK_" + relationship.name.uppercased())
            columns.append(ColumnLayout(name, .order(entity: entity.name, name: relationship.name)))
        }
    }

    /// Adds an attribute. A composite attribute has a column for each element, named after the element alone (reported;
    /// no such store was seen).
    private mutating func add(_ attribute: AttributeDescription, of entity: EntityDescription, path: [String]) {
        guard attribute.type != .composite else {
            for element in attribute.elements { add(element, of: entity, path: path + [element.name]) }
            return
        }
        let content = ColumnLayout.Content.attribute(entity: entity.name, path: path)
        guard ColumnLayout("", type: attribute.type, content) != nil else { return }
        let name = unused("Z" + attribute.name.uppercased())
        if let column = ColumnLayout(name, type: attribute.type, content) { columns.append(column) }
    }

    private mutating func add(_ relationship: RelationshipDescription, of entity: EntityDescription) {
        let (owner, name) = (entity.name, relationship.name)
        let upper = name.uppercased()
        columns.append(ColumnLayout(unused("Z" + upper), .reference(entity: owner, name: name)))
        if numbers.hasSubentities(relationship.destinationEntityName) {
            let number = numbers.number(of: relationship.destinationEntityName)
            columns.append(ColumnLayout(unused("Z\(number)_\(upper)"), .referencedEntity(entity: owner, name: name)))
        }
    }

    /// Adds a to-many relationship without an inverse, which is stored in the destination's table (reported; no such
    /// store was seen).
    mutating func addReference(from entity: EntityDescription, _ relationship: RelationshipDescription) {
        let name = "\(numbers.number(of: entity.name))\(relationship.name.uppercased())"
        columns.append(
            ColumnLayout(unused("Z" + name), .reference(entity: entity.name, name: relationship.name)))
        if relationship.isOrdered {
            columns.append(
                ColumnLayout(unused("Z_FOK_" + name), .order(entity: entity.name, name: relationship.name)))
        }
    }

    private mutating func unused(_ name: String) -> String {
        var candidate = name
        var number = 1
        while !usedNames.insert(candidate).inserted {
            candidate = name + String(number)
            number += 1
        }
        return candidate
    }
}
