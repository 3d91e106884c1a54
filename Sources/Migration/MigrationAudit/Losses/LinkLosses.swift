import ManagedObjectModels
import SQLiteStore

/// Counts the links that objects lose, and the positions in orders that are given up, by looking for each older link in
/// the copy.
struct LinkLosses {
    /// A relationship and its inverse, whose links are counted together.
    private struct Pair {
        /// The end that losses are reported from: the to-one end, or else the one that sorts first.
        let forward: PropertyKey
        let backward: PropertyKey?
        let classes: [LinkClass]
    }

    /// The links between the objects of two older entities.
    private struct LinkClass {
        let owner: String
        let target: String
        let fate: ContentPaths.LinkFate

        var ends: [ContentPaths.LinkEnd] { if case .ends(let ends) = fate { ends } else { [] } }
    }

    private let paths: ContentPaths
    private let old: AuditLayout
    private let new: AuditLayout
    private var pairs: [Pair] = []

    init(_ paths: ContentPaths, _ old: AuditLayout, _ new: AuditLayout) {
        self.paths = paths
        self.old = old
        self.new = new
        for (key, relationship) in old.tree.relationships {
            let inverse = old.tree.inverse(of: relationship)
            if let inverse, inverse != key, !isReportedEnd(key, relationship, inverse) { continue }
            let pair = pair(key, inverse == key ? nil : inverse, relationship)
            if needsCount(pair) { pairs.append(pair) }
        }
    }

    /// True if no links need to be counted, whatever the stores contain.
    var isEmpty: Bool { pairs.isEmpty }

    private func isReportedEnd(
        _ key: PropertyKey, _ relationship: RelationshipDescription, _ inverse: PropertyKey
    ) -> Bool {
        guard let other = old.tree.relationship(inverse) else { return true }
        if relationship.isToMany != other.isToMany { return !relationship.isToMany }
        return (key.entity, key.name) <= (inverse.entity, inverse.name)
    }

    private func pair(_ key: PropertyKey, _ inverse: PropertyKey?, _ relationship: RelationshipDescription) -> Pair {
        let owners = old.tree.family(of: key.entity)
        let targets = old.tree.family(of: relationship.destinationEntityName)
        let classes = owners.flatMap { owner in
            targets.map { target in
                LinkClass(
                    owner: owner, target: target, fate: paths.fate(of: key, inverse, from: owner, to: target))
            }
        }
        return Pair(forward: key, backward: inverse, classes: classes)
    }

    /// Returns false if the audit proves that each link and each order is kept.
    private func needsCount(_ pair: Pair) -> Bool {
        pair.classes.contains { link in
            switch link.fate {
            case .undecided: false
            // Links between two removed objects go with them.
            case .withoutObject: paths.survives(link.owner) || pair.backward != nil && paths.survives(link.target)
            case .lost, .excluded: true
            case .ends(let ends):
                ends.count != 1 || !ends[0].isExact || losesOrder(pair.forward, .owner, ends)
                    || pair.backward.map { losesOrder($0, .target, ends) } ?? false
            }
        }
    }

    private func losesOrder(
        _ key: PropertyKey, _ side: LinkQueries.End, _ ends: [ContentPaths.LinkEnd]
    ) -> Bool {
        guard let relationship = old.tree.relationship(key), relationship.isToMany, relationship.isOrdered else {
            return false
        }
        return !ends.contains { side == .owner ? $0.keepsOrder.forward : $0.keepsOrder.backward }
    }

    // MARK: Counts

    func count(_ reader: ComparisonReader, _ oldSchema: AuditSchema, _ newSchema: AuditSchema) throws
        -> [(LossCount.Key, Int64)]
    {
        try pairs.flatMap { pair in
            try LinkQueries(
                old: old, new: new, oldSchema: oldSchema, newSchema: newSchema, forward: pair.forward,
                backward: pair.backward
            ).map { try count(pair, $0, reader) } ?? []
        }
    }

    private func count(
        _ pair: Pair, _ queries: LinkQueries, _ reader: ComparisonReader
    ) throws -> [(LossCount.Key, Int64)] {
        let decided = pair.classes.filter { link in
            if case .undecided = link.fate { return false }
            return link.ends.allSatisfy { $0.owner.keepsKeys && $0.target.keepsKeys }
        }
        guard !decided.isEmpty else { return [] }
        let isKept = try queries.isKept(decided.map { ($0.owner, $0.target, $0.ends) })
        let survives = paths.mayDropObjects ? (queries.survives("o", paths), queries.survives("t", paths)) : ("1", "1")
        var found: [(LossCount.Key, Int64)] = []
        for rows in queries.rows(decided.map { ($0.owner, $0.target) }) {
            let statement = try reader.prepare(
                "SELECT o.Z_ENT, t.Z_ENT, \(survives.0) AS os, \(survives.1) AS ts, count(*) FROM \(rows) "
                    + "AND NOT (\(isKept)) GROUP BY 1, 2, 3, 4")
            while try statement.step() {
                guard let owner = old.tree.name(of: statement.integer(0)),
                    let target = old.tree.name(of: statement.integer(1)),
                    let link = decided.first(where: { $0.owner == owner && $0.target == target }),
                    let key = key(
                        pair, link, ownerSurvives: statement.integer(2) != 0, targetSurvives: statement.integer(3) != 0)
                else { continue }
                found.append((key, statement.integer(4)))
            }
        }
        return found + (try orders(pair, decided, queries, isKept, reader))
    }

    /// Returns the sentence that reports lost links; nil if the objects at both ends are lost.
    private func key(_ pair: Pair, _ link: LinkClass, ownerSurvives: Bool, targetSurvives: Bool) -> LossCount.Key? {
        let ownerSurvives = ownerSurvives && paths.survives(link.owner)
        let targetSurvives = targetSurvives && paths.survives(link.target)
        guard ownerSurvives || targetSurvives && pair.backward != nil else { return nil }
        let end = ownerSurvives ? pair.forward : pair.backward ?? pair.forward
        let reason: String
        switch link.fate {
        case .lost(let point): reason = point.reasonForContent
        case .excluded: reason = "can't lead to some of its objects any more"
        case .withoutObject: reason = reasonWithoutObject(end, isForward: ownerSurvives)
        case .ends(let ends):
            reason =
                ownerSurvives && targetSurvives ? reasonWithoutRoom(ends) : "leads to objects that are removed"
        case .undecided: return nil
        }
        return LossCount.Key(end.entity, end.name, .links, reason)
    }

    /// Returns the reason for links to removed objects. If the relationship is gone too, that is the reason.
    private func reasonWithoutObject(_ end: PropertyKey, isForward: Bool) -> String {
        paths.lossPoint(of: end)?.reasonForContent ?? "leads to objects that are removed"
    }

    /// Returns the reason for a link that the newer relationship could hold, but doesn't.
    private func reasonWithoutRoom(_ ends: [ContentPaths.LinkEnd]) -> String {
        if paths.mayDropObjects { return "is not linked again for all of its objects" }
        let relationship = ends.lazy.compactMap(\.forward).first.flatMap(new.tree.relationship)
        return relationship.map { $0.isToMany && $0.inverseName == nil } ?? false
            ? "has no inverse, so no two objects can be related to the same object"
            : "can be related to one object only"
    }

    // MARK: Orders

    private func orders(
        _ pair: Pair, _ decided: [LinkClass], _ queries: LinkQueries, _ isKept: String, _ reader: ComparisonReader
    ) throws -> [(LossCount.Key, Int64)] {
        var found: [(LossCount.Key, Int64)] = []
        for (key, end) in [(pair.forward, LinkQueries.End.owner), (pair.backward, .target)] {
            guard let key else { continue }
            let losing = decided.filter { !$0.ends.isEmpty && losesOrder(key, end, $0.ends) }
            guard !losing.isEmpty, let place = try queries.place(of: end) else { continue }
            let list = end == .owner ? "o.Z_PK" : "t.Z_PK"
            for rows in queries.rows(losing.map { ($0.owner, $0.target) }) {
                // The position of an object that is alone in its list says nothing.
                let count =
                    try reader.integer(
                        "SELECT total(n) FROM (SELECT count(*) AS n FROM \(rows) AND \(place) IS NOT NULL "
                            + "AND (\(isKept)) GROUP BY \(list) HAVING n > 1)") ?? 0
                found.append((LossCount.Key(key.entity, key.name, .positions, "is no longer ordered"), count))
            }
        }
        return found
    }
}
