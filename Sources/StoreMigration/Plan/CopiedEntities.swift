import ManagedObjectModels
import MappingModels
import MigrationAudit

extension MappingModel {
    /// What it copies as it is, said so that an audit needs to know no mapping models.
    func copiedEntities(from source: ManagedObjectModel, to destination: ManagedObjectModel) -> [CopiedEntity] {
        let isPlain = preparations.isEmpty && completions.isEmpty
        let sources = entityMappings.compactMap(\.sourceEntityName)
        let isOneToOne =
            Set(sources).count == sources.count && entityMappings.allSatisfy { $0.isPlain || $0.kind == .add }
        return entityMappings.compactMap { mapping in
            guard let name = mapping.destinationEntityName else { return nil }
            var copied = CopiedEntity(
                source: mapping.sourceEntityName, destination: name, isWhole: isPlain && mapping.isPlain)
            guard let old = mapping.sourceEntityName.flatMap(source.entity(named:)),
                let new = destination.entity(named: name)
            else { return copied }
            copied.attributes = mapping.attributeMappings.compactMap { one in
                one.copiedName.flatMap {
                    isCopied($0, of: old, source, one.name, of: new, destination) ? ($0, one.name) : nil
                }
            }
            guard isPlain, isOneToOne else { return copied }
            copied.relationships = mapping.relationshipMappings.compactMap { one in
                one.linkedName.flatMap {
                    isLinked($0, of: old, source, one, of: new, destination) ? ($0, one.name) : nil
                }
            }
            return copied
        }
    }

    /// Whether values are stored in the new store as they were in the old one.
    private func isCopied(
        _ name: String, of old: EntityDescription, _ source: ManagedObjectModel, _ newName: String,
        of new: EntityDescription, _ destination: ManagedObjectModel
    ) -> Bool {
        guard case .attribute(let was)? = source.property(named: name, of: old),
            case .attribute(let now)? = destination.property(named: newName, of: new)
        else { return false }
        return was.type == now.type && was.type != .composite && now.derivation == nil && !was.isTransient
            && !now.isTransient && was.allowsExternalBinaryDataStorage == now.allowsExternalBinaryDataStorage
            && (now.isOptional || !was.isOptional || now.defaultValue == nil)
    }

    /// Whether each link has a place in the new store: both ends may have as many as they had.
    private func isLinked(
        _ name: String, of old: EntityDescription, _ source: ManagedObjectModel, _ mapping: PropertyMapping,
        of new: EntityDescription, _ destination: ManagedObjectModel
    ) -> Bool {
        guard case .relationship(let was)? = source.property(named: name, of: old),
            case .relationship(let now)? = destination.property(named: mapping.name, of: new),
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
    /// Whether each of the source's own objects becomes one, by what the mapping says alone.
    fileprivate var isPlain: Bool {
        sourceEntityName != nil && destinationEntityName != nil && filter == nil
            && entityMigrationPolicyClassName == nil
    }
}

extension PropertyMapping {
    /// The source's attribute whose values are the destination's.
    fileprivate var copiedName: String? {
        guard case .keyPath(of: .variable("source"), let path)? = valueExpression else { return nil }
        return path.contains { ".@".contains($0) } ? nil : path
    }

    /// The source's relationship whose objects' new ones are the destination's.
    fileprivate var linkedName: String? {
        guard case .message(to: .variable("manager"), let selector, let arguments)? = valueExpression,
            selector.hasPrefix("destinationInstancesFor"),
            case .keyPath(of: .variable("source"), let path)? = arguments.last
        else { return nil }
        return path.contains { ".@".contains($0) } ? nil : path
    }
}
