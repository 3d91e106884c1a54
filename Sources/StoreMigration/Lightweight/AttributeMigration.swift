import CoreDataStore
import ManagedObjectModels
import MappingModels

extension EntityMatching {
    /// Returns where the values of an attribute's column come from, by the source's entity.
    ///
    /// - Parameters:
    ///   - entity: The destination's entity that declares the attribute.
    ///   - path: The attribute's name or, for a composite attribute's element, the names that lead to it.
    func attributeValues(of entity: String, at path: [String]) -> [(entity: String, value: ColumnValue)] {
        guard let attribute = destination.model.entity(named: entity)?.attribute(at: path) else { return [] }
        return destination.numbers.family(of: entity).compactMap { new in
            guard let old = predecessors[new] else { return nil }
            return value(of: attribute, at: path, in: new).map { (old, $0) }
        }
    }

    private func value(of attribute: AttributeDescription, at path: [String], in entity: String) -> ColumnValue? {
        guard let former = formerAttribute(at: path, of: entity) else {
            return attribute.defaultLiteral.map { .literal($0) }
        }
        let value = converted(former.column, from: former.attribute, to: attribute)
        guard former.attribute.isOptional, !attribute.isOptional, let literal = attribute.defaultLiteral else {
            return value
        }
        return .orElse(value, literal: literal)
    }

    /// The source's stored attribute, or element of a composite attribute, that became the one at `path`. Elements are
    /// paired as attributes are: by their renaming identifiers.
    private func formerAttribute(
        at path: [String], of entity: String
    ) -> (attribute: AttributeDescription, column: String)? {
        guard let name = path.first, let new = destination.model.entity(named: entity),
            case .attribute(var now)? = destination.model.property(named: name, of: new),
            case (let old, var was)? = attribute(name, of: entity), !was.isTransient
        else { return nil }
        var formerPath = [was.name]
        for name in path.dropFirst() {
            guard let element = now.elements.first(where: { $0.name == name }),
                let former = was.elements.first(where: { $0.renamingIdentifier == element.renamingIdentifier })
            else { return nil }
            (now, was) = (element, former)
            formerPath.append(former.name)
        }
        return column(at: formerPath, of: old).map { (was, $0) }
    }

    private func column(at path: [String], of entity: EntityDescription) -> String? {
        let line = [entity.name] + source.model.superentities(of: entity).map(\.name)
        return source.table(of: entity.name)?.columns.first { column in
            guard case .attribute(let owner, path) = column.content else { return false }
            return line.contains(owner)
        }?.name
    }

    private func converted(
        _ column: String, from old: AttributeDescription, to new: AttributeDescription
    ) -> ColumnValue {
        if !old.allowsExternalBinaryDataStorage, new.allowsExternalBinaryDataStorage { return .marked(column) }
        return old.type.isFractional && new.type.isWhole ? .whole(column) : .column(column)
    }
}

extension AttributeType {
    var isWhole: Bool { [.integer16, .integer32, .integer64, .boolean].contains(self) }
    var isFractional: Bool { [.decimal, .double, .float].contains(self) }
}

extension String {
    /// Whether SQLite takes the two for one name. Swift's `==` takes two Unicode normal forms of a text for the same;
    /// SQLite compares bytes.
    func hasSameBytes(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}
