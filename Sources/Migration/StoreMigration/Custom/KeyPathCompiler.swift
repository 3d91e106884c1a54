import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Compiles key paths: across relationships to attributes, and through collection operators (Key-Value Coding
/// Programming Guide, "Using Collection Operators").
extension ExpressionCompiler {
    mutating func keyPath(_ path: String, of operand: SQLExpression) throws(MappingFault) -> SQLExpression {
        var keys = path.split(separator: ".").map(String.init)[...]
        var current = operand
        while let key = keys.popFirst() {
            guard case .objects(let objects) = current else {
                throw MappingFault("“\(key)” of “\(path)” is read from a value, not from an object")
            }
            if key.hasPrefix("@") {
                current = try collectionOperator(key, &keys, of: objects)
            } else {
                current = try property(key, &keys, of: objects)
            }
        }
        return current
    }

    private mutating func property(
        _ name: String, _ keys: inout ArraySlice<String>, of objects: SQLObjects
    ) throws(MappingFault) -> SQLExpression {
        guard let entity = layout.model.entity(named: objects.entity) else { throw unknown(name, objects) }
        switch layout.model.property(named: name, of: entity) {
        case .relationship(let relationship)?: return .objects(try targets(of: relationship, from: objects))
        case .attribute(let attribute)?: return .values(objects, try value(attribute, &keys, of: objects))
        case .fetched?: throw MappingFault("\(objects.entity).\(name) is a fetched property")
        case nil: return try special(name, &keys, of: objects)
        }
    }

    private func unknown(_ name: String, _ objects: SQLObjects) -> MappingFault {
        MappingFault("\(objects.entity) has no “\(name)”", remedy: "check the name in the model")
    }

    /// Returns a property that every object has: `self` or `entity.name`.
    private func special(
        _ name: String, _ keys: inout ArraySlice<String>, of objects: SQLObjects
    ) throws(MappingFault) -> SQLExpression {
        if name == "self" { return .objects(objects) }
        guard name == "entity", keys.popFirst() == "name" else { throw unknown(name, objects) }
        let cases = layout.numbers.family(of: objects.entity).map { member in
            "WHEN \(layout.numbers.number(of: member)) THEN \(member.sqlText)"
        }
        let text = "CASE \(objects.entityNumber) \(cases.joined(separator: " ")) END"
        return .values(objects, SQLValue(text: text, type: .string))
    }

    /// Returns an attribute's value; for a composite attribute, the value of the element that the keys name.
    private func value(
        _ attribute: AttributeDescription, _ keys: inout ArraySlice<String>, of objects: SQLObjects
    ) throws(MappingFault) -> SQLValue {
        var (leaf, path) = (attribute, [attribute.name])
        while leaf.type == .composite {
            guard let key = keys.popFirst(), let element = leaf.elements.first(where: { $0.name == key }) else {
                throw MappingFault(
                    "“\(path.joined(separator: "."))” is a composite attribute: name one of its elements")
            }
            leaf = element
            path.append(key)
        }
        let declaring = layout.declaringEntity(of: attribute.name, of: objects.entity)?.name ?? ""
        let content = ColumnLayout.Content.attribute(entity: declaring, path: path)
        guard let column = layout.table(of: objects.entity)?.column(of: content) else {
            throw MappingFault(
                "\(objects.entity).\(path.joined(separator: ".")) is transient: the store has no value for it")
        }
        return SQLValue(
            text: objects.column(column.name), type: leaf.type, isExternal: leaf.allowsExternalBinaryDataStorage)
    }

    /// Returns the objects that a relationship of these objects leads to.
    mutating func targets(
        of relationship: RelationshipDescription, from objects: SQLObjects
    ) throws(MappingFault) -> SQLObjects {
        guard let link = LinkStorage(of: relationship, declaredFor: objects.entity, in: layout),
            let table = layout.table(of: relationship.destinationEntityName)
        else {
            throw MappingFault("\(objects.entity).\(relationship.name) is transient: the store has no links for it")
        }
        let alias = newAlias()
        var found = SQLObjects(
            entity: relationship.destinationEntityName, sources: objects.sources, conditions: objects.conditions,
            alias: alias, isToMany: objects.isToMany || relationship.isToMany)
        var holder = objects
        if link.isJoinTable {
            holder = SQLObjects(entity: "", alias: newAlias())
            found.sources.append("\(schema).\(link.table.sqlName) AS \(holder.alias)")
            found.conditions.append("\(holder.column(link.owner)) = \(objects.key)")
        } else if link.owner != "Z_PK" {
            holder = found.asRow
            found.conditions.append("\(found.column(link.owner)) = \(objects.key)")
        }
        found.sources.append("\(schema).\(table.name.sqlName) AS \(alias)")
        if link.isJoinTable || link.owner == "Z_PK" {
            found.conditions.append("\(found.key) = \(holder.column(link.target))")
        }
        if objects.isRow, link.owner == "Z_PK", !link.isJoinTable {
            found.reference = SQLReference(table: link.table, column: link.target)
        }
        found.place = link.targetPlace.map(holder.column)
        if objects.isRow { found.ownerPlace = link.ownerPlace.map(link.isJoinTable ? holder.column : objects.column) }
        return found
    }

    // MARK: Collection operators

    private mutating func collectionOperator(
        _ key: String, _ keys: inout ArraySlice<String>, of objects: SQLObjects
    ) throws(MappingFault) -> SQLExpression {
        switch key {
        case "@count": return .value(SQLValue(text: count(objects), type: .integer64))
        case "@sum", "@avg", "@min", "@max":
            let rest = keys.joined(separator: ".")
            keys = []
            guard case .values(let all, let value) = try keyPath(rest, of: .objects(objects)) else {
                throw MappingFault("\(key) needs an attribute's values")
            }
            return .value(Self.aggregate(String(key.dropFirst()), of: value, over: all))
        case "@unionOfSets", "@distinctUnionOfSets", "@unionOfArrays", "@distinctUnionOfArrays", "@unionOfObjects",
            "@distinctUnionOfObjects":
            // A key path's objects are a set already.
            return .objects(objects)
        default: throw MappingFault("“\(key)” is not a known collection operator")
        }
    }

    func count(_ objects: SQLObjects) -> String {
        objects.isRow ? "1" : objects.selecting("count(DISTINCT \(objects.key))")
    }

    static func aggregate(_ name: String, of value: SQLValue, over objects: SQLObjects) -> SQLValue {
        switch name {
        case "sum": SQLValue(text: "coalesce(\(objects.selecting("sum(\(value.text))")), 0)", type: value.type)
        case "avg": SQLValue(text: "coalesce(\(objects.selecting("avg(\(value.text))")), 0)", type: .double)
        default: SQLValue(text: objects.selecting("\(name)(\(value.text))"), type: value.type)
        }
    }
}
