import ManagedObjectModels

/// A check of every link of a relationship.
///
/// A link is required if the relationship had it, and its inverse had it or records nothing about it. A link is allowed
/// if one of the two had it. If an object may have only one link and had several, one of them is required.
struct LinkCheck {
    let context: AuditContext
    let key: PropertyKey
    let relationship: RelationshipDescription
    /// The location of the links in the migrated copy.
    let columns: LinkColumns
    /// The old links of the relationship.
    let own: [LinkSet]
    /// The old links of the inverse; empty if it is the relationship itself.
    let inverse: [LinkSet]
    let inverseKey: PropertyKey?

    /// Returns nil for a relationship that isn't stored.
    init?(_ key: PropertyKey, _ context: AuditContext) throws {
        guard let relationship = context.newLayout.tree.relationship(key),
            let columns = try context.newLayout.links(of: key, in: context.newSchema)
        else { return nil }
        self.context = context
        self.key = key
        self.relationship = relationship
        self.columns = columns
        own = try LinkSet.all(of: key, context)
        let inverse = context.newLayout.tree.inverse(of: relationship)
        inverseKey = inverse == key ? nil : inverse
        self.inverse = try inverseKey.map { try LinkSet.all(of: $0, flipped: true, context) } ?? []
    }

    private var table: String { context.newSchema.qualified(columns.table) }

    /// True if the inverse stores its links in a column of its own.
    private var isStoredTwice: Bool {
        columns.form == .owner && inverseKey.flatMap { context.newLayout.references[$0] } != nil
    }

    // MARK: Required links

    func checkRequiredLinks() throws {
        for set in own {
            try checkRequired(set, unlessDeniedBy: inverse)
        }
        // The check of the inverse covers the inverse's own column.
        if isStoredTwice { return }
        for set in inverse {
            try checkRequired(set, unlessDeniedBy: own)
        }
    }

    private func checkRequired(_ set: LinkSet, unlessDeniedBy others: [LinkSet]) throws {
        var conditions = ["NOT \(exists("l.o", "l.t"))"] + exceptions("l.o", "l.t")
        conditions.append(set.areObjects("l.o", "l.t"))
        if !others.isEmpty {
            let confirmed = others.map {
                "(\($0.entity(ofOwner: "l.o", "l.t")) IN \(sqlList($0.owners)) AND \($0.contains("l.o", "l.t", in: context)))"
            }
            let recorded = others.map { "coalesce(\($0.entity(ofOwner: "l.o", "l.t")) IN \(sqlList($0.owners)), 0)" }
            conditions.append("(NOT (\(recorded.joined(separator: " OR "))) OR \(confirmed.joined(separator: " OR ")))")
        }
        let statement = try context.reader.prepare(
            "SELECT l.o, l.t FROM \(set.rows(context)) AS l WHERE \(conditions.joined(separator: " AND ")) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(statement.integer(0), expected: "its link to object \(statement.integer(1))", found: "none")
    }

    /// Returns an SQL condition: the migrated copy has the link.
    private func exists(_ o: String, _ t: String) -> String {
        "EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.owner)) = \(o) "
            + "AND a.\(quoted(columns.target)) = \(t))"
    }

    /// Returns SQL conditions: an end that may have only one link has no other link instead.
    private func exceptions(_ o: String, _ t: String) -> [String] {
        var conditions: [String] = []
        let inverse = inverseKey.flatMap(context.newLayout.tree.relationship)
        let isOwnerSingle =
            (inverse.map { !$0.isToMany } ?? false) || relationship.inverseName == nil && relationship.isToMany
        if !relationship.isToMany {
            conditions.append(
                "NOT EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.owner)) = \(o) "
                    + "AND a.\(quoted(columns.target)) IS NOT NULL)")
        }
        if isOwnerSingle {
            conditions.append(
                "NOT EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.target)) = \(t) "
                    + "AND a.\(quoted(columns.owner)) IS NOT NULL)")
        }
        return conditions
    }

    // MARK: Allowed links

    func checkUnexpectedLinks() throws {
        let (o, t) = ("a.\(quoted(columns.owner))", "a.\(quoted(columns.target))")
        let allowed = (own + inverse).map { set in
            "(\(set.contains(o, t, in: context)) AND NOT \(set.isExcluded(o, t)) "
                + "AND NOT \(set.isOrphaned(o, t, in: context)))"
        }
        var conditions = [
            "a.\(quoted(columns.column)) IS NOT NULL", "NOT (\((allowed + ["0"]).joined(separator: " OR ")))",
        ]
        // The column of a shared table belongs to these entities. The check of values covers the rows of others.
        switch columns.form {
        case .owner: conditions.append("a.Z_ENT IN \(sqlList(numbers(key.entity)))")
        case .target:
            conditions.append(
                "a.Z_ENT IN \(sqlList(numbers(inverseKey?.entity ?? relationship.destinationEntityName)))")
        case .join: break
        }
        let statement = try context.reader.prepare(
            "SELECT \(o), \(t) FROM \(table) AS a NOT INDEXED WHERE \(conditions.joined(separator: " AND ")) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(statement.integer(0), expected: "no link to object \(statement.integer(1))", found: "one")
    }

    private func numbers(_ entity: String) -> [Int64] {
        context.newLayout.tree.numbers(of: context.newLayout.tree.family(of: entity))
    }

    /// Checks the entity number beside each reference. It exists if other entities inherit from the destination.
    func checkTargetEntities() throws {
        guard let column = columns.targetEntity else { return }
        let target = context.newSchema.qualified(context.newLayout.tree.table(of: relationship.destinationEntityName))
        let statement = try context.reader.prepare(
            "SELECT a.Z_PK, a.\(quoted(column)), t.Z_ENT FROM \(table) AS a NOT INDEXED "
                + "LEFT JOIN \(target) AS t ON t.Z_PK = a.\(quoted(columns.target)) "
                + "WHERE a.Z_ENT IN \(sqlList(numbers(key.entity))) AND a.\(quoted(column)) IS NOT t.Z_ENT "
                + "AND (t.Z_PK IS NOT NULL OR a.\(quoted(columns.target)) IS NULL)\(unlessUnchanged(column)) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(
            statement.integer(0),
            expected: "\(statement.isNull(2) ? "no" : String(statement.integer(2))) as its target's entity number",
            found: statement.text(1) ?? "NULL")
    }

    /// Returns an SQL condition that accepts a missing or wrong number if the store had the same.
    private func unlessUnchanged(_ column: String) -> String {
        own.compactMap { set -> String? in
            guard set.columns.form == .owner, let before = set.columns.targetEntity else { return nil }
            let cases = context.pairing.successors.map {
                "WHEN \(context.oldLayout.tree.number(of: $0)) THEN \(context.newLayout.tree.number(of: $1))"
            }.sorted().joined(separator: " ")
            let old = "b.\(quoted(before))"
            return
                " AND NOT EXISTS (SELECT 1 FROM \(context.oldSchema.qualified(set.columns.table)) AS b WHERE b.Z_PK = a.Z_PK "
                + "AND b.\(quoted(set.columns.target)) IS a.\(quoted(columns.target)) "
                + "AND (CASE \(old) \(cases) ELSE \(old) END) IS a.\(quoted(column)))"
        }.joined()
    }

    func failure(_ owner: Int64, expected: String, found: String) -> AuditFailure {
        AuditFailure(entity: key.entity, property: key.name, key: owner, expected: expected, found: found)
    }
}
