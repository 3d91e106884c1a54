/// Says of a table that isn't as expected what was expected, and what was found.
struct ObjectDifference {
    let context: AuditContext
    let table: AuditSchema.Table

    /// Of one object, by its key.
    func failure(_ key: Int64, of source: TableSource) throws -> AuditFailure {
        let (was, now) = (context.was.qualified(source.table.name), context.now.qualified(table.name))
        let number = try context.integer("SELECT Z_ENT FROM \(was) WHERE Z_PK = \(key)") ?? 0
        guard let index = source.numbers.firstIndex(of: number) else {
            return AuditFailure(key: key, expected: "no object of another entity", found: "one")
        }
        let entity = source.entities[index]
        let there = "FROM \(now) WHERE Z_PK = \(key)"
        guard try context.integer("SELECT count(*) \(there)") == 1 else {
            return AuditFailure(entity: entity.new, key: key, expected: "the object", found: "none")
        }
        let wanted = context.new.tree.number(of: entity.new)
        let found = try context.shown("SELECT Z_ENT \(there)")
        guard found == String(wanted) else {
            return AuditFailure(entity: entity.new, property: "Z_ENT", key: key, expected: "\(wanted)", found: found)
        }
        let pair = "FROM \(was) AS b JOIN \(now) AS a ON a.Z_PK = b.Z_PK WHERE b.Z_PK = \(key)"
        for rule in source.rules[index] where rule.subject == .attribute && !rule.isFree {
            guard try context.integer("SELECT (\(rule.condition)) \(pair)") != 1 else { continue }
            let shown = try context.shown("SELECT quote(\(ColumnRule.now(rule.column))) \(pair)")
            return AuditFailure(
                entity: entity.new, property: rule.property, key: key, expected: try expected(rule, pair), found: shown)
        }
        return AuditFailure(
            entity: entity.new, property: "Z_OPT", key: key,
            expected: try context.shown("SELECT b.Z_OPT \(pair)"), found: try context.shown("SELECT a.Z_OPT \(pair)"))
    }

    private func expected(_ rule: ColumnRule, _ pair: String) throws -> String {
        if let column = rule.unchanged { return try context.shown("SELECT quote(\(ColumnRule.was(column))) \(pair)") }
        if let column = rule.converted {
            return try context.shown("SELECT quote(\(ColumnRule.was(column))) \(pair)") + ", converted"
        }
        guard !rule.isOfAnotherEntity else { return "nothing, in an object of another entity" }
        return try Set(rule.fresh.map { try context.shown("SELECT quote(\($0))") }).sorted().joined(separator: " or ")
    }

    /// Of too many rows, or too few.
    func failure(
        _ sources: [TableSource], root: String, found: Int64, expected: Int64
    ) throws -> AuditFailure {
        let known = sources.map { source in
            let entities = list(source.numbers)
            return "EXISTS (SELECT 1 FROM \(context.was.qualified(source.table.name)) AS b WHERE b.Z_PK = a.Z_PK "
                + "AND (b.Z_ENT IN \(entities) OR (b.Z_ENT BETWEEN 1 AND \(context.old.tree.names.count)) IS NOT 1))"
        }
        let key = try context.integer(
            "SELECT a.Z_PK FROM \(context.now.qualified(table.name)) AS a WHERE NOT "
                + (known.isEmpty ? "0" : "(\(known.joined(separator: " OR ")))") + " LIMIT 1")
        return AuditFailure(entity: root, key: key, expected: "\(expected) objects", found: "\(found)")
    }
}
