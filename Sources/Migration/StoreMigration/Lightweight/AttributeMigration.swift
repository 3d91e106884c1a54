import CoreDataStore
import ManagedObjectModels
import MappingModels

extension EntityMatching {
    /// Returns the origin of the values of an attribute's column, for each source entity.
    ///
    /// - Parameters:
    ///   - entity: The destination's entity that declares the attribute.
    ///   - path: The attribute's name; for an element of a composite attribute, the names on the path to it.
    func attributeValues(of entity: String, at path: [String]) -> [(entity: String, value: ColumnValue)] {
        guard let attribute = destination.model.attribute(at: path, of: entity) else { return [] }
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
        return .defaulting(value, literal: literal)
    }

    /// The source's stored attribute, or element of a composite attribute, that became the one at `path`. Elements are
    /// paired like attributes, by their renaming identifiers.
    private func formerAttribute(
        at path: [String], of entity: String
    ) -> (attribute: AttributeDescription, column: String)? {
        guard let name = path.first, let new = destination.model.entity(named: entity),
            case .attribute(var current)? = destination.model.property(named: name, of: new),
            case (let old, var former)? = attribute(name, of: entity), !former.isTransient
        else { return nil }
        var formerPath = [former.name]
        for name in path.dropFirst() {
            guard let element = current.elements.first(where: { $0.name == name }),
                let formerElement = former.elements.first(where: {
                    $0.renamingIdentifier == element.renamingIdentifier
                })
            else { return nil }
            (current, former) = (element, formerElement)
            formerPath.append(formerElement.name)
        }
        return column(at: formerPath, of: old).map { (former, $0) }
    }

    private func column(at path: [String], of entity: EntityDescription) -> String? {
        let lineage = [entity.name] + source.model.superentities(of: entity).map(\.name)
        guard let table = source.table(of: entity.name) else { return nil }
        return lineage.lazy.compactMap { table.column(of: .attribute(entity: $0, path: path)) }.first?.name
    }

    private func converted(
        _ column: String, from old: AttributeDescription, to new: AttributeDescription
    ) -> ColumnValue {
        if !old.allowsExternalBinaryDataStorage, new.allowsExternalBinaryDataStorage { return .marked(column) }
        return old.type.isFractional && new.type.isWhole ? .truncated(column) : .column(column)
    }
}

extension AttributeType {
    var isWhole: Bool { [.integer16, .integer32, .integer64, .boolean].contains(self) }
    var isFractional: Bool { [.decimal, .double, .float].contains(self) }
}
