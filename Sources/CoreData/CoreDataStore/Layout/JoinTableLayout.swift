import ManagedObjectModels

/// The table of a many-to-many relationship and its inverse.
package struct JoinTableLayout: Equatable, Sendable {
    /// One of the two relationships.
    package struct Side: Equatable, Sendable {
        package let entity: String
        package let relationship: String
        /// The column with the `Z_PK` of the objects that have the relationship. It is named after the inverse.
        package let column: String
        /// The column with their positions if the inverse is ordered; otherwise nil.
        package let orderColumn: String?
    }

    package let name: String
    /// The side that Core Data enumerates first.
    package let owner: Side
    package let inverse: Side

    func renamed(_ name: String) -> JoinTableLayout { JoinTableLayout(name: name, owner: owner, inverse: inverse) }

    /// Returns the table as the other relationship names it.
    func namedByInverse(_ numbers: EntityNumbers) -> JoinTableLayout {
        JoinTableLayout(
            name: "Z_\(numbers.number(of: inverse.entity))\(inverse.relationship.uppercased())", owner: inverse,
            inverse: owner)
    }

    /// Returns true if both tables are of one relationship and its inverse, whichever of them names the table.
    package func joinsSame(as other: JoinTableLayout) -> Bool {
        let sides = [owner, inverse].map { [$0.entity, $0.relationship] }
        let others = [other.owner, other.inverse].map { [$0.entity, $0.relationship] }
        return sides == others || sides == others.reversed()
    }

    /// The `CREATE TABLE` statement, character for character.
    package var creation: String { creation(as: name) }

    package func creation(as name: String) -> String {
        let columns = [owner.column, inverse.column]
        let all = columns + [owner.orderColumn, inverse.orderColumn].compactMap(\.self)
        let definitions = all.map { $0 + " INTEGER" } + ["PRIMARY KEY (\(columns.joined(separator: ", ")))"]
        return "CREATE TABLE \(name) ( " + definitions.joined(separator: ", ") + " )"
    }
}

/// The naming of join tables. Core Data enumerates entities by name, whatever they inherit from. (In Apple's Notes,
/// `Z_12NOTES` belongs to folders, number 12, whose parent's name comes after that of notes, number 9.)
package struct JoinTableNaming {
    /// A rule by which a framework names join tables. Where a model's tables tell rules apart, each known store follows
    /// one of these.
    package enum Rule: CaseIterable, Sendable {
        /// Each entity has the relationships that it declares, ordered by a hash of 32 bits: stores up to framework
        /// 1145, and one of 1340.
        case declared
        /// The same, but an entity has those that it inherits, too.
        case inherited
        /// An entity has those that it inherits, ordered by a hash of 64 bits in another hash table: a store of
        /// framework 1345.
        case wideHash
    }

    private let rule: Rule
    private let model: ManagedObjectModel
    private let numbers: EntityNumbers
    private var tables: [JoinTableLayout] = []
    private var handled: Set<[String]> = []
    /// The used column names by root entity. A name is used once in a hierarchy.
    private var usedNames: [String: Set<String>] = [:]

    init(_ model: ManagedObjectModel, _ numbers: EntityNumbers, _ rule: Rule) {
        self.rule = rule
        self.model = model
        self.numbers = numbers
    }

    mutating func layout() -> [JoinTableLayout] {
        for entity in numbers.entitiesByName {
            let order = PropertyOrder(entity, in: model, numbers: numbers, rule: rule)
            for relationship in order.orderedRelationships {
                guard let declaring = declaringEntity(of: relationship, entity.name) else { continue }
                add(relationship, of: declaring)
            }
        }
        return tables
    }

    private mutating func add(_ relationship: RelationshipDescription, of entity: EntityDescription) {
        guard relationship.isToMany, !relationship.isTransient, let inverse = model.inverse(of: relationship),
            inverse.isToMany, let other = declaringEntity(of: inverse, relationship.destinationEntityName),
            !handled.contains([entity.name, relationship.name])
        else { return }
        handled.insert([entity.name, relationship.name])
        handled.insert([other.name, inverse.name])
        let isReflexive = entity.name == other.name && relationship.name == inverse.name
        let number = numbers.number(of: entity.name)
        let otherNumber = numbers.number(of: other.name)
        let upper = relationship.name.uppercased()
        let owner = JoinTableLayout.Side(
            entity: entity.name, relationship: relationship.name,
            column: column("Z_\(number)\(inverse.name.uppercased())", of: entity),
            orderColumn: inverse.isOrdered ? "Z_FOK_\(number)\(inverse.name.uppercased())" : nil)
        // A relationship that is its own inverse (reported; no such store was seen).
        let destination = JoinTableLayout.Side(
            entity: other.name, relationship: inverse.name,
            column: isReflexive ? "REFLEXIVE" : column("Z_\(otherNumber)\(upper)", of: other),
            orderColumn: relationship.isOrdered ? isReflexive ? "FOK_REFLEXIVE" : "Z_FOK_\(otherNumber)\(upper)" : nil)
        tables.append(JoinTableLayout(name: "Z_\(number)\(upper)", owner: owner, inverse: destination))
    }

    private func declaringEntity(of relationship: RelationshipDescription, _ entity: String) -> EntityDescription? {
        guard let entity = model.entity(named: entity) else { return nil }
        return ([entity] + model.superentities(of: entity)).first {
            model.declaredProperty(named: relationship.name, of: $0) == .relationship(relationship)
        }
    }

    private mutating func column(_ name: String, of entity: EntityDescription) -> String {
        let root = model.rootEntity(of: entity).name
        var candidate = name
        var number = 1
        while !usedNames[root, default: []].insert(candidate).inserted {
            candidate = name + String(number)
            number += 1
        }
        return candidate
    }
}
