/// The links of one relationship as they were, seen from one of its two ends, of those objects that are to have them.
///
/// SQL here is over `o`, the owner's key, and `t`, the target's.
struct LinkSet {
    let columns: LinkColumns
    /// The older relationship.
    let key: PropertyKey
    /// The numbers of the entities whose objects have the relationship now, as they were.
    let owners: [Int64]
    let ownerTable: String
    let targetTable: String
    /// The numbers of the entities whose objects may be targets now, and of those that may not, as they were.
    let targets: [Int64]
    let refused: [Int64]
    let isOrdered: Bool
    /// Whether the links are seen from their targets.
    let isFlipped: Bool
}

extension LinkSet {
    /// The sets that a relationship's links come from: one for each older relationship that became it in some entity.
    static func all(of key: PropertyKey, flipped: Bool = false, _ context: AuditContext) throws -> [LinkSet] {
        let (old, new) = (context.old, context.new)
        guard let relationship = new.tree.relationship(key) else { return [] }
        var owners: [PropertyKey: [Int64]] = [:]
        for (name, before) in context.pairing.survivors(among: new.tree.family(of: key.entity)) {
            guard let source = context.pairing.source(of: relationship, in: name) else { continue }
            owners[source, default: []].append(old.tree.number(of: before))
        }
        let allowed = Set(new.tree.family(of: relationship.destinationEntityName))
        return try owners.sorted { $0.key.entity + "." + $0.key.name < $1.key.entity + "." + $1.key.name }
            .compactMap { source, numbers in
                guard let was = old.tree.relationship(source), let columns = try old.links(of: source, in: context.was)
                else { return nil }
                let family = old.tree.family(of: was.destinationEntityName)
                let isTarget = Dictionary(
                    grouping: family, by: { context.pairing.successors[$0].map(allowed.contains) ?? false })
                return LinkSet(
                    columns: columns, key: source, owners: numbers.sorted(),
                    ownerTable: context.was.qualified(old.tree.table(of: source.entity)),
                    targetTable: context.was.qualified(old.tree.table(of: was.destinationEntityName)),
                    targets: old.tree.numbers(of: isTarget[true] ?? []),
                    refused: old.tree.numbers(of: isTarget[false] ?? []), isOrdered: was.isOrdered && was.isToMany,
                    isFlipped: flipped)
            }
    }

    /// The columns seen from the objects whose relationship is looked at.
    private var owner: String { isFlipped ? columns.target : columns.owner }
    private var target: String { isFlipped ? columns.owner : columns.target }

    /// The links as rows of `o`, `t` and `p`, the place; `l` is the table.
    func rows(_ context: AuditContext) -> String {
        let place = columns.place.map { "l." + quoted($0) } ?? "NULL"
        return "(SELECT l.\(quoted(owner)) AS o, l.\(quoted(target)) AS t, \(isFlipped ? "NULL" : place) AS p "
            + "FROM \(context.was.qualified(columns.table)) AS l NOT INDEXED "
            + "WHERE l.\(quoted(columns.column)) IS NOT NULL)"
    }

    /// Whether the link is one of these, as SQL.
    func contains(_ o: String, _ t: String, _ context: AuditContext) -> String {
        "EXISTS (SELECT 1 FROM \(context.was.qualified(columns.table)) AS l "
            + "WHERE l.\(quoted(owner)) = \(o) AND l.\(quoted(target)) = \(t))"
    }

    /// Whether both ends were objects that may have the link now. Where an end was no object, nobody knows.
    func areObjects(_ o: String, _ t: String) -> String {
        "\(entity(ofOwner: o, t)) IN \(list(owners)) AND \(entity(ofTarget: o, t)) IN \(list(targets))"
    }

    /// Whether one of the ends was an object that may not have the link now.
    func areRefused(_ o: String, _ t: String) -> String {
        refused.isEmpty ? "0" : "coalesce(\(entity(ofTarget: o, t)) IN \(list(refused)), 0)"
    }

    /// Whether the owner was an object that doesn't have the relationship now.
    func isDisowned(_ o: String, _ t: String, _ context: AuditContext) -> String {
        let entity = entity(ofOwner: o, t)
        return
            "coalesce(\(entity) BETWEEN 1 AND \(context.old.tree.names.count) AND \(entity) NOT IN \(list(owners)), 0)"
    }

    func entity(ofOwner o: String, _ t: String) -> String {
        "(SELECT Z_ENT FROM \(ownerTable) WHERE Z_PK = \(isFlipped ? t : o))"
    }

    func entity(ofTarget o: String, _ t: String) -> String {
        "(SELECT Z_ENT FROM \(targetTable) WHERE Z_PK = \(isFlipped ? o : t))"
    }
}
