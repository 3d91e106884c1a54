/// The old links of a relationship from one of its two ends, for those objects that should have them after the
/// migration.
///
/// SQL here refers to the owner's key as `o` and to the target's key as `t`.
struct LinkSet {
    let columns: LinkColumns
    /// The old relationship.
    let key: PropertyKey
    /// The old numbers of the entities whose objects now have the relationship.
    let owners: [Int64]
    let ownerTable: String
    let targetTable: String
    /// The old numbers of the entities whose objects may now be targets.
    let targets: [Int64]
    /// The old numbers of the entities whose objects may no longer be targets.
    let excludedTargets: [Int64]
    let isOrdered: Bool
    /// True if the links are seen from their targets.
    let isFlipped: Bool
}

extension LinkSet {
    /// Returns the sources of a relationship's links: one set for each old relationship that became it in some entity.
    static func all(of key: PropertyKey, flipped: Bool = false, _ context: AuditContext) throws -> [LinkSet] {
        let (old, new) = (context.oldLayout, context.newLayout)
        guard let relationship = new.tree.relationship(key) else { return [] }
        var owners: [PropertyKey: [Int64]] = [:]
        for (name, before) in context.pairing.survivors(among: new.tree.family(of: key.entity)) {
            guard let source = context.pairing.source(of: relationship, in: name) else { continue }
            owners[source, default: []].append(old.tree.number(of: before))
        }
        let allowed = Set(new.tree.family(of: relationship.destinationEntityName))
        return try owners.sorted { $0.key.entity + "." + $0.key.name < $1.key.entity + "." + $1.key.name }
            .compactMap { source, numbers in
                guard let oldRelationship = old.tree.relationship(source),
                    let columns = try old.links(of: source, in: context.oldSchema)
                else { return nil }
                let family = old.tree.family(of: oldRelationship.destinationEntityName)
                let isTarget = Dictionary(
                    grouping: family, by: { context.pairing.successors[$0].map(allowed.contains) ?? false })
                return LinkSet(
                    columns: columns, key: source, owners: numbers.sorted(),
                    ownerTable: context.oldSchema.qualified(old.tree.table(of: source.entity)),
                    targetTable: context.oldSchema.qualified(old.tree.table(of: oldRelationship.destinationEntityName)),
                    targets: old.tree.numbers(of: isTarget[true] ?? []),
                    excludedTargets: old.tree.numbers(of: isTarget[false] ?? []),
                    isOrdered: oldRelationship.isOrdered && oldRelationship.isToMany,
                    isFlipped: flipped)
            }
    }

    /// The columns seen from the objects whose relationship is checked.
    private var owner: String { isFlipped ? columns.target : columns.owner }
    private var target: String { isFlipped ? columns.owner : columns.target }

    /// Returns SQL for the links as rows of `o`, `t` and the position `p`. The table is `l`.
    func rows(_ context: AuditContext) -> String {
        let place = columns.place.map { "l." + quoted($0) } ?? "NULL"
        return "(SELECT l.\(quoted(owner)) AS o, l.\(quoted(target)) AS t, \(isFlipped ? "NULL" : place) AS p "
            + "FROM \(context.oldSchema.qualified(columns.table)) AS l NOT INDEXED "
            + "WHERE l.\(quoted(columns.column)) IS NOT NULL)"
    }

    /// Returns an SQL condition: the link is in this set.
    func contains(_ o: String, _ t: String, in context: AuditContext) -> String {
        "EXISTS (SELECT 1 FROM \(context.oldSchema.qualified(columns.table)) AS l "
            + "WHERE l.\(quoted(owner)) = \(o) AND l.\(quoted(target)) = \(t))"
    }

    /// Returns an SQL condition: both ends were objects that may now have the link. Never true if an end was not an
    /// object.
    func areObjects(_ o: String, _ t: String) -> String {
        "\(entity(ofOwner: o, t)) IN \(sqlList(owners)) AND \(entity(ofTarget: o, t)) IN \(sqlList(targets))"
    }

    /// Returns an SQL condition: the target was an object that may no longer have the link.
    func isExcluded(_ o: String, _ t: String) -> String {
        excludedTargets.isEmpty ? "0" : "coalesce(\(entity(ofTarget: o, t)) IN \(sqlList(excludedTargets)), 0)"
    }

    /// Returns an SQL condition: the owner was an object that no longer has the relationship.
    func isOrphaned(_ o: String, _ t: String, in context: AuditContext) -> String {
        let entity = entity(ofOwner: o, t)
        return
            "coalesce(\(entity) BETWEEN 1 AND \(context.oldLayout.tree.names.count) AND \(entity) NOT IN \(sqlList(owners)), 0)"
    }

    func entity(ofOwner o: String, _ t: String) -> String {
        "(SELECT Z_ENT FROM \(ownerTable) WHERE Z_PK = \(isFlipped ? t : o))"
    }

    func entity(ofTarget o: String, _ t: String) -> String {
        "(SELECT Z_ENT FROM \(targetTable) WHERE Z_PK = \(isFlipped ? o : t))"
    }
}
