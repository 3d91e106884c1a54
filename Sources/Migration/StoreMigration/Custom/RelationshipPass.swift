import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The second pass: sets the relationships that the first pass couldn't set, and the inverses of those that it did.
struct RelationshipPass {
    private let store: StoreWriter
    private let plan: MappingPlan

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
    }

    /// Sets the relationships of one entity mapping's new objects.
    ///
    /// - Parameter only: A temporary table with the keys of the objects to process in its column `key`; nil for all
    ///   objects of the mapping.
    func relate(_ entityPlan: EntityMappingPlan, only: String? = nil) throws {
        var rows = try plan.rows(entityPlan)
        if let only {
            rows.sources.append("temp.\(only) AS p")
            rows.conditions.append("p.key = \(rows.key)")
        }
        for relationship in try plan.relationshipPlans(entityPlan) where relationship.policyCall == nil {
            // The statement that inserted the objects has already set it.
            if relationship.isKnownAtInsert, !entityPlan.usesPolicy { continue }
            guard !relationship.targets.isEmpty, !isSetByInverse(relationship) else { continue }
            var relationship = relationship
            if only == nil { try removeJoinedTargets(&relationship, entityPlan) }
            guard !relationship.targets.isEmpty else { continue }
            let links = relationship.links(rows)
            if relationship.columns != nil {
                try set(relationship.link, columns: relationship.columns, links: links)
            } else if relationship.link.isJoinTable {
                try join(relationship.link, links)
            } else {
                try setInverse(relationship, links)
            }
        }
    }

    /// True if each possible target sets the relationship itself, through the inverse.
    private func isSetByInverse(_ relationship: RelationshipPlan) -> Bool {
        guard relationship.columns == nil, !relationship.link.isJoinTable,
            let name = relationship.relationship.inverseName
        else { return false }
        let targetPlans = plan.entityMappings.filter { target in
            let family = plan.destination.model.family(of: relationship.relationship.destinationEntityName)
            return target.mapsObjects && target.destination.map { family.contains($0.name) } ?? false
        }
        return targetPlans.allSatisfy { target in
            !target.usesPolicy
                && target.mapping.relationshipMappings.contains { $0.name == name && $0.valueExpression != nil }
        }
    }

    /// Removes the targets whose links are in the join table already, since the mapping of those objects joined them
    /// from the other end: both ends take them from the two ends of one older relationship. Positions are left out of
    /// this: each end has its own.
    private func removeJoinedTargets(_ relationship: inout RelationshipPlan, _ entityPlan: EntityMappingPlan) throws {
        guard relationship.link.isJoinTable, relationship.link.ownerPlace == nil, relationship.link.targetPlace == nil,
            let sourceLink = relationship.sourceLink
        else { return }
        let (name, link) = (relationship.relationship.name, relationship.link)
        relationship.targets = try relationship.targets.filter { target in
            let creator = plan.entityMappings[target.creator]
            guard creator.number <= entityPlan.number, !creator.usesPolicy else { return true }
            // The mapping's own relationships are set in their order.
            return try !plan.relationshipPlans(creator)
                .prefix { creator.number < entityPlan.number || $0.relationship.name != name }
                .contains { other in
                    other.link.reversed == link && other.sourceLink?.reversed == sourceLink && other.policyCall == nil
                        && other.targets.contains { $0.creator == entityPlan.number }
                }
        }
    }

    /// Sets a to-one relationship in the owner's own row.
    private func set(_ link: LinkStorage, columns: LinkStorage.Columns?, links: String) throws {
        guard let columns else { return }
        var assignments = ["\(columns.reference.sqlName) = q.target"]
        if let entity = columns.entity { assignments.append("\(entity.sqlName) = q.target_entity") }
        if let order = columns.order { assignments.append("\(order.sqlName) = q.owner_place") }
        try store.execute(
            "UPDATE main.\(link.table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM (\(links)) AS q "
                + "WHERE t.Z_PK = q.owner")
    }

    /// Sets a to-many relationship that is stored in its targets' rows. Targets that have set it themselves are
    /// unchanged. Of several owners, the one with the lowest key gets the target, as in an inferred migration.
    private func setInverse(_ relationship: RelationshipPlan, _ links: String) throws {
        let link = relationship.link
        var assignments = ["\(link.owner.sqlName) = q.owner"]
        if let entity = plan.inverseColumns(of: relationship)?.entity {
            assignments.append("\(entity.sqlName) = q.owner_entity")
        }
        if let place = link.targetPlace { assignments.append("\(place.sqlName) = q.place") }
        try store.execute(
            "UPDATE main.\(link.table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM ("
                + "SELECT min(owner) AS owner, owner_entity, target, place FROM (\(links)) GROUP BY target) AS q "
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

    // MARK: Inverses

    /// Sets the inverses of one-to-one relationships, and positions in ordered relationships whose older objects had
    /// none. Clears what stands beside references that lead nowhere.
    func complete() throws {
        for entity in plan.destination.numbers.entities {
            for relationship in entity.relationships where !relationship.isTransient {
                if !relationship.isToMany { try clearUnusedColumns(of: relationship, of: entity) }
                guard let inverse = plan.destination.model.inverse(of: relationship) else {
                    if relationship.isOrdered { try assignPlaces(link(relationship, of: entity)?.reversed) }
                    continue
                }
                if !relationship.isToMany, !inverse.isToMany { try mirror(relationship, from: inverse, of: entity) }
                if inverse.isOrdered { try assignPlaces(link(relationship, of: entity)) }
                // A relationship that is its own inverse has one join table with positions on both sides.
                if inverse == relationship, relationship.isOrdered {
                    try assignPlaces(link(relationship, of: entity)?.reversed)
                }
            }
        }
    }

    /// Clears the position and the entity's number beside a reference that leads nowhere: the object that it led to has
    /// no new one.
    private func clearUnusedColumns(of relationship: RelationshipDescription, of entity: EntityDescription) throws {
        guard
            let columns = LinkStorage.columns(of: relationship, declaredFor: entity.name, in: plan.destination),
            let table = plan.destination.table(of: entity.name)?.name
        else { return }
        for column in [columns.entity, columns.order].compactMap(\.self) {
            try store.execute(
                "UPDATE main.\(table.sqlName) SET \(column.sqlName) = NULL "
                    + "WHERE \(columns.reference.sqlName) IS NULL AND \(column.sqlName) IS NOT NULL")
        }
    }

    /// Sets the entity's end of a one-to-one relationship from its inverse.
    private func mirror(
        _ relationship: RelationshipDescription, from inverse: RelationshipDescription, of entity: EntityDescription
    ) throws {
        let layout = plan.destination
        guard let own = LinkStorage.columns(of: relationship, declaredFor: entity.name, in: layout),
            let inverseColumns = LinkStorage.columns(
                of: inverse, declaredFor: relationship.destinationEntityName, in: layout),
            let table = layout.table(of: entity.name)?.name,
            let inverseTable = layout.table(of: relationship.destinationEntityName)?.name
        else { return }
        var assignments = ["\(own.reference.sqlName) = q.key"]
        if let column = own.entity { assignments.append("\(column.sqlName) = q.entity") }
        try store.execute(
            "UPDATE main.\(table.sqlName) AS t SET \(assignments.joined(separator: ", ")) FROM ("
                + "SELECT Z_PK AS key, Z_ENT AS entity, \(inverseColumns.reference.sqlName) AS target "
                + "FROM main.\(inverseTable.sqlName) WHERE \(inverseColumns.reference.sqlName) IS NOT NULL) AS q "
                + "WHERE t.Z_PK = q.target AND t.\(own.reference.sqlName) IS NULL")
    }

    private func link(_ relationship: RelationshipDescription, of entity: EntityDescription) -> LinkStorage? {
        LinkStorage(of: relationship, declaredFor: entity.name, in: plan.destination)
    }

    /// Assigns positions to the owners of each target: 2048 for the first and 1024 more for each next one, as Core Data
    /// does.
    private func assignPlaces(_ link: LinkStorage?) throws {
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
    /// Returns the columns of the inverse if it is the to-one end.
    fileprivate func inverseColumns(of plan: RelationshipPlan) -> LinkStorage.Columns? {
        guard let inverse = destination.model.inverse(of: plan.relationship) else { return nil }
        return LinkStorage.columns(
            of: inverse, declaredFor: plan.relationship.destinationEntityName, in: destination)
    }
}
