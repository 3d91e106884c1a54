import ManagedObjectModel
import PersistentStore

/// A store's objects, counted. One thread's.
package struct StoreObjects {
    private let reader: StoreReader
    private let model: ManagedObjectModel
    private let layout: StoreLayout

    /// `model` is the store's own.
    package init(_ reader: StoreReader, _ model: ManagedObjectModel) {
        self.reader = reader
        self.model = model
        layout = StoreLayout(model)
    }

    /// Objects of the entity and of those that inherit from it. Throws `StoreError`.
    package func count(of entity: EntityDescription) throws -> Int64 {
        try count(of: entity, where: nil) ?? 0
    }

    /// Those of them whose attribute or to-one relationship has no value; nil for a property that has no column in the
    /// entity's own table. Throws `StoreError`.
    package func count(of entity: EntityDescription, withoutValueOf property: String) throws -> Int64? {
        let table = layout.table(of: model.rootEntity(of: entity))
        let declaring = ([entity] + model.superentities(of: entity)).first { one in
            one.declaredProperties.contains { $0.name == property }
        }
        let column = table?.columns.first { column in
            column.content == .attribute(entity: declaring?.name ?? "", path: [property])
                || column.content == .reference(entity: declaring?.name ?? "", name: property)
        }
        guard let column else { return nil }
        // A to-many relationship without an inverse has its column with the destination.
        if case .relationship(let relationship)? = model.property(named: property, of: entity), relationship.isToMany {
            return nil
        }
        return try count(of: entity, where: column)
    }

    private func count(of entity: EntityDescription, where column: ColumnLayout?) throws -> Int64? {
        guard let table = layout.table(of: model.rootEntity(of: entity)) else { return nil }
        let numbers = layout.numbers.family(of: entity.name).map { String(layout.numbers.number(of: $0)) }
        let condition = column.map { " AND \($0.name.quoted) IS NULL" } ?? ""
        // Indexes may have collations that only Core Data has.
        return try reader.integer(
            "SELECT count(*) FROM \(table.name.quoted) NOT INDEXED WHERE Z_ENT IN "
                + "(\(numbers.joined(separator: ", ")))\(condition)")
    }
}

extension StoreLayout {
    fileprivate func table(of root: EntityDescription) -> TableLayout? { tables.first { $0.rootEntity == root.name } }
}

extension String {
    /// As SQL writes a name.
    fileprivate var quoted: String { "\"" + replacing("\"", with: "\"\"") + "\"" }
}
