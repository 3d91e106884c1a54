/// Holds the order of each object's targets in an ordered relationship against the order that they had. The places
/// themselves may be other ones.
struct OrderCheck {
    let context: AuditContext
    let link: LinkCheck

    func check() throws {
        guard link.relationship.isToMany, link.relationship.isOrdered, let place = link.columns.place else { return }
        for set in link.own {
            let now =
                "(SELECT a.\(quoted(place)) FROM \(context.now.qualified(link.columns.table)) AS a "
                + "WHERE a.\(quoted(link.columns.owner)) = l.o AND a.\(quoted(link.columns.target)) = l.t)"
            let isThere =
                "EXISTS (SELECT 1 FROM \(context.now.qualified(link.columns.table)) AS a "
                + "WHERE a.\(quoted(link.columns.owner)) = l.o AND a.\(quoted(link.columns.target)) = l.t)"
            // What had no order gets that of the keys.
            let was = set.isOrdered ? "l.p" : "l.t"
            let owner = "\(set.entity(ofOwner: "l.o", "l.t")) IN \(list(set.owners))"
            let rows =
                "SELECT l.o AS o, l.t AS t, \(was) AS p, \(now) AS q FROM \(set.rows(context)) AS l "
                + "WHERE \(was) IS NOT NULL AND \(isThere) AND \(owner)"
            if set.isOrdered, try context.integer("SELECT 1 FROM (\(rows)) WHERE q IS NOT p LIMIT 1") == nil {
                continue
            }
            try check(rows)
        }
    }

    /// Each place must come after the one before it, unless both had the same.
    private func check(_ rows: String) throws {
        let statement = try context.reader.prepare(
            "SELECT o, t FROM (SELECT o, t, p, q, lag(p) OVER w AS p0, lag(q) OVER w AS q0 FROM (\(rows)) "
                + "WINDOW w AS (PARTITION BY o ORDER BY p, q)) "
                + "WHERE q IS NULL OR (p0 IS NOT NULL AND p0 < p AND q0 >= q) LIMIT 1")
        guard try statement.step() else { return }
        throw link.failure(
            statement.integer(0), expected: "object \(statement.integer(1)) where it stood in the order",
            found: "another place")
    }
}
