import ManagedObjectModels

/// The SQL of a relationship's links. The older store's are rows of `o`, the object that has the relationship, and `t`,
/// its target.
struct LinkQueries {
    enum End { case owner, target }

    private let old: AuditLayout
    private let new: AuditLayout
    private let newSchema: AuditSchema
    private let forward: LinkColumns
    /// The inverse's own columns, seen from there, if it has some; nil if both ends share them.
    private let backward: LinkColumns?
    private let inversePlace: String?
    private let forwardTable: String
    private let ownerTable: String
    private let targetTable: String

    /// Returns nil for a relationship that the older store doesn't hold.
    init?(
        old: AuditLayout, new: AuditLayout, oldSchema: AuditSchema, newSchema: AuditSchema, forward: PropertyKey,
        backward: PropertyKey?
    ) throws {
        guard let relationship = old.tree.relationship(forward),
            let columns = try old.links(of: forward, in: oldSchema)
        else { return nil }
        self.old = old
        self.new = new
        self.newSchema = newSchema
        self.forward = columns
        let inverse = try backward.flatMap { try old.links(of: $0, in: oldSchema) }
        self.backward = columns.form == .owner && inverse?.form == .owner ? inverse : nil
        inversePlace = inverse?.place
        forwardTable = oldSchema.qualified(columns.table)
        ownerTable = oldSchema.qualified(old.tree.table(of: forward.entity))
        targetTable = oldSchema.qualified(old.tree.table(of: relationship.destinationEntityName))
    }

    /// Returns the rows of the links between these entities' objects, with a condition that others can follow. If both
    /// ends have columns, the second element has the links that only the inverse's column holds.
    func rows(_ classes: [(owner: String, target: String)]) -> [String] {
        let objects = condition(classes)
        switch forward.form {
        case .owner:
            let column = "o.\(quoted(forward.target))"
            let own = "\(ownerTable) AS o NOT INDEXED JOIN \(targetTable) AS t ON t.Z_PK = \(column) WHERE \(objects)"
            guard let backward else { return [own] }
            return [
                own,
                "\(targetTable) AS t NOT INDEXED JOIN \(ownerTable) AS o ON o.Z_PK = t.\(quoted(backward.target)) "
                    + "WHERE \(objects) AND \(column) IS NOT t.Z_PK",
            ]
        case .target:
            return [
                "\(targetTable) AS t NOT INDEXED JOIN \(ownerTable) AS o ON o.Z_PK = t.\(quoted(forward.owner)) "
                    + "WHERE \(objects)"
            ]
        case .join:
            return [
                "\(forwardTable) AS l NOT INDEXED CROSS JOIN \(ownerTable) AS o ON o.Z_PK = l.\(quoted(forward.owner)) "
                    + "CROSS JOIN \(targetTable) AS t ON t.Z_PK = l.\(quoted(forward.target)) WHERE \(objects)"
            ]
        }
    }

    private func condition(_ classes: [(owner: String, target: String)]) -> String {
        // Entities with the same counterparts are grouped: a hierarchy has many pairs of entities.
        let byOwner = Dictionary(grouping: classes, by: \.owner).mapValues { old.tree.numbers(of: $0.map(\.target)) }
        let groups = Dictionary(grouping: byOwner.keys) { byOwner[$0] ?? [] }
        let conditions = groups.map { targets, owners in
            "(o.Z_ENT IN \(sqlList(old.tree.numbers(of: owners))) AND t.Z_ENT IN \(sqlList(targets)))"
        }
        return "(\((conditions.sorted() + ["0"]).joined(separator: " OR ")))"
    }

    /// Returns the column of the link's position in the order of the end's objects, as SQL; nil if it has none.
    func place(of end: End) throws -> String? {
        let column = end == .owner ? forward.place : inversePlace
        switch forward.form {
        case .owner: return column.map { "o." + quoted($0) }
        case .target: return column.map { "t." + quoted($0) }
        case .join: return column.map { "l." + quoted($0) }
        }
    }

    // MARK: The copy

    private struct Place: Hashable {
        let columns: LinkColumns
        let isReversed: Bool
    }

    /// Returns an SQL condition: the copy has the link.
    func isKept(_ classes: [(owner: String, target: String, ends: [ContentPaths.LinkEnd])]) throws -> String {
        var places: [Place: [(owner: String, target: String)]] = [:]
        for (owner, target, ends) in classes {
            for end in ends {
                var found: Set<Place> = []
                if let columns = try end.forward.flatMap({ try new.links(of: $0, in: newSchema) }) {
                    found.insert(Place(columns: columns, isReversed: false))
                }
                // Both ends usually share columns.
                if let columns = try end.backward.flatMap({ try new.links(of: $0, in: newSchema) }),
                    found.isEmpty || columns.form == .owner || !isInverse(end)
                {
                    found.insert(Place(columns: columns, isReversed: true))
                }
                for place in found { places[place, default: []].append((owner, target)) }
            }
        }
        let conditions = places.map { place, classes in
            let (owner, target) = place.isReversed ? ("t", "o") : ("o", "t")
            return "(\(condition(classes)) AND EXISTS (SELECT 1 FROM \(newSchema.qualified(place.columns.table)) AS a "
                + "WHERE a.\(quoted(place.columns.owner)) = \(owner).Z_PK "
                + "AND a.\(quoted(place.columns.target)) = \(target).Z_PK))"
        }
        return (conditions.sorted() + ["0"]).joined(separator: " OR ")
    }

    private func isInverse(_ end: ContentPaths.LinkEnd) -> Bool {
        end.forward.flatMap(new.tree.relationship).flatMap(new.tree.inverse) == end.backward
    }

    /// Returns an SQL condition: the copy has the object `alias`. True for objects whose new key is unknown.
    func survives(_ alias: String, _ paths: ContentPaths) -> String {
        let cases = old.tree.names.compactMap { name -> String? in
            let ends = paths.ends(of: name)
            guard !ends.isEmpty, ends.allSatisfy(\.keepsKeys) else { return nil }
            let exists = ends.map { end in
                "EXISTS (SELECT 1 FROM \(newSchema.qualified(new.tree.table(of: end.entity))) AS a "
                    + "WHERE a.Z_PK = \(alias).Z_PK AND a.Z_ENT = \(new.tree.number(of: end.entity)))"
            }
            return "WHEN \(old.tree.number(of: name)) THEN (\(exists.joined(separator: " OR ")))"
        }
        return cases.isEmpty ? "1" : "(CASE \(alias).Z_ENT \(cases.joined(separator: " ")) ELSE 1 END)"
    }
}
