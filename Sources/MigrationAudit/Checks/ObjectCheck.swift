/// Holds one table of the migrated copy against the table that its objects were in: each object, each value.
struct ObjectCheck {
    /// What is known of the table's relationships when all of its objects have been found in order.
    enum Outcome {
        /// No row was written; the columns stand where they stood.
        case untouched
        case compared(linksAreSame: Bool)
        /// No object can have come into it.
        case empty
    }

    /// SQLite takes expressions that are 1,000 deep, and statements of some size.
    private static let mostTerms = 4000

    let context: AuditContext
    let root: String

    func check() throws -> Outcome {
        guard let table = context.now.table(context.new.tree.table(of: root)) else { return .empty }
        let sources = try TableSource.all(of: table, root: root, context)
        if sources.count == 1, sources[0].isUntouched { return .untouched }
        var count: Int64 = 0
        var spare: Int64 = 0
        var linksAreSame = true
        for source in sources {
            let found = try compare(source, table)
            count += found.objects
            spare += found.strays
            linksAreSame = linksAreSame && found.linksAreSame
        }
        let there = try context.integer("SELECT count(*) FROM \(context.now.qualified(table.name))") ?? 0
        guard (count...count + spare).contains(there) else {
            throw try ObjectDifference(context: context, table: table).failure(
                sources, root: root, found: there, expected: count)
        }
        return sources.isEmpty ? .empty : .compared(linksAreSame: linksAreSame)
    }

    // MARK: Row by row

    private func compare(
        _ source: TableSource, _ table: AuditSchema.Table
    ) throws -> (objects: Int64, strays: Int64, linksAreSame: Bool) {
        let (was, now) = (context.was.qualified(source.table.name), context.now.qualified(table.name))
        let rows = "\(was) AS b NOT INDEXED LEFT JOIN \(now) AS a ON a.Z_PK = b.Z_PK"
        if parts(source).count <= 1, try isAsExpected(source, rows) {
            let gone = list(source.removed)
            let lost =
                source.removed.isEmpty ? "" : " - (SELECT count(*) FROM \(was) NOT INDEXED WHERE Z_ENT IN \(gone))"
            return (try context.integer("SELECT (SELECT count(*) FROM \(was))\(lost)") ?? 0, 0, true)
        }
        var linksAreSame = true
        var objects: Int64 = 0
        var strays: Int64 = 0
        var unknown: Int64 = 0
        for (index, part) in parts(source).enumerated() {
            let wrong = part.map {
                "WHEN \(number($0.entity.old)) THEN (\(isOther($0.entity, $0.rules, source.mayCountOtherSaves)))"
            }
            let others = part.map { "WHEN \(number($0.entity.old)) THEN NOT \(hold($0.rules, .link))" }
            // The first statement counts, too.
            let kept =
                index > 0
                ? "0" : "count(CASE WHEN b.Z_ENT IN \(list(source.numbers)) THEN 1 END)"
            let known = "b.Z_ENT BETWEEN 1 AND \(context.old.tree.names.count)"
            let family = list(source.numbers + source.removed)
            let statement = try context.reader.prepare(
                "SELECT min(CASE WHEN CASE b.Z_ENT \(wrong.joined(separator: " ")) END THEN b.Z_PK END), "
                    + "max(CASE b.Z_ENT \(others.joined(separator: " ")) END), \(kept), "
                    + (index > 0
                        ? "0, 0"
                        : "count(CASE WHEN \(known) THEN NULL ELSE 1 END), "
                            + "count(CASE WHEN \(known) AND b.Z_ENT NOT IN \(family) THEN 1 END)")
                    + " FROM \(rows)")
            guard try statement.step() else { continue }
            if !statement.isNull(0) {
                throw try ObjectDifference(context: context, table: table).failure(statement.integer(0), of: source)
            }
            if statement.integer(1) != 0 { linksAreSame = false }
            objects += statement.integer(2)
            unknown += statement.integer(3)
            strays += statement.integer(4)
        }
        if unknown > 0 { objects += try checkUnknown(source, table) }
        return (objects, strays, linksAreSame)
    }

    /// Whether each row is as expected, links and all, and none is of an entity that the model doesn't have. Ends at the
    /// first that isn't, of which this tells nothing.
    private func isAsExpected(_ source: TableSource, _ rows: String) throws -> Bool {
        let wrong = zip(source.entities, source.rules).map { entity, rules in
            (number(entity.old), isOther(entity, rules, source.mayCountOtherSaves) + " OR NOT \(hold(rules, .link))")
        }
        let gone = source.removed.map { "WHEN \($0) THEN 0 " }.joined()
        let condition: String
        if gone.isEmpty, wrong.count == 1, let (number, isWrong) = wrong.first {
            condition = "b.Z_ENT IS NOT \(number) OR \(isWrong)"
        } else {
            let cases = wrong.map { "WHEN \($0.0) THEN CASE WHEN \($0.1) THEN 1 ELSE 0 END " }.joined()
            condition = "CASE b.Z_ENT \(cases)\(gone)ELSE 1 END"
        }
        return try context.integer("SELECT 1 FROM \(rows) WHERE \(condition) LIMIT 1") == nil
    }

    private func parts(_ source: TableSource) -> [[(entity: (new: String, old: String), rules: [ColumnRule])]] {
        var parts: [[(entity: (new: String, old: String), rules: [ColumnRule])]] = []
        var terms = 0
        for (entity, rules) in zip(source.entities, source.rules) {
            if parts.isEmpty || terms + rules.count > Self.mostTerms {
                parts.append([])
                terms = 0
            }
            terms += rules.count + 1
            parts[parts.count - 1].append((entity, rules))
        }
        return parts
    }

    private func number(_ entity: String) -> Int64 { context.old.tree.number(of: entity) }

    private func isOther(
        _ entity: (new: String, old: String), _ rules: [ColumnRule], _ mayCountOtherSaves: Bool
    ) -> String {
        let number = context.new.tree.number(of: entity.new)
        let saves = mayCountOtherSaves ? " OR +a.Z_OPT IS NOT +b.Z_OPT" : ""
        // Without a row all of these are NULL.
        return "a.Z_PK IS NULL OR a.Z_ENT IS NOT \(number)\(saves) OR NOT \(hold(rules, .attribute))"
    }

    private func hold(_ rules: [ColumnRule], _ subject: ColumnRule.Subject) -> String {
        let conditions = rules.filter { $0.subject == subject && !$0.isFree }.map { "(\($0.condition))" }
        return conjunction(conditions)
    }

    /// A conjunction of some, in groups: none becomes deep.
    private func conjunction(_ conditions: [String]) -> String {
        guard conditions.count > 50 else {
            return conditions.isEmpty ? "1" : "(" + conditions.joined(separator: " AND ") + ")"
        }
        let groups = stride(from: 0, to: conditions.count, by: 50).map {
            "(" + conditions[$0..<min($0 + 50, conditions.count)].joined(separator: " AND ") + ")"
        }
        return conjunction(groups)
    }

    // MARK: Rows of entities that the model doesn't have

    /// They stay as they are; returns how many are in this table.
    private func checkUnknown(_ source: TableSource, _ table: AuditSchema.Table) throws -> Int64 {
        let unknown = "(b.Z_ENT BETWEEN 1 AND \(context.old.tree.names.count)) IS NOT 1"
        let was = context.was.qualified(source.table.name)
        func isIn(_ name: String) -> String {
            "EXISTS (SELECT 1 FROM \(context.now.qualified(name)) AS a WHERE a.Z_PK = b.Z_PK "
                + "AND a.Z_ENT IS b.Z_ENT AND a.Z_OPT IS b.Z_OPT)"
        }
        // Where the hierarchy was taken apart, any of its tables may have it.
        let tables = Set(
            context.pairing.successors.filter { sameName(context.old.tree.table(of: $0.key), source.table.name) }
                .map { context.new.tree.table(of: $0.value) })
        let somewhere = tables.sorted().map(isIn).joined(separator: " OR ")
        if let key = try context.integer(
            "SELECT b.Z_PK FROM \(was) AS b WHERE \(unknown) AND NOT (\(somewhere)) LIMIT 1")
        {
            throw AuditFailure(
                entity: root, key: key, expected: "the row, whose entity number is none of the model's, as it was",
                found: "none")
        }
        return try context.integer("SELECT count(*) FROM \(was) AS b WHERE \(unknown) AND \(isIn(table.name))") ?? 0
    }
}
