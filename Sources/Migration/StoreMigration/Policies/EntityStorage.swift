import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The table and columns of one entity's objects, for reading and writing single objects.
final class EntityStorage {
    let entity: EntityDescription
    let number: Int64
    /// The table's name, qualified by the connection's schema name of the store.
    let table: String
    let rootEntity: String
    /// The columns of own and inherited properties, and those that store relationships of other entities.
    let columns: [String]
    /// A new object's values, by slot.
    let defaults: [SQLiteValue]
    private let slots: [String: Int]
    private let attributes: [String: (slot: Int, attribute: AttributeDescription)]
    private let relationships: [String: StoredRelationship]
    /// The update statements, by the slots that they change.
    var updates: [Set<Int>: SQLiteStatement] = [:]
    var insertion: SQLiteStatement?
    var reading: SQLiteStatement?

    init(_ entity: EntityDescription, _ layout: StoreLayout, schema: String) {
        let family = Set(([entity] + layout.model.superentities(of: entity)).map(\.name))
        let table = layout.table(of: entity.name)
        let own = (table?.columns ?? []).filter { $0.content.belongs(to: family, layout.model) }
        let slots = Dictionary(own.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        var attributes: [String: (slot: Int, attribute: AttributeDescription)] = [:]
        var relationships: [String: StoredRelationship] = [:]
        var defaults = [SQLiteValue](repeating: .null, count: own.count)
        for property in layout.model.properties(of: entity) where !property.isTransient {
            switch property {
            case .attribute(let attribute):
                guard let name = layout.column(of: attribute.name, of: entity.name)?.name, let slot = slots[name] else {
                    continue
                }
                attributes[attribute.name] = (slot, attribute)
                defaults[slot] = (try? attribute.defaultValue.map(attribute.stored)) ?? .null
            case .relationship(let relationship):
                relationships[relationship.name] = StoredRelationship(relationship, of: entity.name, layout)
            case .fetched: break
            }
        }
        self.entity = entity
        number = layout.numbers.number(of: entity.name)
        self.table = schema + "." + (table?.name ?? "").sqlName
        rootEntity = table?.rootEntity ?? ""
        columns = own.map(\.name)
        self.slots = slots
        self.attributes = attributes
        self.relationships = relationships
        self.defaults = defaults
    }

    func slot(ofColumn name: String) -> Int? { slots[name] }

    func attribute(_ name: String) throws -> (slot: Int, attribute: AttributeDescription) {
        guard let found = attributes[name] else {
            throw PolicyError("\(entity.name) has no stored attribute “\(name)”")
        }
        return found
    }

    func relationship(_ name: String) throws -> StoredRelationship {
        guard let found = relationships[name] else {
            throw PolicyError("\(entity.name) has no stored relationship “\(name)”")
        }
        return found
    }
}

/// The storage of a relationship.
struct StoredRelationship {
    let relationship: RelationshipDescription
    /// The name of the entity whose objects have the relationship.
    let entity: String
    let link: LinkStorage
    /// The inverse relationship.
    let inverse: RelationshipDescription?
    /// The columns that store the relationship, in the row of the to-one end; nil for a join table.
    let columns: LinkStorage.Columns?

    /// True if the object's own row stores the relationship.
    var isOwn: Bool { link.owner == "Z_PK" }

    /// Returns nil for a transient relationship.
    init?(_ relationship: RelationshipDescription, of entity: String, _ layout: StoreLayout) {
        guard let link = LinkStorage(of: relationship, declaredFor: entity, in: layout) else { return nil }
        self.relationship = relationship
        self.entity = entity
        self.link = link
        inverse = layout.model.inverse(of: relationship)
        columns =
            LinkStorage.columns(of: relationship, declaredFor: entity, in: layout)
            ?? inverse.flatMap {
                LinkStorage.columns(of: $0, declaredFor: relationship.destinationEntityName, in: layout)
            }
    }
}

extension ColumnLayout.Content {
    fileprivate func belongs(to family: Set<String>, _ model: ManagedObjectModel) -> Bool {
        switch self {
        case .attribute(let entity, _): return family.contains(entity)
        case .reference(let entity, let name), .referencedEntity(let entity, let name), .order(let entity, let name):
            if family.contains(entity) { return true }
            // A to-many relationship without an inverse is stored with its destination objects.
            guard let owner = model.entity(named: entity),
                case .relationship(let relationship)? = model.property(named: name, of: owner), relationship.isToMany
            else { return false }
            return family.contains(relationship.destinationEntityName)
        }
    }
}
