import ManagedObjectModels

/// An argument of `FUNCTION($entityPolicy, …)`, prepared for evaluation with each object.
enum PolicyInput {
    case source
    case destination
    case context
    case constant(AttributeValue?)
    /// The relationships that start at `$source`, and the final attribute, if any.
    case path([String], isToMany: Bool, attribute: String?)

    func argument(source: MigrationObject, destination: MigrationObject) throws -> PolicyArgument {
        switch self {
        case .source: return .object(source)
        case .destination: return .object(destination)
        case .context: return .context
        case .constant(let value): return .value(value)
        case .path(let relationships, let isToMany, let attribute):
            var objects = [source]
            for name in relationships {
                objects = try objects.flatMap { try $0.objects(forKey: name) }
            }
            guard let attribute else { return isToMany ? .objects(objects) : .object(objects.first) }
            guard !isToMany else { throw PolicyError("“\(attribute)” is read from several objects") }
            return .value(try objects.first?.value(forKey: attribute) ?? nil)
        }
    }
}

extension PolicyCall {
    func inputs(_ entityPlan: EntityMappingPlan, _ session: MigrationSession) throws -> [PolicyInput] {
        try arguments.map { argument in
            switch argument {
            case .constant(let value): return .constant(value)
            case .variable("source"): return .source
            case .variable("destination"): return .destination
            case .variable: return .context
            case .keyPath(of: .variable("source"), let path): return try input(path, from: entityPlan, in: session)
            default:
                throw PolicyError("a policy's function takes $source, $destination, a path from $source, or a constant")
            }
        }
    }

    private func input(
        _ path: String, from entityPlan: EntityMappingPlan, in session: MigrationSession
    ) throws -> PolicyInput {
        var entity = entityPlan.source
        var relationships: [String] = []
        var isToMany = false
        let names = path.split(separator: ".").map(String.init)
        for (index, name) in names.enumerated() {
            guard let current = entity else { break }
            switch session.sourceModel.property(named: name, of: current) {
            case .relationship(let relationship)?:
                relationships.append(name)
                isToMany = isToMany || relationship.isToMany
                entity = session.sourceModel.entity(named: relationship.destinationEntityName)
            case .attribute? where index == names.count - 1:
                return .path(relationships, isToMany: isToMany, attribute: name)
            default: throw PolicyError("\(current.name) has no “\(name)”")
            }
        }
        return .path(relationships, isToMany: isToMany, attribute: nil)
    }
}
