import ManagedObjectModels

/// Where a store of a model keeps each value: worked out from the model alone, and held against a store's own schema by
/// `verify`.
struct AuditLayout {
    /// A to-one relationship's columns.
    struct Reference: Hashable {
        let table: String
        let column: String
        /// The destination's `Z_ENT`, where others inherit from the destination's entity.
        let entity: String?
        /// The object's place in the ordered inverse.
        let place: String?
    }

    /// The column of a to-many relationship without an inverse: in the destination's table.
    struct Backward: Hashable {
        let table: String
        let column: String
        let place: String?
    }

    let tree: EntityTree
    private(set) var attributes: [AttributeKey: String] = [:]
    private(set) var references: [PropertyKey: Reference] = [:]
    private(set) var backward: [PropertyKey: Backward] = [:]

    init(_ model: ManagedObjectModel) {
        tree = EntityTree(model)
        var columns: [String: ColumnNames] = [:]
        for entity in tree.names { addColumns(of: entity, &columns[tree.table(of: entity), default: ColumnNames()]) }
        for (key, relationship) in tree.relationships where relationship.isToMany && relationship.inverseName == nil {
            let table = tree.table(of: relationship.destinationEntityName)
            let name = "\(tree.number(of: key.entity))\(key.name.uppercased())"
            var names = columns[table] ?? ColumnNames()
            let column = names.take("Z" + name)
            let place = relationship.isOrdered ? names.take("Z_FOK_" + name) : nil
            columns[table] = names
            backward[key] = Backward(table: table, column: column, place: place)
        }
    }

    private mutating func addColumns(of entity: String, _ names: inout ColumnNames) {
        guard let description = tree.model.entity(named: entity) else { return }
        for attribute in description.attributes.sorted(by: { $0.name.precedes($1.name) }) {
            for stored in StoredAttribute.all(of: attribute) {
                let column = names.take("Z" + stored.description.name.uppercased())
                attributes[AttributeKey(entity: entity, path: stored.path)] = column
            }
        }
        let toOne = description.relationships.filter { !$0.isToMany && !$0.isTransient }
            .sorted { $0.name.precedes($1.name) }
        var found: [(RelationshipDescription, String, String?)] = []
        for relationship in toOne {
            let destination = relationship.destinationEntityName
            let name = relationship.name.uppercased()
            let column = names.take("Z" + name)
            let number = tree.hasChildren(destination) ? names.take("Z\(tree.number(of: destination))_\(name)") : nil
            found.append((relationship, column, number))
        }
        for (relationship, column, number) in found {
            let inverse = tree.inverse(of: relationship).flatMap(tree.relationship)
            let isPlaced = inverse.map { $0.isToMany && $0.isOrdered } ?? false
            references[PropertyKey(entity: entity, name: relationship.name)] = Reference(
                table: tree.table(of: entity), column: column, entity: number,
                place: isPlaced ? names.take("Z_FOK_" + relationship.name.uppercased()) : nil)
        }
    }
}

/// The names of one table's columns as they are given: a name that is taken gets a number behind it.
private struct ColumnNames {
    private var taken: Set<String> = ["Z_PK", "Z_ENT", "Z_OPT"]

    mutating func take(_ name: String) -> String {
        var found = name
        var number = 1
        while !taken.insert(found).inserted {
            found = name + String(number)
            number += 1
        }
        return found
    }
}

extension AuditLayout {
    /// The tables' names, and the columns that each must have.
    var columns: [String: [String]] {
        var all: [String: [String]] = [:]
        for root in tree.roots { all[tree.table(of: root)] = ["Z_PK", "Z_ENT", "Z_OPT"] }
        for (key, column) in attributes { all[tree.table(of: key.entity), default: []].append(column) }
        for one in references.values {
            all[one.table, default: []] += [one.column, one.entity, one.place].compactMap(\.self)
        }
        for one in backward.values { all[one.table, default: []] += [one.column, one.place].compactMap(\.self) }
        return all
    }

    /// Throws `AuditFailure` where a column is not in the schema.
    func verify(_ schema: AuditSchema) throws {
        for (name, columns) in columns.sorted(by: { $0.key < $1.key }) {
            guard let table = schema.table(name) else {
                throw AuditFailure(expected: "a table \(name) in \(schema.description)", found: "none")
            }
            for column in columns where table.index(of: column) == nil {
                throw AuditFailure(
                    expected: "a column \(column) in the table \(name) of \(schema.description)", found: "none")
            }
        }
    }
}
