/// One table of the store as a source of a table in the migrated copy: the entities whose objects moved, and the rules
/// for their rows.
struct TableSource {
    let table: AuditSchema.Table
    let entities: [(new: String, old: String)]
    /// The rules of each entity, without those that hold whatever the rows contain.
    private(set) var rules: [[ColumnRule]]
    /// True if the `Z_OPT` of rows may have changed.
    private(set) var mayHaveOtherSaveCount = true
    /// The old numbers of the entities.
    let numbers: [Int64]
    /// The old numbers of the other entities in the source table, whose objects don't move here.
    let removed: [Int64]
    /// True if the table is known to be unchanged.
    private(set) var isUntouched = false

    /// Returns all sources of a table, by table name. Normally there is one.
    static func all(of table: AuditSchema.Table, root: String, _ context: AuditContext) throws -> [TableSource] {
        let survivors = context.pairing.survivors(among: context.newLayout.tree.family(of: root))
        let byTable = Dictionary(grouping: survivors) { context.oldLayout.tree.table(of: $0.old) }
        return try byTable.sorted { $0.key < $1.key }.compactMap { name, entities in
            try context.oldSchema.table(name).map { try TableSource($0, entities: entities, newTable: table, context) }
        }
    }

    private init(
        _ table: AuditSchema.Table, entities: [(new: String, old: String)], newTable: AuditSchema.Table,
        _ context: AuditContext
    ) throws {
        self.table = table
        self.entities = entities
        let tree = context.oldLayout.tree
        numbers = entities.map { tree.number(of: $0.old) }
        let family = entities.first.map { tree.numbers(of: tree.family(of: tree.root(of: $0.old))) } ?? []
        removed = family.filter { [numbers] in !numbers.contains($0) }
        rules = Self.rules(of: entities, from: table, to: newTable, context)
        try settle(newTable, context)
    }

    /// Returns the rules of each entity: those of its own columns, and those of the table's other columns. Another
    /// column holds NULL, or a value that is valid for the entities that have it.
    private static func rules(
        of entities: [(new: String, old: String)], from source: AuditSchema.Table, to table: AuditSchema.Table,
        _ context: AuditContext
    ) -> [[ColumnRule]] {
        let attributes = AttributeExpectation(pairing: context.pairing, old: context.oldLayout, new: context.newLayout)
        let references = ReferenceExpectation(
            pairing: context.pairing, old: context.oldLayout, new: context.newLayout, source: source,
            newSchema: context.newSchema)
        let own = entities.map { entity in
            attributes.rules(of: entity.new, in: table) + references.rules(of: entity.new, from: entity.old)
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

    // MARK: Rules that need no rows

    /// Removes the rules of unwritten columns that follow from the positions of the columns.
    private mutating func settle(_ newTable: AuditSchema.Table, _ context: AuditContext) throws {
        guard let written = context.writtenColumns(of: newTable, earlier: table),
            newTable.columns.count >= table.columns.count,
            ["Z_PK", "Z_ENT", "Z_OPT"].allSatisfy({ newTable.index(of: $0) == table.index(of: $0) })
        else { return }
        var settled: [Position: Bool] = [:]
        mayHaveOtherSaveCount = written.contains("z_opt")
        rules = try rules.map { rules in
            try rules.filter { rule in
                let position = Position(rule)
                let isSettled = try settled[position] ?? self.isSettled(rule, in: newTable, written: written, context)
                settled[position] = isSettled
                return !isSettled
            }
        }
        let keepsNumbers = entities.allSatisfy {
            context.newLayout.tree.number(of: $0.new) == context.oldLayout.tree.number(of: $0.old)
        }
        isUntouched =
            !written.contains("z_ent") && !mayHaveOtherSaveCount && keepsNumbers && removed.isEmpty
            && rules.allSatisfy(\.isEmpty)
    }

    private func isSettled(
        _ rule: ColumnRule, in newTable: AuditSchema.Table, written: Set<String>, _ context: AuditContext
    ) throws -> Bool {
        guard let index = newTable.index(of: rule.column), !written.contains(nameKey(rule.column)) else {
            return rule.allowsAnyValue
        }
        guard index < table.columns.count else {
            // Shorter rows have the column's default.
            guard let value = newTable.columns[index].defaultValue else {
                return rule.allowsAnyValue || rule.isOfAnotherEntity || rule.constants.contains("NULL")
            }
            return try !rule.constants.isEmpty && context.isTrue(ColumnRule.isAny("(\(value))", rule.constants))
        }
        guard !written.contains(nameKey(table.columns[index].name)) else { return rule.allowsAnyValue }
        return rule.allowsAnyValue || rule.isOfAnotherEntity || rule.unchanged.flatMap(table.index) == index
    }

    private struct Position: Hashable {
        let column: String
        let unchanged: String?
        let constants: [String]
        let isOfAnotherEntity: Bool

        init(_ rule: ColumnRule) {
            (column, unchanged, constants) = (rule.column, rule.unchanged, rule.constants)
            isOfAnotherEntity = rule.isOfAnotherEntity
        }
    }
}

extension ColumnRule {
    /// Returns the rule of a column in rows of an entity without the property; nil if the column may hold any value.
    fileprivate static func ofAnotherEntity(_ rules: [ColumnRule]) -> ColumnRule? {
        guard let first = rules.first, !rules.contains(where: \.allowsAnyValue) else { return nil }
        let conditions = [equal(newValue(first.column), "NULL")] + rules.map(\.condition)
        return ColumnRule(
            column: first.column, property: first.property, subject: .attribute,
            condition: conditions.joined(separator: " OR "), unchanged: nil, isOfAnotherEntity: true)
    }
}
