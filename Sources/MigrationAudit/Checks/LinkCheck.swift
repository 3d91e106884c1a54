import ManagedObjectModels

/// Holds the links of one relationship, link by link, against those that there were.
///
/// A link is required when the relationship had it, and its inverse had it or says nothing of it; it is allowed when one of
/// the two had it. Where an object may have one link only and had several, one of them is required.
struct LinkCheck {
    let context: AuditContext
    let key: PropertyKey
    let relationship: RelationshipDescription
    /// Where the links are now.
    let columns: LinkColumns
    let own: [LinkSet]
    /// The same links as the inverse had them; none where it is the relationship itself.
    let inverse: [LinkSet]
    let inverseKey: PropertyKey?

    /// Nil for a relationship of which nothing is kept.
    init?(_ key: PropertyKey, _ context: AuditContext) throws {
        guard let relationship = context.new.tree.relationship(key),
            let columns = try context.new.links(of: key, in: context.now)
        else { return nil }
        self.context = context
        self.key = key
        self.relationship = relationship
        self.columns = columns
        own = try LinkSet.all(of: key, context)
        let inverse = context.new.tree.inverse(of: relationship)
        inverseKey = inverse == key ? nil : inverse
        self.inverse = try inverseKey.map { try LinkSet.all(of: $0, flipped: true, context) } ?? []
    }

    private var table: String { context.now.qualified(columns.table) }

    /// Whether the inverse keeps its links in a column of its own.
    private var isKeptTwice: Bool {
        columns.form == .owner && inverseKey.flatMap { context.new.references[$0] } != nil
    }

    // MARK: What must be there

    func checkKept() throws {
        for (index, set) in own.enumerated() {
            try checkKept(set, index, unlessDeniedBy: inverse)
        }
        // What the inverse says of its own column is looked at with the inverse.
        if isKeptTwice { return }
        for (index, set) in inverse.enumerated() {
            try checkKept(set, index, unlessDeniedBy: own)
        }
    }

    private func checkKept(_ set: LinkSet, _ index: Int, unlessDeniedBy others: [LinkSet]) throws {
        var conditions = ["NOT \(isThere("l.o", "l.t"))"] + excuses("l.o", "l.t")
        conditions.append(set.areObjects("l.o", "l.t"))
        if !others.isEmpty {
            let confirmed = others.map {
                "(\($0.entity(ofOwner: "l.o", "l.t")) IN \(list($0.owners)) AND \($0.contains("l.o", "l.t", context)))"
            }
            let spoken = others.map { "coalesce(\($0.entity(ofOwner: "l.o", "l.t")) IN \(list($0.owners)), 0)" }
            conditions.append("(NOT (\(spoken.joined(separator: " OR "))) OR \(confirmed.joined(separator: " OR ")))")
        }
        let statement = try context.reader.prepare(
            "SELECT l.o, l.t FROM \(set.rows(context)) AS l WHERE \(conditions.joined(separator: " AND ")) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(statement.integer(0), expected: "its link to object \(statement.integer(1))", found: "none")
    }

    /// Whether the migrated copy has the link, as SQL.
    private func isThere(_ o: String, _ t: String) -> String {
        "EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.owner)) = \(o) "
            + "AND a.\(quoted(columns.target)) = \(t))"
    }

    /// Where an end may have one link only, another one there is as good.
    private func excuses(_ o: String, _ t: String) -> [String] {
        var excuses: [String] = []
        let inverse = inverseKey.flatMap(context.new.tree.relationship)
        let isOwnerSingle =
            (inverse.map { !$0.isToMany } ?? false) || relationship.inverseName == nil && relationship.isToMany
        if !relationship.isToMany {
            excuses.append(
                "NOT EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.owner)) = \(o) "
                    + "AND a.\(quoted(columns.target)) IS NOT NULL)")
        }
        if isOwnerSingle {
            excuses.append(
                "NOT EXISTS (SELECT 1 FROM \(table) AS a WHERE a.\(quoted(columns.target)) = \(t) "
                    + "AND a.\(quoted(columns.owner)) IS NOT NULL)")
        }
        return excuses
    }

    // MARK: What may be there

    func checkNothingElse() throws {
        let (o, t) = ("a.\(quoted(columns.owner))", "a.\(quoted(columns.target))")
        let known = (own + inverse).map { set in
            "(\(set.contains(o, t, context)) AND NOT \(set.areRefused(o, t)) "
                + "AND NOT \(set.isDisowned(o, t, context)))"
        }
        var conditions = [
            "a.\(quoted(columns.column)) IS NOT NULL", "NOT (\((known + ["0"]).joined(separator: " OR ")))",
        ]
        // The column of a shared table belongs to these entities; rows of others are looked at with their values.
        switch columns.form {
        case .owner: conditions.append("a.Z_ENT IN \(list(numbers(key.entity)))")
        case .target:
            conditions.append("a.Z_ENT IN \(list(numbers(inverseKey?.entity ?? relationship.destinationEntityName)))")
        case .join: break
        }
        let statement = try context.reader.prepare(
            "SELECT \(o), \(t) FROM \(table) AS a NOT INDEXED WHERE \(conditions.joined(separator: " AND ")) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(statement.integer(0), expected: "no link to object \(statement.integer(1))", found: "one")
    }

    private func numbers(_ entity: String) -> [Int64] {
        context.new.tree.numbers(of: context.new.tree.family(of: entity))
    }

    /// Beside each reference stands the number of its target's entity, where others inherit from the destination.
    func checkTargetEntities() throws {
        guard let column = columns.targetEntity else { return }
        let target = context.now.qualified(context.new.tree.table(of: relationship.destinationEntityName))
        let statement = try context.reader.prepare(
            "SELECT a.Z_PK, a.\(quoted(column)), t.Z_ENT FROM \(table) AS a NOT INDEXED "
                + "LEFT JOIN \(target) AS t ON t.Z_PK = a.\(quoted(columns.target)) "
                + "WHERE a.Z_ENT IN \(list(numbers(key.entity))) AND a.\(quoted(column)) IS NOT t.Z_ENT "
                + "AND (t.Z_PK IS NOT NULL OR a.\(quoted(columns.target)) IS NULL)\(unlessItWasSo(column)) LIMIT 1")
        guard try statement.step() else { return }
        throw failure(
            statement.integer(0),
            expected: "\(statement.isNull(2) ? "no" : String(statement.integer(2))) as its target's entity number",
            found: statement.text(1) ?? "NULL")
    }

    /// Where the number didn't stand there before, or another one did, it may still be so.
    private func unlessItWasSo(_ column: String) -> String {
        own.compactMap { set -> String? in
            guard set.columns.form == .owner, let before = set.columns.targetEntity else { return nil }
            let cases = context.pairing.successors.map {
                "WHEN \(context.old.tree.number(of: $0)) THEN \(context.new.tree.number(of: $1))"
            }.sorted().joined(separator: " ")
            let was = "b.\(quoted(before))"
            return
                " AND NOT EXISTS (SELECT 1 FROM \(context.was.qualified(set.columns.table)) AS b WHERE b.Z_PK = a.Z_PK "
                + "AND b.\(quoted(set.columns.target)) IS a.\(quoted(columns.target)) "
                + "AND (CASE \(was) \(cases) ELSE \(was) END) IS a.\(quoted(column)))"
        }.joined()
    }

    func failure(_ owner: Int64, expected: String, found: String) -> AuditFailure {
        AuditFailure(entity: key.entity, property: key.name, key: owner, expected: expected, found: found)
    }
}
