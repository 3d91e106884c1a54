import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The second pass: relationships that the first one couldn't set, and the other ends of those that it has.
struct RelationshipPass {
    private let store: StoreWriter
    private let plan: MappingPlan

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
    }

    /// - Parameter only: A temporary table of the keys of those new objects that are related, as `key`; nil for all
    ///   that the mapping has made.
    func relate(_ one: EntityMappingPlan, only: String? = nil) throws {
        var rows = try plan.rows(one)
        if let only {
            rows.sources.append("temp.\(only) AS p")
            rows.conditions.append("p.key = \(rows.key)")
        }
        for relationship in try plan.relationshipPlans(one) where relationship.policyCall == nil {
            // What the statement that made the objects has set.
            if relationship.isKnownEarly, !one.usesPolicy { continue }
            guard !relationship.targets.isEmpty, !isSaidByInverse(relationship) else { continue }
            let links = relationship.links(rows)
            if relationship.columns != nil {
                try set(relationship.link, relationship.columns, links, of: one)
            } else if relationship.link.isJoinTable {
                try join(relationship.link, links)
            } else {
                try setInverse(relationship, links)
            }
        }
    }

    /// Whether each object that the relationship may lead to tells of it itself, by the inverse.
    private func isSaidByInverse(_ relationship: RelationshipPlan) -> Bool {
        guard relationship.columns == nil, !relationship.link.isJoinTable,
            let name = relationship.relationship.inverseName
        else { return false }
        let makers = plan.entityMappings.filter { maker in
            let family = plan.destination.model.family(of: relationship.relationship.destinationEntityName)
            return maker.isRun && maker.destination.map { family.contains($0.name) } ?? false
        }
        return makers.allSatisfy { maker in
            !maker.usesPolicy
                && maker.mapping.relationshipMappings.contains { $0.name == name && $0.valueExpression != nil }
        }
    }

    /// A to-one relationship, in the owner's own row.
    private func set(
        _ link: LinkStorage, _ columns: LinkStorage.Columns?, _ links: String, of one: EntityMappingPlan
    ) throws {
        guard let columns else { return }
        var assignments = ["\(columns.reference.sqlName) = q.target"]
        if let entity = columns.entity { assignments.append("\(entity.sqlName) = q.target_entity") }
        if let order = columns.order { assignments.append("\(order.sqlName) = q.owner_place") }
        try store.execute(
            "UPDATE main.\(link.table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM (\(links)) AS q "
                + "WHERE t.Z_PK = q.owner")
    }

    /// A to-many relationship that is kept with the objects that it leads to; those that have said it themselves stay.
    private func setInverse(_ relationship: RelationshipPlan, _ links: String) throws {
        let link = relationship.link
        var assignments = ["\(link.owner.sqlName) = q.owner"]
        if let entity = plan.inverseColumns(of: relationship)?.entity {
            assignments.append("\(entity.sqlName) = q.owner_entity")
        }
        if let place = link.targetPlace { assignments.append("\(place.sqlName) = q.place") }
        try store.execute(
            "UPDATE main.\(link.table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM (\(links)) AS q "
                + "WHERE t.Z_PK = q.target AND t.\(link.owner.sqlName) IS NULL")
    }

    private func join(_ link: LinkStorage, _ links: String) throws {
        var columns = [link.owner, link.target]
        var values = ["owner", "target"]
        var updates: [String] = []
        for (column, value) in [(link.targetPlace, "place"), (link.ownerPlace, "owner_place")] {
            guard let column else { continue }
            columns.append(column)
            values.append(value)
            updates.append("\(column.sqlName) = coalesce(excluded.\(column.sqlName), \(column.sqlName))")
        }
        let conflict = updates.isEmpty ? "DO NOTHING" : "DO UPDATE SET " + updates.joined(separator: ", ")
        try store.execute(
            "INSERT INTO main.\(link.table.sqlName) (\(columns.map(\.sqlName).joined(separator: ", "))) "
                + "SELECT \(values.joined(separator: ", ")) FROM (\(links)) WHERE true ON CONFLICT \(conflict)")
    }

    // MARK: The other ends

    /// Sets what follows: a one-to-one relationship's other end, and places in ordered ones where the older objects had
    /// none.
    func complete() throws {
        for entity in plan.destination.numbers.entities {
            for relationship in entity.relationships where !relationship.isTransient {
                guard let inverse = plan.destination.model.inverse(of: relationship) else {
                    if relationship.isOrdered { try place(link(relationship, of: entity)?.reversed) }
                    continue
                }
                if !relationship.isToMany, !inverse.isToMany { try mirror(relationship, inverse, of: entity) }
                if inverse.isOrdered { try place(link(relationship, of: entity)) }
            }
        }
    }

    private func mirror(
        _ relationship: RelationshipDescription, _ inverse: RelationshipDescription, of entity: EntityDescription
    ) throws {
        let layout = plan.destination
        guard let own = LinkStorage.columns(of: relationship, declaredFor: entity.name, in: layout),
            let other = LinkStorage.columns(
                of: inverse, declaredFor: relationship.destinationEntityName, in: layout),
            let table = layout.table(of: entity.name)?.name,
            let others = layout.table(of: relationship.destinationEntityName)?.name
        else { return }
        var assignments = ["\(own.reference.sqlName) = q.key"]
        if let column = own.entity { assignments.append("\(column.sqlName) = q.entity") }
        try store.execute(
            "UPDATE main.\(table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM ("
                + "SELECT Z_PK AS key, Z_ENT AS entity, \(other.reference.sqlName) AS target FROM main.\(others.sqlName) "
                + "WHERE \(other.reference.sqlName) IS NOT NULL) AS q "
                + "WHERE t.Z_PK = q.target AND t.\(own.reference.sqlName) IS NULL")
    }

    private func link(_ relationship: RelationshipDescription, of entity: EntityDescription) -> LinkStorage? {
        LinkStorage(of: relationship, declaredFor: entity.name, in: plan.destination)
    }

    /// The first owner's place among those that lead to one target is 2048, each next one's 1024 more, as Core Data gives
    /// them.
    private func place(_ link: LinkStorage?) throws {
        guard let link, let place = link.ownerPlace else { return }
        let (table, target) = (link.table.sqlName, link.target.sqlName)
        try store.execute(
            "UPDATE main.\(table) AS t SET \(place.sqlName) = q.place FROM (SELECT rowid AS id, "
                + "(SELECT coalesce(max(m.\(place.sqlName)), 1024) FROM main.\(table) AS m "
                + "WHERE m.\(target) = n.\(target)) + 1024 * row_number() OVER "
                + "(PARTITION BY \(target) ORDER BY \(link.owner.sqlName)) AS place FROM main.\(table) AS n "
                + "WHERE \(target) IS NOT NULL AND \(place.sqlName) IS NULL) AS q WHERE t.rowid = q.id")
    }
}

extension MappingPlan {
    /// The columns of the inverse, where that is the to-one end.
    fileprivate func inverseColumns(of plan: RelationshipPlan) -> LinkStorage.Columns? {
        guard let inverse = destination.model.inverse(of: plan.relationship) else { return nil }
        return LinkStorage.columns(
            of: inverse, declaredFor: plan.relationship.destinationEntityName, in: destination)
    }
}
