import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The links of one destination relationship that the source keeps in one table.
struct CarriedLinks {
    let storage: LinkStorage
    /// The columns of a to-many relationship without an inverse, which are in the target objects' rows; nil for links
    /// that are stored in another form.
    let columns: LinkStorage.Columns?
    /// The source numbers of the entities whose objects own these links.
    fileprivate(set) var owners: Set<Int64>
    /// The source numbers of the entities whose objects are targets both before and after the migration.
    let targets: Set<Int64>
    /// True if the links belong to the relationship's inverse and are seen from the other end.
    let isInverse: Bool
    fileprivate let ends: Ends

    /// The tables of the objects at both ends, and the entities that those objects may have.
    fileprivate struct Ends {
        let ownerTable: String
        let targetTable: String
        let owners: Set<Int64>
        let targets: Set<Int64>

        var reversed: Ends { Ends(ownerTable: targetTable, targetTable: ownerTable, owners: targets, targets: owners) }
    }

    /// The table of the target objects.
    var targetTable: String { ends.targetTable }

    private var hasAllOwners: Bool { ends.owners.isSubset(of: owners) }
    /// True if each object that could be a target before can be one after the migration.
    var hasAllTargets: Bool { ends.targets.isSubset(of: targets) }

    /// True if the storage holds no other links.
    var isComplete: Bool { hasAllOwners && hasAllTargets }

    /// True if a column that is copied with its table's rows carries the links: it holds no owner that lost them.
    var isCarriedInColumn: Bool { columns != nil && !isInverse && hasAllOwners }

    /// A query with a row for each link, as in `LinkStorage.query`. It leaves out objects that aren't migrated, or that
    /// are no longer at this end of the relationship.
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

    fileprivate func limited(toOwners allowed: Set<Int64>) -> CarriedLinks? {
        var links = self
        links.owners.formIntersection(allowed)
        return links.owners.isEmpty ? nil : links
    }
}

extension EntityMatching {
    /// Returns the source's links of the destination's relationship, which `entity` declares. For each entity that has
    /// the relationship, these are the links of the former relationship, or else those of its former inverse.
    func links(of relationship: RelationshipDescription, declaredBy entity: String) -> [CarriedLinks] {
        let own = ownLinks(of: relationship, declaredBy: entity)
        guard let inverse = destination.model.inverse(of: relationship),
            let declaring = destination.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)?.name,
            declaring != entity || inverse.name != relationship.name
        else { return own }
        let covered = own.reduce(into: Set<Int64>()) { $0.formUnion($1.owners) }
        let remaining = Set(
            destination.numbers.family(of: entity).compactMap { predecessors[$0].map(source.numbers.number) }
        ).subtracting(covered)
        return own
            + ownLinks(of: inverse, declaredBy: declaring).compactMap { $0.reversed.limited(toOwners: remaining) }
    }

    /// Returns the former links of a relationship's ordered inverse, if `links` don't have their positions: the two
    /// were not each other's inverse before. Each end of a link then keeps its own order.
    func inverseOrder(
        of relationship: RelationshipDescription, declaredBy entity: String, besides links: [CarriedLinks]
    ) -> [CarriedLinks] {
        guard let inverse = destination.model.inverse(of: relationship), inverse.isToMany, inverse.isOrdered,
            let declaring = destination.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)?.name,
            declaring != entity || inverse.name != relationship.name
        else { return [] }
        let own = ownLinks(of: inverse, declaredBy: declaring)
        let carried = Set(links.map(\.storage.reversed))
        return own.allSatisfy { carried.contains($0.storage) } ? [] : own
    }

    private func ownLinks(of relationship: RelationshipDescription, declaredBy entity: String) -> [CarriedLinks] {
        let reachable = Set(destination.numbers.family(of: relationship.destinationEntityName))
        var found: [CarriedLinks] = []
        for member in destination.numbers.family(of: entity) {
            guard let (old, former) = self.relationship(relationship.name, of: member),
                let storage = LinkStorage(of: former, declaredFor: old.name, in: source)
            else { continue }
            let owner = source.numbers.number(of: old.name)
            if let index = found.firstIndex(where: { $0.storage == storage }) {
                found[index].owners.insert(owner)
                continue
            }
            let targets = source.numbers.family(of: former.destinationEntityName).filter {
                successors[$0].map(reachable.contains) ?? false
            }
            guard !targets.isEmpty, let ends = ends(of: former, declaredFor: old.name) else { continue }
            let columns =
                former.isToMany ? LinkStorage.columns(of: former, declaredFor: old.name, in: source) : nil
            found.append(
                CarriedLinks(
                    storage: storage, columns: columns, owners: [owner],
                    targets: Set(targets.map(source.numbers.number)), isInverse: false, ends: ends))
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

    /// The source numbers of the entities of a family that can have objects, which excludes abstract entities.
    private func instantiable(of entity: String) -> Set<Int64> {
        let members = source.numbers.family(of: entity).filter {
            source.model.entity(named: $0)?.isAbstract == false
        }
        return Set(members.map(source.numbers.number))
    }
}
