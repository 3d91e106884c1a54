import CoreDataStore
import ManagedObjectModels
import MappingModels

/// A reference column whose links the source keeps in another place, or in several.
///
/// A row holds one link. If the source has more, the others are removed.
struct FilledReference {
    let entity: String
    let relationship: RelationshipDescription
    private let links: [CarriedLinks]

    /// Returns nil for a column that isn't a reference, and for one that is copied with its table's rows.
    init?(_ column: ColumnLayout, _ matching: EntityMatching) {
        let model = matching.destination.model
        guard case .reference(let entity, let name) = column.content, let declaring = model.entity(named: entity),
            case .relationship(let relationship)? = model.property(named: name, of: declaring)
        else { return nil }
        let all = matching.links(of: relationship, declaredBy: entity)
        let filling =
            relationship.isToMany
            ? (all.count == 1 && all[0].isCarriedInColumn ? [] : all) : all.filter(\.isInverse)
        guard !filling.isEmpty else { return nil }
        self.entity = entity
        self.relationship = relationship
        links = filling
    }

    /// The entity whose objects have the column.
    var holder: String { relationship.isToMany ? relationship.destinationEntityName : entity }

    /// A query for each place where the source keeps links. Its columns are the key of the row that holds the link, the
    /// key of the target object, and the position in that object's order.
    var queries: [String] {
        let ends =
            relationship.isToMany
            ? "target AS holder, owner AS target, target_place" : "owner AS holder, target, owner_place"
        return links.map { "SELECT \(ends) AS place FROM (\($0.query))" }
    }
}
