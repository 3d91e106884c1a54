/// The description of a difference in a table: the expected and the actual content.
struct ObjectDifference {
    let context: AuditContext
    let table: AuditSchema.Table

    /// Returns the difference of one object.
    func failure(_ key: Int64, of source: TableSource) throws -> AuditFailure {
        let (old, new) = (context.oldSchema.qualified(source.table.name), context.newSchema.qualified(table.name))
        let number = try context.integer("SELECT Z_ENT FROM \(old) WHERE Z_PK = \(key)") ?? 0
        guard let index = source.numbers.firstIndex(of: number) else {
            return AuditFailure(key: key, expected: "no object of another entity", found: "one")
        }
        let entity = source.entities[index]
        let row = "FROM \(new) WHERE Z_PK = \(key)"
        guard try context.integer("SELECT count(*) \(row)") == 1 else {
            return AuditFailure(entity: entity.new, key: key, expected: "the object", found: "none")
        }
        let expectedNumber = context.newLayout.tree.number(of: entity.new)
        let found = try context.displayText("SELECT Z_ENT \(row)")
        guard found == String(expectedNumber) else {
            return AuditFailure(
                entity: entity.new, property: "Z_ENT", key: key, expected: "\(expectedNumber)", found: found)
        }
        let pair = "FROM \(old) AS b JOIN \(new) AS a ON a.Z_PK = b.Z_PK WHERE b.Z_PK = \(key)"
        for rule in source.rules[index] where rule.subject == .attribute && !rule.allowsAnyValue {
            guard try context.integer("SELECT (\(rule.condition)) \(pair)") != 1 else { continue }
            let actual = try context.displayText("SELECT quote(\(ColumnRule.newValue(rule.column))) \(pair)")
            return AuditFailure(
                entity: entity.new, property: rule.property, key: key, expected: try expected(rule, pair), found: actual
            )
        }
        return AuditFailure(
            entity: entity.new, property: "Z_OPT", key: key,
            expected: try context.displayText("SELECT b.Z_OPT \(pair)"),
            found: try context.displayText("SELECT a.Z_OPT \(pair)"))
    }

    private func expected(_ rule: ColumnRule, _ pair: String) throws -> String {
        if let column = rule.unchanged {
            return try context.displayText("SELECT quote(\(ColumnRule.oldValue(column))) \(pair)")
        }
        if let column = rule.converted {
            return try context.displayText("SELECT quote(\(ColumnRule.oldValue(column))) \(pair)") + ", converted"
        }
        guard !rule.isOfAnotherEntity else { return "nothing, in an object of another entity" }
        return try Set(rule.constants.map { try context.displayText("SELECT quote(\($0))") }).sorted().joined(
            separator: " or ")
    }

    /// Returns the difference for too many or too few rows.
    func failure(
        _ sources: [TableSource], root: String, found: Int64, expected: Int64
    ) throws -> AuditFailure {
        let known = sources.map { source in
            let entities = sqlList(source.numbers)
            return "EXISTS (SELECT 1 FROM \(context.oldSchema.qualified(source.table.name)) AS b WHERE b.Z_PK = a.Z_PK "
                + "AND (b.Z_ENT IN \(entities) OR (b.Z_ENT BETWEEN 1 AND \(context.oldLayout.tree.names.count)) IS NOT 1))"
        }
        let key = try context.integer(
            "SELECT a.Z_PK FROM \(context.newSchema.qualified(table.name)) AS a WHERE NOT "
                + (known.isEmpty ? "0" : "(\(known.joined(separator: " OR ")))") + " LIMIT 1")
        return AuditFailure(entity: root, key: key, expected: "\(expected) objects", found: "\(found)")
    }
}
