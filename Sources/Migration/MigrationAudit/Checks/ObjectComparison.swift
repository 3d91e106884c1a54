/// A check of every object and value in a table of the migrated copy, against the tables that its objects came from.
struct ObjectComparison {
    /// The result for a table without differences. It tells how far the relationships are settled.
    enum Outcome {
        /// No row was written, and the columns have their old positions.
        case untouched
        /// Every row was compared.
        case compared(linksAreSame: Bool)
        /// The table has no source of objects.
        case empty
    }

    /// The limit of terms in a statement. SQLite limits the depth of an expression to 1,000, and the size of a
    /// statement.
    private static let maximumTermCount = 4000

    let context: AuditContext
    let root: String

    func check() throws -> Outcome {
        guard let table = context.newSchema.table(context.newLayout.tree.table(of: root)) else { return .empty }
        let sources = try TableSource.all(of: table, root: root, context)
        if sources.count == 1, sources[0].isUntouched { return .untouched }
        var count: Int64 = 0
        var optionalCount: Int64 = 0
        var linksAreSame = true
        for source in sources {
            let found = try compare(source, table)
            count += found.objects
            optionalCount += found.strays
            linksAreSame = linksAreSame && found.linksAreSame
        }
        let total = try context.integer("SELECT count(*) FROM \(context.newSchema.qualified(table.name))") ?? 0
        guard (count...count + optionalCount).contains(total) else {
            throw try ObjectDifference(context: context, table: table).failure(
                sources, root: root, found: total, expected: count)
        }
        return sources.isEmpty ? .empty : .compared(linksAreSame: linksAreSame)
    }

    // MARK: Row by row

    private func compare(
        _ source: TableSource, _ table: AuditSchema.Table
    ) throws -> (objects: Int64, strays: Int64, linksAreSame: Bool) {
        let (old, new) = (context.oldSchema.qualified(source.table.name), context.newSchema.qualified(table.name))
        let rows = "\(old) AS b NOT INDEXED LEFT JOIN \(new) AS a ON a.Z_PK = b.Z_PK"
        if batches(of: source).count <= 1, try matches(source, rows, old) {
            let removed = sqlList(source.removed)
            let subtraction =
                source.removed.isEmpty ? "" : " - (SELECT count(*) FROM \(old) NOT INDEXED WHERE Z_ENT IN \(removed))"
            return (try context.integer("SELECT (SELECT count(*) FROM \(old))\(subtraction)") ?? 0, 0, true)
        }
        var linksAreSame = true
        var objects: Int64 = 0
        var strays: Int64 = 0
        var unknown: Int64 = 0
        for (index, batch) in batches(of: source).enumerated() {
            let differing = batch.map { entity, rules in
                let condition = differs(entity, rules, mayHaveOtherSaveCount: source.mayHaveOtherSaveCount)
                return "WHEN \(number(entity.old)) THEN (\(condition))"
            }
            let otherLinks = batch.map { "WHEN \(number($0.entity.old)) THEN NOT \(allHold($0.rules, .link))" }
            // The first statement also counts.
            let objectCount =
                index > 0
                ? "0" : "count(CASE WHEN b.Z_ENT IN \(sqlList(source.numbers)) THEN 1 END)"
            let known = "b.Z_ENT BETWEEN 1 AND \(context.oldLayout.tree.names.count)"
            let family = sqlList(source.numbers + source.removed)
            let statement = try context.reader.prepare(
                "SELECT min(CASE WHEN CASE b.Z_ENT \(differing.joined(separator: " ")) END THEN b.Z_PK END), "
                    + "max(CASE b.Z_ENT \(otherLinks.joined(separator: " ")) END), \(objectCount), "
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

    /// Returns true if every row is as expected, including links, and none belongs to an entity that the model doesn't
    /// have. The query stops at the first difference and doesn't identify it.
    private func matches(_ source: TableSource, _ rows: String, _ old: String) throws -> Bool {
        let differing = zip(source.entities, source.rules).map { entity, rules in
            (
                number(entity.old),
                differs(entity, rules, mayHaveOtherSaveCount: source.mayHaveOtherSaveCount)
                    + " OR NOT \(allHold(rules, .link))"
            )
        }
        let removed = source.removed.map { "WHEN \($0) THEN 0 " }.joined()
        let condition: String
        if removed.isEmpty, differing.count == 1, let (number, isDifferent) = differing.first {
            condition = "b.Z_ENT IS NOT \(number) OR \(isDifferent)"
        } else {
            let cases = differing.map { "WHEN \($0.0) THEN CASE WHEN \($0.1) THEN 1 ELSE 0 END " }.joined()
            condition = "CASE b.Z_ENT \(cases)\(removed)ELSE 1 END"
        }
        return try !context.search.finds(condition, in: rows, of: old)
    }

    /// Splits the entities of a source so that each statement keeps to the limit of terms.
    private func batches(of source: TableSource) -> [[(entity: (new: String, old: String), rules: [ColumnRule])]] {
        var batches: [[(entity: (new: String, old: String), rules: [ColumnRule])]] = []
        var terms = 0
        for (entity, rules) in zip(source.entities, source.rules) {
            if batches.isEmpty || terms + rules.count > Self.maximumTermCount {
                batches.append([])
                terms = 0
            }
            terms += rules.count + 1
            batches[batches.count - 1].append((entity, rules))
        }
        return batches
    }

    private func number(_ entity: String) -> Int64 { context.oldLayout.tree.number(of: entity) }

    /// Returns an SQL condition: the row is missing, or has another entity, save count or attribute value.
    private func differs(
        _ entity: (new: String, old: String), _ rules: [ColumnRule], mayHaveOtherSaveCount: Bool
    ) -> String {
        let number = context.newLayout.tree.number(of: entity.new)
        let saves = mayHaveOtherSaveCount ? " OR +a.Z_OPT IS NOT +b.Z_OPT" : ""
        // Without a row, all of these values are NULL.
        return "a.Z_PK IS NULL OR a.Z_ENT IS NOT \(number)\(saves) OR NOT \(allHold(rules, .attribute))"
    }

    /// Returns an SQL condition: all rules of a kind hold.
    private func allHold(_ rules: [ColumnRule], _ subject: ColumnRule.Subject) -> String {
        let conditions = rules.filter { $0.subject == subject && !$0.allowsAnyValue }.map { "(\($0.condition))" }
        return conjunction(conditions)
    }

    // MARK: Rows of unknown entities

    /// Checks that rows of entities that the model doesn't have are unchanged, but that those whose number the new
    /// model gives to an entity have its negative. Returns their number in this table.
    private func checkUnknown(_ source: TableSource, _ table: AuditSchema.Table) throws -> Int64 {
        let unknown = "(b.Z_ENT BETWEEN 1 AND \(context.oldLayout.tree.names.count)) IS NOT 1"
        let old = context.oldSchema.qualified(source.table.name)
        func isIn(_ name: String) -> String {
            let tree = context.newLayout.tree
            let taken = tree.names.filter { sameName(tree.table(of: $0), name) }.map(tree.number)
            return "EXISTS (SELECT 1 FROM \(context.newSchema.qualified(name)) AS a WHERE a.Z_PK = b.Z_PK "
                + "AND a.Z_ENT IS CASE WHEN b.Z_ENT IN \(sqlList(taken)) THEN -b.Z_ENT ELSE b.Z_ENT END "
                + "AND a.Z_OPT IS b.Z_OPT)"
        }
        // If the hierarchy was split, any of its tables may contain the row.
        let tables = Set(
            context.pairing.successors.filter { sameName(context.oldLayout.tree.table(of: $0.key), source.table.name) }
                .map { context.newLayout.tree.table(of: $0.value) })
        let isAnywhere = tables.sorted().map(isIn).joined(separator: " OR ")
        if let key = try context.integer(
            "SELECT b.Z_PK FROM \(old) AS b WHERE \(unknown) AND NOT (\(isAnywhere)) LIMIT 1")
        {
            throw AuditFailure(
                entity: root, key: key, expected: "the row, whose entity number is not in the model, unchanged",
                found: "none")
        }
        return try context.integer("SELECT count(*) FROM \(old) AS b WHERE \(unknown) AND \(isIn(table.name))") ?? 0
    }
}
