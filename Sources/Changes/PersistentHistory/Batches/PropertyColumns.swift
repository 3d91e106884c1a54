import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The properties that the columns of a Core Data store belong to, by the model that the store itself carries.
struct PropertyColumns {
    let layout: StoreLayout

    /// Reads the model; nil if the store isn't Core Data's or carries no model of its version.
    init?(_ reader: StoreReader) throws {
        guard let model = try StoreModel(reader)?.cachedModel else { return nil }
        layout = StoreLayout(model).usingJoinTableNames(of: try DatabaseSchema(reader))
    }

    /// Returns the number of the row's entity; 0 if it isn't known.
    func entity(of row: FoundRow?, columns: [String]) -> Int64 {
        guard let row, let index = columns.firstIndex(of: "Z_ENT"), case .integer(let number) = row.values[index] else {
            return 0
        }
        return number
    }

    /// Returns the table with what the model says of it. `entity`: the number of the rows' entity, 0 if unknown.
    func describing(_ table: BatchTable, entity number: Int64) -> BatchTable {
        if let objects = layout.tables.first(where: { $0.name == table.name }) {
            return describing(table, objects, entity: number)
        }
        guard let join = layout.joinTables.first(where: { $0.name == table.name }) else { return table }
        return table.with(entity: nil, properties: table.columns.map { property(of: $0, in: join) })
    }

    /// Returns the many-to-many relationships of an entity, each from its own side.
    func toMany(of entity: String) -> [BatchTable.ToMany] {
        let lineage = lineage(entity)
        return layout.joinTables.flatMap { table in
            [(table.owner, table.inverse), (table.inverse, table.owner)].filter { lineage.contains($0.0.entity) }
                .map { side, other in
                    let order = [other.orderColumn, side.orderColumn].compactMap(\.self)
                    return BatchTable.ToMany(
                        relationship: side.relationship, destination: other.entity, table: table.name,
                        columns: [side.column, other.column] + order)
                }
        }
    }

    private func describing(_ table: BatchTable, _ objects: TableLayout, entity number: Int64) -> BatchTable {
        let index = Int(exactly: number).map { $0 - 1 } ?? -1
        guard layout.numbers.entities.indices.contains(index) else { return table }
        let entity = layout.numbers.entities[index].name
        guard layout.table(of: entity)?.name == objects.name else { return table }
        let lineage = lineage(entity)
        return table.with(
            entity: entity,
            properties: table.columns.map { name in
                objects.columns.first { $0.name == name }.flatMap { property(of: $0, lineage) }
            })
    }

    /// The entity and those that it inherits from.
    private func lineage(_ entity: String) -> Set<String> {
        guard let found = layout.model.entity(named: entity) else { return [entity] }
        return Set(([found] + layout.model.superentities(of: found)).map(\.name))
    }

    private func property(of column: ColumnLayout, _ lineage: Set<String>) -> BatchTable.Property? {
        switch column.content {
        case .attribute(let entity, let path):
            guard lineage.contains(entity), let type = attribute(path, of: entity)?.type.name else { return nil }
            return .attribute(path.joined(separator: "."), type: type)
        case .reference(let entity, let name):
            return relationship(entity, name, lineage) { .reference(name, destination: $0) }
        case .referencedEntity(let entity, let name):
            return relationship(entity, name, lineage) { .entity(name, destination: $0) }
        case .order(let entity, let name):
            return relationship(entity, name, lineage) { .order(name, destination: $0) }
        }
    }

    private func relationship(
        _ entity: String, _ name: String, _ lineage: Set<String>, _ make: (String) -> BatchTable.Property
    ) -> BatchTable.Property? {
        // A to-many relationship without an inverse is kept in its destination's table.
        guard let owner = layout.model.entity(named: entity),
            let relationship = owner.relationships.first(where: { $0.name == name }),
            lineage.contains(entity) || relationship.isToMany
        else { return nil }
        return make(relationship.destinationEntityName)
    }

    private func attribute(_ path: [String], of entity: String) -> AttributeDescription? {
        guard let first = path.first else { return nil }
        var found = layout.model.entity(named: entity)?.attributes.first { $0.name == first }
        for name in path.dropFirst() { found = found?.elements.first { $0.name == name } }
        return found
    }

    private func property(of column: String, in table: JoinTableLayout) -> BatchTable.Property? {
        for (side, other) in [(table.owner, table.inverse), (table.inverse, table.owner)] {
            if column == side.column { return .reference(other.relationship, destination: side.entity) }
            if column == side.orderColumn { return .order(other.relationship, destination: side.entity) }
        }
        return nil
    }
}

extension BatchTable {
    func with(entity: String?, properties: [Property?], toMany: [ToMany] = []) -> BatchTable {
        BatchTable(
            name: name, entity: entity, rowid: rowid, key: key, columns: columns, properties: properties,
            toMany: toMany)
    }
}
