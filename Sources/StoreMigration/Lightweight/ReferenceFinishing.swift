import CoreDataStore
import ManagedObjectModel

/// Columns of references, once all rows have their places.
extension LinkMigration {
    /// References to objects that are gone are let go of; entity numbers and places that no column had are made.
    func finishReferences(in table: TableLayout) throws {
        for column in table.columns {
            guard case .reference(let entity, let name) = column.content,
                let declaring = destination.model.entity(named: entity),
                case .relationship(let relationship)? = destination.model.property(named: name, of: declaring)
            else { continue }
            func companion(_ content: ColumnLayout.Content) -> ColumnLayout? {
                table.columns.first { $0.content == content }
            }
            let number = companion(.referencedEntity(entity: entity, name: name))
            let order = companion(.order(entity: entity, name: name))
            let was = formerRelationships(name, of: entity)
            let isFilled = fills.contains { $0.table.name == table.name && $0.column == column }
            // The column of a to-many relationship without inverse leads to the objects that have the relationship.
            let target = relationship.isToMany ? entity : relationship.destinationEntityName
            let isLoose = was.contains { !succession.keepsAll($0, relationship) || relationship.isToMany }
            if isFilled || isLoose { try letGo(column, number, order, in: table, to: target) }
            if let number, isFilled || was.contains(where: { !hadNumber($0) }) {
                try findNumbers(number, column, in: table, relationship)
            }
            if let order, isFilled || was.contains(where: { !wasOrdered($0) }) {
                try giveOutPlaces(order.name, in: table.name.sqlName, key: "Z_PK", of: column.name, by: "Z_PK")
            }
        }
    }

    private func formerRelationships(_ name: String, of entity: String) -> [RelationshipDescription] {
        destination.numbers.family(of: entity).compactMap { succession.relationship(name, of: $0)?.relationship }
    }

    private func hadNumber(_ relationship: RelationshipDescription) -> Bool {
        succession.source.numbers.hasSubentities(relationship.destinationEntityName)
    }

    private func wasOrdered(_ relationship: RelationshipDescription) -> Bool {
        relationship.isToMany
            ? relationship.isOrdered : succession.source.model.inverse(of: relationship)?.isOrdered ?? false
    }

    private func letGo(
        _ column: ColumnLayout, _ number: ColumnLayout?, _ order: ColumnLayout?, in table: TableLayout,
        to entity: String
    ) throws {
        guard let target = destination.table(of: entity) else { return }
        let numbers = destination.numbers.family(of: entity).map(destination.numbers.number)
        let sets = [column, number, order].compactMap { $0.map { $0.name.sqlName + " = NULL" } }
        try store.execute(
            "UPDATE \(table.name.sqlName) SET \(sets.joined(separator: ", ")) WHERE \(column.name.sqlName) IS NOT NULL "
                + "AND \(column.name.sqlName) NOT IN "
                + "(SELECT Z_PK FROM \(target.name.sqlName) WHERE Z_ENT IN (\(numbers.list)))")
    }

    private func findNumbers(
        _ number: ColumnLayout, _ column: ColumnLayout, in table: TableLayout, _ relationship: RelationshipDescription
    ) throws {
        guard let target = destination.table(of: relationship.destinationEntityName) else { return }
        try store.execute(
            "UPDATE \(table.name.sqlName) NOT INDEXED SET \(number.name.sqlName) = (SELECT target.Z_ENT FROM "
                + "\(target.name.sqlName) AS target WHERE target.Z_PK = \(table.name.sqlName).\(column.name.sqlName)) "
                + "WHERE \(column.name.sqlName) IS NOT NULL")
    }

    /// Keys of an order, as Core Data gives them out: 2048 for the first, 1024 more for each next. Objects that had no
    /// order get that of their keys. Rows are written in the order in which they stand.
    func giveOutPlaces(_ column: String, in table: String, key: String, of list: String, by order: String)
        throws
    {
        try store.execute(
            "UPDATE \(table) SET \(column.sqlName) = places.place FROM (SELECT \(key) AS object, "
                + "1024 + 1024 * row_number() OVER (PARTITION BY \(list.sqlName) ORDER BY \(order.sqlName)) AS place "
                + "FROM \(table) WHERE \(list.sqlName) IS NOT NULL ORDER BY object) AS places "
                + "WHERE \(table).\(key) = places.object")
    }
}
