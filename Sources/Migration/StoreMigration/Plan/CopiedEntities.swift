import ManagedObjectModels
import MappingModels
import MigrationAudit

extension MappingModel {
    /// Returns the content that the mapping copies unchanged, in terms that an audit understands without mapping
    /// models.
    func copiedEntities(from source: ManagedObjectModel, to destination: ManagedObjectModel) -> [CopiedEntity] {
        let isPlain = preparations.isEmpty && completions.isEmpty
        let sources = entityMappings.compactMap(\.sourceEntityName)
        let isOneToOne =
            Set(sources).count == sources.count && entityMappings.allSatisfy { $0.isPlain || $0.kind == .add }
        return entityMappings.compactMap { mapping in
            guard let name = mapping.destinationEntityName else { return nil }
            var copied = CopiedEntity(
                source: mapping.sourceEntityName, destination: name, isComplete: isPlain && mapping.isPlain)
            guard let old = mapping.sourceEntityName.flatMap(source.entity(named:)),
                let new = destination.entity(named: name)
            else { return copied }
            copied.attributes = mapping.attributeMappings.compactMap { attribute in
                attribute.copiedName.flatMap {
                    isCopied($0, of: old, in: source, as: attribute.name, of: new, in: destination)
                        ? ($0, attribute.name) : nil
                }
            }
            guard isPlain, isOneToOne else { return copied }
            copied.relationships = mapping.relationshipMappings.compactMap { relationship in
                relationship.linkedName.flatMap {
                    isLinked($0, of: old, in: source, as: relationship.name, of: new, in: destination)
                        ? ($0, relationship.name) : nil
                }
            }
            return copied
        }
    }

    /// Returns true if the new store holds the attribute's values exactly as the old one did.
    private func isCopied(
        _ name: String, of old: EntityDescription, in source: ManagedObjectModel, as newName: String,
        of new: EntityDescription, in destination: ManagedObjectModel
    ) -> Bool {
        guard case .attribute(let was)? = source.property(named: name, of: old),
            case .attribute(let now)? = destination.property(named: newName, of: new)
        else { return false }
        return was.type == now.type && was.type != .composite && now.derivation == nil && !was.isTransient
            && !now.isTransient && was.allowsExternalBinaryDataStorage == now.allowsExternalBinaryDataStorage
            && (now.isOptional || !was.isOptional || now.defaultValue == nil)
    }

    /// Returns true if the new store has room for every link, because neither end's cardinality changes.
    private func isLinked(
        _ name: String, of old: EntityDescription, in source: ManagedObjectModel, as newName: String,
        of new: EntityDescription, in destination: ManagedObjectModel
    ) -> Bool {
        guard case .relationship(let was)? = source.property(named: name, of: old),
            case .relationship(let now)? = destination.property(named: newName, of: new),
            let target = source.entity(named: was.destinationEntityName), source.subentities(of: target).isEmpty,
            entityMappings.contains(where: {
                $0.sourceEntityName == target.name && $0.destinationEntityName == now.destinationEntityName
            })
        else { return false }
        let inverses = (source.inverse(of: was)?.isToMany, destination.inverse(of: now)?.isToMany)
        return was.isToMany == now.isToMany && inverses.0 == inverses.1 && !was.isTransient && !now.isTransient
    }
}

extension EntityMapping {
    /// True if every object of the source entity itself becomes one object, without a filter or a policy.
    fileprivate var isPlain: Bool {
        sourceEntityName != nil && destinationEntityName != nil && filter == nil
            && entityMigrationPolicyClassName == nil
    }
}

extension PropertyMapping {
    /// The source attribute whose values the destination takes over; nil if the value is computed.
    var copiedName: String? {
        guard case .keyPath(of: .variable("source"), let path)? = valueExpression else { return nil }
        return path.contains { ".@".contains($0) } ? nil : path
    }

    /// The source relationship whose migrated objects the destination links to; nil if the links are computed.
    var linkedName: String? {
        guard case .message(to: .variable("manager"), let selector, let arguments)? = valueExpression,
            selector.hasPrefix("destinationInstancesFor"),
            case .keyPath(of: .variable("source"), let path)? = arguments.last
        else { return nil }
        return path.contains { ".@".contains($0) } ? nil : path
    }
}
