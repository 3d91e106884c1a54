import ManagedObjectModels

/// The entities of a model as a store numbers them, with what each inherits.
///
/// Roots are numbered from 1 by name without regard to case, each followed by those that inherit from it.
struct EntityTree {
    let model: ManagedObjectModel
    /// In the order of their numbers.
    let names: [String]
    private let numbers: [String: Int64]
    private let children: [String: [String]]
    private let lines: [String: [String]]

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
        var lines: [String: [String]] = [:]
        var waiting = Array(Self.sorted(roots).reversed()).map { ($0, [String]()) }
        while let (name, ancestors) = waiting.popLast() {
            names.append(name)
            lines[name] = [name] + ancestors
            for child in (children[name] ?? []).reversed() { waiting.append((child, [name] + ancestors)) }
        }
        self.names = names
        self.lines = lines
        self.children = children
        numbers = Dictionary(zip(names, Int64(1)...), uniquingKeysWith: { first, _ in first })
    }

    private static func sorted(_ names: [String]) -> [String] {
        names.map { ($0.lowercased(), $0) }
            .sorted { $0.0 == $1.0 ? $0.1.precedes($1.1) : $0.0.precedes($1.0) }
            .map(\.1)
    }

    /// `Z_ENT`; 0 for an entity that the model doesn't have.
    func number(of entity: String) -> Int64 { numbers[entity] ?? 0 }

    func numbers(of entities: some Sequence<String>) -> [Int64] { entities.map(number(of:)).sorted() }

    func name(of number: Int64) -> String? {
        number > 0 && number <= Int64(names.count) ? names[Int(number - 1)] : nil
    }

    /// The entity, its parent, and so on.
    func line(of entity: String) -> [String] { lines[entity] ?? [] }

    func root(of entity: String) -> String { lines[entity]?.last ?? entity }

    /// The entity and all that inherit from it.
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

    var roots: [String] { names.filter { line(of: $0).count == 1 } }

    /// The table that holds the entity's objects.
    func table(of entity: String) -> String { "Z" + root(of: entity).uppercased() }

    /// The entity of the line that declares the property; nil when none does.
    func declaring(_ property: String, of entity: String) -> String? {
        line(of: entity).first { model.entity(named: $0)?.declares(property) ?? false }
    }

    /// The relationship under that name, which an entity declares or inherits.
    func relationship(_ key: PropertyKey) -> RelationshipDescription? {
        model.entity(named: key.entity)?.relationships.first { $0.name == key.name }
    }

    /// All relationships that are stored, by the entities that declare them.
    var relationships: [(key: PropertyKey, relationship: RelationshipDescription)] {
        names.flatMap { name in
            (model.entity(named: name)?.relationships ?? []).filter { !$0.isTransient }
                .sorted { $0.name.precedes($1.name) }
                .map { (PropertyKey(entity: name, name: $0.name), $0) }
        }
    }

    /// The relationship that leads back; nil when none does, or none that is stored.
    func inverse(of relationship: RelationshipDescription) -> PropertyKey? {
        guard let name = relationship.inverseName,
            let entity = declaring(name, of: relationship.destinationEntityName)
        else { return nil }
        let key = PropertyKey(entity: entity, name: name)
        return self.relationship(key).map { $0.isTransient ? nil : key } ?? nil
    }
}

/// A property, by the entity that declares it.
struct PropertyKey: Hashable {
    let entity: String
    let name: String
}
