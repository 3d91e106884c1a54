import ManagedObjectModel

/// By a mapping model.
struct MappedCarrying: CarriedProperties {
    private let mapping: MappingModel
    private let model: ManagedObjectModel
    /// What expressions read beyond an object's own properties, and conditions: it goes into something that isn't the
    /// property's value any more.
    private let consumed: Set<String>

    /// `mapping` is resolved.
    init(_ mapping: MappingModel, _ source: ManagedObjectModel) {
        self.mapping = mapping
        model = source
        var consumed: Set<String> = []
        for one in mapping.entityMappings {
            if let filter = one.filter {
                let read = ReadKeys(filter)
                consumed.formUnion(read.first.union(read.others))
            }
            for property in one.attributeMappings + one.relationshipMappings {
                if let expression = property.valueExpression { consumed.formUnion(ReadKeys(expression).others) }
            }
        }
        self.consumed = consumed
    }

    private func mappings(of entity: String) -> [EntityMapping] {
        mapping.entityMappings.filter { $0.sourceEntityName == entity }
    }

    func successors(of entity: String) -> [String]? {
        let all = mappings(of: entity)
        // What a policy does is its own affair.
        guard !all.contains(where: { $0.entityMigrationPolicyClassName != nil }) else { return nil }
        return all.compactMap(\.destinationEntityName)
    }

    func successors(of property: EntityProperty) -> [EntityProperty]? {
        guard let own = carried(property) else { return nil }
        var found = own
        if let entity = model.entity(named: property.entity),
            case .relationship(let relationship)? = model.property(named: property.property, of: entity),
            let inverse = model.inverse(of: relationship)
        {
            for member in model.family(of: relationship.destinationEntityName) {
                guard let other = carried(EntityProperty(entity: member, property: inverse.name)) else { return nil }
                found += other
            }
        }
        return found.isEmpty && consumed.contains(property.property) ? nil : found
    }

    private func carried(_ property: EntityProperty) -> [EntityProperty]? {
        var found: [EntityProperty] = []
        for one in mappings(of: property.entity) {
            guard one.entityMigrationPolicyClassName == nil else { return nil }
            guard let destination = one.destinationEntityName else { continue }
            for mapped in one.attributeMappings + one.relationshipMappings {
                guard let expression = mapped.valueExpression else { continue }
                let read = ReadKeys(expression)
                if read.isWholeObject { return nil }
                guard read.first.contains(property.property) else { continue }
                found.append(EntityProperty(entity: destination, property: mapped.name))
            }
        }
        return found
    }
}

/// The keys that an expression reads of objects.
struct ReadKeys {
    /// Those of the object itself.
    private(set) var first: Set<String> = []
    /// Those of objects that it leads to, and texts that may be keys.
    private(set) var others: Set<String> = []
    /// Whether the object is given to a function.
    private(set) var isWholeObject = false
    /// Each constant.
    private(set) var constants: [AttributeValue?] = []

    init(_ expression: MappingExpression) { read(expression) }

    init(_ predicate: MappingPredicate) { read(predicate) }

    private mutating func read(_ expression: MappingExpression) {
        switch expression {
        case .constant(let value):
            constants.append(value)
            if case .string(let text)? = value { others.formUnion(text.split(separator: ".").map(String.init)) }
        case .evaluatedObject, .variable("source"): isWholeObject = true
        case .variable: break
        case .keyPath(let operand, let path): read(path, of: operand)
        case .message(let receiver, _, let arguments):
            read(receiver)
            arguments.forEach { read($0) }
        case .function(_, let arguments), .aggregate(let arguments): arguments.forEach { read($0) }
        case .conditional(let condition, let one, let other):
            read(condition)
            read(one)
            read(other)
        case .subquery(let collection, _, let condition):
            read(collection)
            // Of the objects in the collection.
            let inner = ReadKeys(condition)
            others.formUnion(inner.first.union(inner.others))
            constants += inner.constants
        case .fetch(let request, let context, _):
            read(request)
            read(context)
        }
    }

    private mutating func read(_ path: String, of operand: MappingExpression) {
        var keys = path.split(separator: ".").map(String.init)
        switch operand {
        case .evaluatedObject, .variable("source"):
            if !keys.isEmpty { first.insert(keys.removeFirst()) }
        case .variable: break
        default: read(operand)
        }
        others.formUnion(keys)
    }

    private mutating func read(_ predicate: MappingPredicate) {
        switch predicate {
        case .constant: break
        case .comparison(let comparison):
            read(comparison.left)
            read(comparison.right)
        case .and(let parts), .or(let parts): parts.forEach { read($0) }
        case .not(let part): read(part)
        }
    }
}
