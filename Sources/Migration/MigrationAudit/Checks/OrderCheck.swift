/// A check of the order of each object's targets in an ordered relationship. The position numbers themselves may
/// change.
struct OrderCheck {
    let context: AuditContext
    let link: LinkCheck

    func check() throws {
        guard link.relationship.isToMany, link.relationship.isOrdered, let place = link.columns.place else { return }
        for set in link.own {
            let newPlace =
                "(SELECT a.\(quoted(place)) FROM \(context.newSchema.qualified(link.columns.table)) AS a "
                + "WHERE a.\(quoted(link.columns.owner)) = l.o AND a.\(quoted(link.columns.target)) = l.t)"
            let exists =
                "EXISTS (SELECT 1 FROM \(context.newSchema.qualified(link.columns.table)) AS a "
                + "WHERE a.\(quoted(link.columns.owner)) = l.o AND a.\(quoted(link.columns.target)) = l.t)"
            // An unordered relationship gets the order of the keys.
            let oldPlace = set.isOrdered ? "l.p" : "l.t"
            let owner = "\(set.entity(ofOwner: "l.o", "l.t")) IN \(sqlList(set.owners))"
            let rows =
                "SELECT l.o AS o, l.t AS t, \(oldPlace) AS p, \(newPlace) AS q FROM \(set.rows(context)) AS l "
                + "WHERE \(oldPlace) IS NOT NULL AND \(exists) AND \(owner)"
            if set.isOrdered, try context.integer("SELECT 1 FROM (\(rows)) WHERE q IS NOT p LIMIT 1") == nil {
                continue
            }
            try check(rows)
        }
    }

    /// Checks that each target follows its predecessor, unless both had the same position.
    private func check(_ rows: String) throws {
        let statement = try context.reader.prepare(
            "SELECT o, t FROM (SELECT o, t, p, q, lag(p) OVER w AS p0, lag(q) OVER w AS q0 FROM (\(rows)) "
                + "WINDOW w AS (PARTITION BY o ORDER BY p, q)) "
                + "WHERE q IS NULL OR (p0 IS NOT NULL AND p0 < p AND q0 >= q) LIMIT 1")
        guard try statement.step() else { return }
        throw link.failure(
            statement.integer(0), expected: "object \(statement.integer(1)) at its old position in the order",
            found: "another position")
    }
}
