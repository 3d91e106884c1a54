/// The entities whose objects came to a table of the migrated copy from one table of the store, and what each of their rows
/// must hold.
struct TableSource {
    let table: AuditSchema.Table
    let entities: [(new: String, old: String)]
    /// Of each of the entities, but for what is known without looking at rows.
    private(set) var rules: [[ColumnRule]]
    /// Whether rows may have another `Z_OPT` than before.
    private(set) var mayCountOtherSaves = true
    /// The numbers that the entities had, and those of the others in their table, whose objects don't come here.
    let numbers: [Int64]
    let removed: [Int64]
    /// Whether the table is known to hold what it held.
    private(set) var isUntouched = false

    /// All sources of a table, by their tables' names; rows of one can't have come from several, but who knows.
    static func all(of table: AuditSchema.Table, root: String, _ context: AuditContext) throws -> [TableSource] {
        let survivors = context.pairing.survivors(among: context.new.tree.family(of: root))
        let byTable = Dictionary(grouping: survivors) { context.old.tree.table(of: $0.old) }
        return try byTable.sorted { $0.key < $1.key }.compactMap { name, entities in
            try context.was.table(name).map { try TableSource($0, entities, table, context) }
        }
    }

    private init(
        _ table: AuditSchema.Table, _ entities: [(new: String, old: String)], _ now: AuditSchema.Table,
        _ context: AuditContext
    ) throws {
        self.table = table
        self.entities = entities
        let tree = context.old.tree
        numbers = entities.map { tree.number(of: $0.old) }
        let family = entities.first.map { tree.numbers(of: tree.family(of: tree.root(of: $0.old))) } ?? []
        removed = family.filter { [numbers] in !numbers.contains($0) }
        rules = Self.rules(entities, table, now, context)
        try settle(now, context)
    }

    /// For each entity, those of its own columns, and of the others in the table: they hold nothing, or what they hold in
    /// rows of the entities that they belong to.
    private static func rules(
        _ entities: [(new: String, old: String)], _ source: AuditSchema.Table, _ table: AuditSchema.Table,
        _ context: AuditContext
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

    /// Leaves out what columns in which no row got a value are known to hold by their places alone.
    private mutating func settle(_ now: AuditSchema.Table, _ context: AuditContext) throws {
        guard let written = context.writtenColumns(of: now, earlier: table), now.columns.count >= table.columns.count,
            ["Z_PK", "Z_ENT", "Z_OPT"].allSatisfy({ now.index(of: $0) == table.index(of: $0) })
        else { return }
        var settled: [Position: Bool] = [:]
        mayCountOtherSaves = written.contains("z_opt")
        rules = try rules.map { rules in
            try rules.filter { rule in
                let position = Position(rule)
                let isSettled = try settled[position] ?? self.isSettled(rule, now, written, context)
                settled[position] = isSettled
                return !isSettled
            }
        }
        let keepsNumbers = entities.allSatisfy {
            context.new.tree.number(of: $0.new) == context.old.tree.number(of: $0.old)
        }
        isUntouched =
            !written.contains("z_ent") && !mayCountOtherSaves && keepsNumbers && removed.isEmpty
            && rules.allSatisfy(\.isEmpty)
    }

    private func isSettled(
        _ rule: ColumnRule, _ now: AuditSchema.Table, _ written: Set<String>, _ context: AuditContext
    ) throws -> Bool {
        guard let index = now.index(of: rule.column), !written.contains(key(rule.column)) else { return rule.isFree }
        guard index < table.columns.count else {
            // Rows that are shorter have the column's default.
            guard let value = now.columns[index].defaultValue else {
                return rule.isFree || rule.isOfAnotherEntity || rule.fresh.contains("NULL")
            }
            return try !rule.fresh.isEmpty && context.isTrue(ColumnRule.any("(\(value))", rule.fresh))
        }
        guard !written.contains(key(table.columns[index].name)) else { return rule.isFree }
        return rule.isFree || rule.isOfAnotherEntity || rule.unchanged.flatMap(table.index) == index
    }

    private struct Position: Hashable {
        let column: String
        let unchanged: String?
        let fresh: [String]
        let isOfAnotherEntity: Bool

        init(_ rule: ColumnRule) {
            (column, unchanged, fresh) = (rule.column, rule.unchanged, rule.fresh)
            isOfAnotherEntity = rule.isOfAnotherEntity
        }
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
