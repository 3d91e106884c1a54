import ManagedObjectModels

/// The location of each value in a store of a model. It is derived from the model alone; `verify` compares it with a
/// store's schema.
struct AuditLayout {
    /// The columns of a to-one relationship.
    struct Reference: Hashable {
        let table: String
        let column: String
        /// The column of the destination's `Z_ENT`, if other entities inherit from the destination.
        let entity: String?
        /// The column of the object's position in the ordered inverse.
        let place: String?
    }

    /// The columns of a to-many relationship without an inverse, in the destination's table.
    struct ReverseReference: Hashable {
        let table: String
        let column: String
        let place: String?
    }

    let tree: EntityTree
    private(set) var attributes: [AttributeKey: String] = [:]
    private(set) var references: [PropertyKey: Reference] = [:]
    private(set) var reverseReferences: [PropertyKey: ReverseReference] = [:]

    init(_ model: ManagedObjectModel) {
        tree = EntityTree(model)
        var columns: [String: ColumnNames] = [:]
        for entity in tree.names { addColumns(of: entity, &columns[tree.table(of: entity), default: ColumnNames()]) }
        for (key, relationship) in tree.relationships where relationship.isToMany && relationship.inverseName == nil {
            let table = tree.table(of: relationship.destinationEntityName)
            let name = "\(tree.number(of: key.entity))\(key.name.uppercased())"
            var names = columns[table] ?? ColumnNames()
            let column = names.assign("Z" + name)
            let place = relationship.isOrdered ? names.assign("Z_FOK_" + name) : nil
            columns[table] = names
            reverseReferences[key] = ReverseReference(table: table, column: column, place: place)
        }
    }

    private mutating func addColumns(of entity: String, _ names: inout ColumnNames) {
        guard let description = tree.model.entity(named: entity) else { return }
        for attribute in description.attributes.sorted(by: { $0.name.precedes($1.name) }) {
            for stored in StoredAttribute.all(of: attribute) {
                let column = names.assign("Z" + stored.description.name.uppercased())
                attributes[AttributeKey(entity: entity, path: stored.path)] = column
            }
        }
        let toOne = description.relationships.filter { !$0.isToMany && !$0.isTransient }
            .sorted { $0.name.precedes($1.name) }
        var found: [(RelationshipDescription, String, String?)] = []
        for relationship in toOne {
            let destination = relationship.destinationEntityName
            let name = relationship.name.uppercased()
            let column = names.assign("Z" + name)
            let number = tree.hasChildren(destination) ? names.assign("Z\(tree.number(of: destination))_\(name)") : nil
            found.append((relationship, column, number))
        }
        for (relationship, column, number) in found {
            let inverse = tree.inverse(of: relationship).flatMap(tree.relationship)
            let isPlaced = inverse.map { $0.isToMany && $0.isOrdered } ?? false
            references[PropertyKey(entity: entity, name: relationship.name)] = Reference(
                table: tree.table(of: entity), column: column, entity: number,
                place: isPlaced ? names.assign("Z_FOK_" + relationship.name.uppercased()) : nil)
        }
    }
}

/// The names of a table's columns in the order of assignment. A name in use gets a numeric suffix.
private struct ColumnNames {
    private var usedNames: Set<String> = ["Z_PK", "Z_ENT", "Z_OPT"]

    mutating func assign(_ name: String) -> String {
        var found = name
        var number = 1
        while !usedNames.insert(found).inserted {
            found = name + String(number)
            number += 1
        }
        return found
    }
}

extension AuditLayout {
    /// The required columns, by table name.
    var columns: [String: [String]] {
        var all: [String: [String]] = [:]
        for root in tree.roots { all[tree.table(of: root)] = ["Z_PK", "Z_ENT", "Z_OPT"] }
        for (key, column) in attributes { all[tree.table(of: key.entity), default: []].append(column) }
        for reference in references.values {
            all[reference.table, default: []] += [reference.column, reference.entity, reference.place].compactMap(
                \.self)
        }
        for reference in reverseReferences.values {
            all[reference.table, default: []] += [reference.column, reference.place].compactMap(\.self)
        }
        return all
    }

    /// Throws `AuditFailure` if the schema lacks a column.
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
