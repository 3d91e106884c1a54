import ManagedObjectModels

/// The hierarchy of a model's entities with their numbers in a store.
///
/// Root entities are numbered from 1 by name without regard to case, each followed by its descendants.
struct EntityTree {
    let model: ManagedObjectModel
    /// The names in the order of the numbers.
    let names: [String]
    private let numbers: [String: Int64]
    private let children: [String: [String]]
    private let lineages: [String: [String]]

    init(_ model: ManagedObjectModel) {
        self.model = model
        var children: [String: [String]] = [:]
        var roots: [String] = []
        for entity in model.entities {
            if let parent = entity.superentityName {
                children[parent, default: []].append(entity.name)
            } else {
                roots.append(entity.name)
            }
        }
        children = children.mapValues(Self.sorted)
        var names: [String] = []
        var lineages: [String: [String]] = [:]
        var stack = Array(Self.sorted(roots).reversed()).map { ($0, [String]()) }
        while let (name, ancestors) = stack.popLast() {
            names.append(name)
            lineages[name] = [name] + ancestors
            for child in (children[name] ?? []).reversed() { stack.append((child, [name] + ancestors)) }
        }
        self.names = names
        self.lineages = lineages
        self.children = children
        numbers = Dictionary(zip(names, Int64(1)...), uniquingKeysWith: { first, _ in first })
    }

    private static func sorted(_ names: [String]) -> [String] {
        names.map { ($0.lowercased(), $0) }
            .sorted { $0.0 == $1.0 ? $0.1.precedes($1.1) : $0.0.precedes($1.0) }
            .map(\.1)
    }

    /// Returns the `Z_ENT` of an entity; 0 if the model doesn't have it.
    func number(of entity: String) -> Int64 { numbers[entity] ?? 0 }

    func numbers(of entities: some Sequence<String>) -> [Int64] { entities.map(number(of:)).sorted() }

    func name(of number: Int64) -> String? {
        number > 0 && number <= Int64(names.count) ? names[Int(number - 1)] : nil
    }

    /// Returns the entity and its ancestors, nearest first.
    func lineage(of entity: String) -> [String] { lineages[entity] ?? [] }

    func root(of entity: String) -> String { lineages[entity]?.last ?? entity }

    /// Returns the entity and its descendants.
    func family(of entity: String) -> [String] {
        var found = [entity]
        var next = 0
        while next < found.count {
            found += children[found[next]] ?? []
            next += 1
        }
        return found
    }

    func hasChildren(_ entity: String) -> Bool { children[entity] != nil }

    var roots: [String] { names.filter { lineage(of: $0).count == 1 } }

    /// Returns the table of an entity's objects.
    func table(of entity: String) -> String { "Z" + root(of: entity).uppercased() }

    /// Returns the entity or ancestor that declares a property; nil if none does.
    func declaring(_ property: String, of entity: String) -> String? {
        lineage(of: entity).first { name in
            model.entity(named: name).flatMap { model.declaredProperty(named: property, of: $0) } != nil
        }
    }

    /// Returns the relationship that an entity declares.
    func relationship(_ key: PropertyKey) -> RelationshipDescription? {
        guard let entity = model.entity(named: key.entity),
            case .relationship(let relationship)? = model.declaredProperty(named: key.name, of: entity)
        else { return nil }
        return relationship
    }

    /// All stored relationships, by declaring entity.
    var relationships: [(key: PropertyKey, relationship: RelationshipDescription)] {
        names.flatMap { name in
            (model.entity(named: name)?.relationships ?? []).filter { !$0.isTransient }
                .sorted { $0.name.precedes($1.name) }
                .map { (PropertyKey(entity: name, name: $0.name), $0) }
        }
    }

    /// Returns the inverse; nil if there is none or it isn't stored.
    func inverse(of relationship: RelationshipDescription) -> PropertyKey? {
        guard let name = relationship.inverseName,
            let entity = declaring(name, of: relationship.destinationEntityName)
        else { return nil }
        let key = PropertyKey(entity: entity, name: name)
        return self.relationship(key).map { $0.isTransient ? nil : key } ?? nil
    }
}

/// A property and the entity that declares it.
struct PropertyKey: Hashable {
    let entity: String
    let name: String
}
