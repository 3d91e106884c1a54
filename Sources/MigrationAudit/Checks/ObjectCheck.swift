import ManagedObjectModel
import PersistentStore

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

    /// The entities whose objects came from one table, and what each of their rows must hold.
    private struct Source {
        let table: AuditSchema.Table
        let entities: [(new: String, old: String)]
        let rules: [[ColumnRule]]
    }

    /// SQLite takes expressions that are 1,000 deep, and statements of some size.
    private static let mostTerms = 4000

    let context: AuditContext
    let root: String

    func check() throws -> Outcome {
        guard let table = context.now.table(context.new.tree.table(of: root)) else { return .empty }
        let sources = try self.sources(of: table)
        if sources.count == 1, let source = sources.first, try isUntouched(source, table) { return .untouched }
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
        guard (count...count + spare).contains(there) else { throw try surplus(sources, table, there, count) }
        return sources.isEmpty ? .empty : .compared(linksAreSame: linksAreSame)
    }

    private func sources(of table: AuditSchema.Table) throws -> [Source] {
        let survivors = context.pairing.survivors(among: context.new.tree.family(of: root))
        let byTable = Dictionary(grouping: survivors) { context.old.tree.table(of: $0.old) }
        return byTable.sorted { $0.key < $1.key }.compactMap { name, entities in
            context.was.table(name).map { Source(table: $0, entities: entities, rules: rules(entities, $0, table)) }
        }
    }

    // MARK: Rules

    /// For each entity, those of its own columns, and of the others in the table: they hold nothing, or what they hold in
    /// rows of the entities that they belong to.
    private func rules(
        _ entities: [(new: String, old: String)], _ source: AuditSchema.Table, _ table: AuditSchema.Table
    ) -> [[ColumnRule]] {
        let attributes = AttributeExpectation(pairing: context.pairing, old: context.old, new: context.new)
        let references = ReferenceExpectation(
            pairing: context.pairing, old: context.old, new: context.new, source: source, newSchema: context.now)
        let own = entities.map { entity in
            attributes.rules(of: entity.new, in: table) + references.rules(of: entity.new, was: entity.old)
        }
        var shared: [String: [ColumnRule]] = [:]
        for rule in own.joined() {
            let isKnown = shared[rule.column]?.contains { $0.condition == rule.condition } ?? false
            if !isKnown { shared[rule.column, default: []].append(rule) }
        }
        let others = shared.sorted { $0.key < $1.key }.compactMap { ColumnRule.ofAnotherEntity($0.value) }
        return own.map { rules in
            let columns = Set(rules.map(\.column))
            return rules + others.filter { !columns.contains($0.column) }
        }
    }

    // MARK: Without looking at rows

    private func isUntouched(_ source: Source, _ table: AuditSchema.Table) throws -> Bool {
        guard context.isUntouched(table, earlier: source.table), table.columns.count >= source.table.columns.count,
            Set(source.entities.map(\.old)).isSuperset(
                of: context.old.tree.family(of: source.entities.first.map { context.old.tree.root(of: $0.old) } ?? "")),
            source.entities.allSatisfy({ context.new.tree.number(of: $0.new) == context.old.tree.number(of: $0.old) }),
            ["Z_PK", "Z_ENT", "Z_OPT"].allSatisfy({ table.index(of: $0) == source.table.index(of: $0) })
        else { return false }
        let previous = source.table.columns.count
        for rule in Set(source.rules.joined().filter { !$0.isFree && !$0.isOfAnotherEntity }.map(Position.init)) {
            guard let index = table.index(of: rule.column) else { return false }
            if index < previous {
                guard let unchanged = rule.unchanged, source.table.index(of: unchanged) == index else { return false }
            } else {
                // Rows that are shorter have the column's default.
                let value = table.columns[index].defaultValue ?? "NULL"
                guard !rule.fresh.isEmpty, try context.isTrue(ColumnRule.any("(\(value))", rule.fresh)) else {
                    return false
                }
            }
        }
        return true
    }

    private struct Position: Hashable {
        let column: String
        let unchanged: String?
        let fresh: [String]

        init(_ rule: ColumnRule) { (column, unchanged, fresh) = (rule.column, rule.unchanged, rule.fresh) }
    }

    // MARK: Row by row

    private func compare(
        _ source: Source, _ table: AuditSchema.Table
    ) throws -> (objects: Int64, strays: Int64, linksAreSame: Bool) {
        let (was, now) = (context.was.qualified(source.table.name), context.now.qualified(table.name))
        let rows = "\(was) AS b NOT INDEXED LEFT JOIN \(now) AS a ON a.Z_PK = b.Z_PK"
        var linksAreSame = true
        var objects: Int64 = 0
        var strays: Int64 = 0
        var unknown: Int64 = 0
        for (index, part) in parts(source).enumerated() {
            let wrong = part.map { "WHEN \(number($0.entity.old)) THEN \(isOther($0.entity, $0.rules))" }
            let others = part.map { "WHEN \(number($0.entity.old)) THEN NOT \(hold($0.rules, .link))" }
            // The first statement counts, too.
            let kept =
                index > 0
                ? "0" : "count(CASE WHEN b.Z_ENT IN \(list(source.entities.map { number($0.old) })) THEN 1 END)"
            let known = "b.Z_ENT BETWEEN 1 AND \(context.old.tree.names.count)"
            let family = list(numbersOfFamily(source))
            let statement = try context.reader.prepare(
                "SELECT min(CASE WHEN CASE b.Z_ENT \(wrong.joined(separator: " ")) END THEN b.Z_PK END), "
                    + "max(CASE b.Z_ENT \(others.joined(separator: " ")) END), \(kept), "
                    + (index > 0
                        ? "0, 0"
                        : "count(CASE WHEN \(known) THEN NULL ELSE 1 END), "
                            + "count(CASE WHEN \(known) AND b.Z_ENT NOT IN \(family) THEN 1 END)")
                    + " FROM \(rows)")
            guard try statement.step() else { continue }
            if !statement.isNull(0) { throw try difference(statement.integer(0), source, table) }
            if statement.integer(1) != 0 { linksAreSame = false }
            objects += statement.integer(2)
            unknown += statement.integer(3)
            strays += statement.integer(4)
        }
        if unknown > 0 { objects += try checkUnknown(source, table) }
        return (objects, strays, linksAreSame)
    }

    private func parts(_ source: Source) -> [[(entity: (new: String, old: String), rules: [ColumnRule])]] {
        var parts: [[(entity: (new: String, old: String), rules: [ColumnRule])]] = []
        var terms = Self.mostTerms
        for (entity, rules) in zip(source.entities, source.rules) {
            if terms + rules.count > Self.mostTerms {
                parts.append([])
                terms = 0
            }
            terms += rules.count + 1
            parts[parts.count - 1].append((entity, rules))
        }
        return parts
    }

    private func number(_ entity: String) -> Int64 { context.old.tree.number(of: entity) }

    private func numbersOfFamily(_ source: Source) -> [Int64] {
        guard let one = source.entities.first?.old else { return [] }
        return context.old.tree.numbers(of: context.old.tree.family(of: context.old.tree.root(of: one)))
    }

    private func isOther(_ entity: (new: String, old: String), _ rules: [ColumnRule]) -> String {
        let number = context.new.tree.number(of: entity.new)
        // Without a row all of these are NULL.
        return
            "(a.Z_PK IS NULL OR a.Z_ENT IS NOT \(number) OR +a.Z_OPT IS NOT +b.Z_OPT OR NOT \(hold(rules, .attribute)))"
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
    private func checkUnknown(_ source: Source, _ table: AuditSchema.Table) throws -> Int64 {
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

    // MARK: What was found

    private func difference(_ key: Int64, _ source: Source, _ table: AuditSchema.Table) throws -> AuditFailure {
        let (was, now) = (context.was.qualified(source.table.name), context.now.qualified(table.name))
        let number = try context.integer("SELECT Z_ENT FROM \(was) WHERE Z_PK = \(key)") ?? 0
        guard let index = source.entities.firstIndex(where: { self.number($0.old) == number }) else {
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
            let before = try rule.unchanged.map { try context.shown("SELECT quote(\(ColumnRule.was($0))) \(pair)") }
            return AuditFailure(
                entity: entity.new, property: rule.property, key: key,
                expected: before
                    ?? (rule.fresh.isEmpty ? "its value, converted" : rule.fresh.joined(separator: " or ")),
                found: shown)
        }
        return AuditFailure(
            entity: entity.new, property: "Z_OPT", key: key,
            expected: try context.shown("SELECT b.Z_OPT \(pair)"), found: try context.shown("SELECT a.Z_OPT \(pair)"))
    }

    private func surplus(
        _ sources: [Source], _ table: AuditSchema.Table, _ found: Int64, _ expected: Int64
    ) throws -> AuditFailure {
        let known = sources.map { source in
            let entities = list(source.entities.map { number($0.old) })
            return "EXISTS (SELECT 1 FROM \(context.was.qualified(source.table.name)) AS b WHERE b.Z_PK = a.Z_PK "
                + "AND (b.Z_ENT IN \(entities) OR (b.Z_ENT BETWEEN 1 AND \(context.old.tree.names.count)) IS NOT 1))"
        }
        let key = try context.integer(
            "SELECT a.Z_PK FROM \(context.now.qualified(table.name)) AS a WHERE NOT "
                + (known.isEmpty ? "0" : "(\(known.joined(separator: " OR ")))") + " LIMIT 1")
        return AuditFailure(entity: root, key: key, expected: "\(expected) objects", found: "\(found)")
    }
}

extension ColumnRule {
    /// That of a column in rows of an entity that doesn't have the property; nil where it may hold anything.
    fileprivate static func ofAnotherEntity(_ rules: [ColumnRule]) -> ColumnRule? {
        guard let first = rules.first, !rules.contains(where: \.isFree) else { return nil }
        let conditions = [equal(now(first.column), "NULL")] + rules.map(\.condition)
        return ColumnRule(
            column: first.column, property: first.property, subject: .attribute,
            condition: conditions.joined(separator: " OR "), unchanged: nil, isOfAnotherEntity: true)
    }
}
