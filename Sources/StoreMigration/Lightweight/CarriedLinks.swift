import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Links of one of the destination's relationships that the source keeps in one place.
struct CarriedLinks {
    let storage: LinkStorage
    /// The columns of a to-many relationship without an inverse, in the rows of the objects that it leads to; nil where the
    /// links are kept otherwise.
    let columns: LinkStorage.Columns?
    /// The entities, by their numbers in the source, whose objects own these links.
    fileprivate(set) var owners: Set<Int64>
    /// The entities whose objects are led to now as before.
    let targets: Set<Int64>
    /// Whether the links are those of the relationship's inverse, seen from the other end.
    let isInverse: Bool
    fileprivate let ends: Ends

    /// The tables of the objects at both ends, and the entities that may be there.
    fileprivate struct Ends {
        let ownerTable: String
        let targetTable: String
        let owners: Set<Int64>
        let targets: Set<Int64>

        var reversed: Ends { Ends(ownerTable: targetTable, targetTable: ownerTable, owners: targets, targets: owners) }
    }

    /// The table of the objects that are led to.
    var targetTable: String { ends.targetTable }

    private var hasAllOwners: Bool { ends.owners.isSubset(of: owners) }
    /// Whether each object that could be led to before can be led to now.
    var hasAllTargets: Bool { ends.targets.isSubset(of: targets) }

    /// Whether each link in the storage is one of these.
    var isWhole: Bool { hasAllOwners && hasAllTargets }

    /// Whether a column that comes along with its table's rows carries the links: it holds no owner that lost them.
    var isCarriedInColumn: Bool { columns != nil && !isInverse && hasAllOwners }

    /// A row for each link, as in `LinkStorage.query`. Objects that don't come along, or that are no longer at this end of
    /// the relationship, have no row.
    var query: String {
        var text = "SELECT l.owner, l.target, l.owner_place, l.target_place FROM (\(storage.query)) AS l"
        if !hasAllOwners {
            text += " JOIN \(ends.ownerTable.sqlName) AS o ON o.Z_PK = l.owner AND o.Z_ENT IN (\(owners.sorted().list))"
        }
        if !hasAllTargets {
            text +=
                " JOIN \(ends.targetTable.sqlName) AS t ON t.Z_PK = l.target AND t.Z_ENT IN (\(targets.sorted().list))"
        }
        return text
    }

    /// The same links, seen from the other end.
    fileprivate var reversed: CarriedLinks {
        CarriedLinks(
            storage: storage.reversed, columns: nil, owners: targets, targets: owners, isInverse: !isInverse,
            ends: ends.reversed)
    }

    fileprivate func limited(toOwners some: Set<Int64>) -> CarriedLinks? {
        var links = self
        links.owners.formIntersection(some)
        return links.owners.isEmpty ? nil : links
    }
}

extension EntityMatching {
    /// Returns where the source keeps the links of the destination's relationship, which `entity` declares: for each
    /// entity that has the relationship those of what it was there, else those of what its inverse was.
    func links(of relationship: RelationshipDescription, declaredBy entity: String) -> [CarriedLinks] {
        let own = ownLinks(of: relationship, declaredBy: entity)
        guard let inverse = destination.model.inverse(of: relationship),
            let declaring = destination.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)?.name,
            declaring != entity || inverse.name != relationship.name
        else { return own }
        let known = own.reduce(into: Set<Int64>()) { $0.formUnion($1.owners) }
        let others = Set(
            destination.numbers.family(of: entity).compactMap { predecessors[$0].map(source.numbers.number) }
        ).subtracting(known)
        return own
            + ownLinks(of: inverse, declaredBy: declaring).compactMap { $0.reversed.limited(toOwners: others) }
    }

    private func ownLinks(of relationship: RelationshipDescription, declaredBy entity: String) -> [CarriedLinks] {
        let reachable = Set(destination.numbers.family(of: relationship.destinationEntityName))
        var found: [CarriedLinks] = []
        for member in destination.numbers.family(of: entity) {
            guard let (old, was) = self.relationship(relationship.name, of: member),
                let storage = LinkStorage(of: was, declaredFor: old.name, in: source)
            else { continue }
            let owner = source.numbers.number(of: old.name)
            if let index = found.firstIndex(where: { $0.storage == storage }) {
                found[index].owners.insert(owner)
                continue
            }
            let targets = source.numbers.family(of: was.destinationEntityName).filter {
                successors[$0].map(reachable.contains) ?? false
            }
            guard !targets.isEmpty, let ends = ends(of: was, declaredFor: old.name) else { continue }
            found.append(
                CarriedLinks(
                    storage: storage,
                    columns: was.isToMany ? LinkStorage.columns(of: was, declaredFor: old.name, in: source) : nil,
                    owners: [owner], targets: Set(targets.map(source.numbers.number)), isInverse: false, ends: ends))
        }
        return found
    }

    private func ends(of relationship: RelationshipDescription, declaredFor entity: String) -> CarriedLinks.Ends? {
        guard let declaring = source.declaringEntity(of: relationship.name, of: entity)?.name,
            let owners = source.table(of: entity)?.name,
            let targets = source.table(of: relationship.destinationEntityName)?.name
        else { return nil }
        return CarriedLinks.Ends(
            ownerTable: owners, targetTable: targets, owners: instantiable(of: declaring),
            targets: instantiable(of: relationship.destinationEntityName))
    }

    /// The source's entities of a family that have objects: an abstract one has none.
    private func instantiable(of entity: String) -> Set<Int64> {
        let members = source.numbers.family(of: entity).filter {
            source.model.entity(named: $0)?.isAbstract == false
        }
        return Set(members.map(source.numbers.number))
    }
}
