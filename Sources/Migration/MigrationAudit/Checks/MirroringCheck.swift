import ManagedObjectModels

/// The changes of entities' numbers and names as SQL. The names of tables and columns are read here independently of
/// the migration.
struct EntityChanges {
    private let context: AuditContext
    /// The numbers that had no entity, or one that is removed, and that may be another entity's now.
    private let goneNumbers: [Int64]
    private let goneNames: [String]
    private let numbers: [(old: Int64, new: Int64)]

    init(_ context: AuditContext) {
        self.context = context
        let (old, new) = (context.oldLayout.tree, context.newLayout.tree)
        let removed = old.names.filter { context.pairing.successors[$0] == nil }
        let unknown = new.names.map(new.number(of:)).filter { old.name(of: $0) == nil }
        goneNumbers = (old.numbers(of: removed) + unknown).sorted()
        goneNames = (removed + new.names.filter { !old.names.contains($0) }).sorted()
        numbers = context.pairing.successors.map { (old: old.number(of: $0), new: new.number(of: $1)) }
            .filter { $0.old != $0.new }.sorted { $0.old < $1.old }
    }

    /// True if all entities have the numbers that they had.
    var keepsNumbers: Bool { goneNumbers.isEmpty && numbers.isEmpty }

    /// True if they and their relationships also have the names that they had.
    var isEmpty: Bool {
        keepsNumbers && goneNames.isEmpty && renamed.isEmpty && relationships.allSatisfy { $0.old == $0.new }
    }

    /// Returns SQL: an old entity number is no entity's any more.
    func isGone(_ number: String) -> String { "\(number) IN \(sqlList(goneNumbers))" }

    /// Returns SQL that maps an old entity number to its new one.
    func newNumber(_ number: String) -> String {
        guard !numbers.isEmpty else { return number }
        let cases = numbers.map { "WHEN \($0.old) THEN \($0.new)" }.joined(separator: " ")
        return "(CASE \(number) \(cases) ELSE \(number) END)"
    }

    private var renamed: [(String, String)] {
        context.pairing.successors.filter { $0.key != $0.value }.sorted { $0.key < $1.key }
            .map { ($0.key, $0.value) }
    }

    /// Returns SQL: an old name of an entity is no entity's any more.
    func isGone(name: String) -> String { "\(name) IN (\(goneNames.map(literal).joined(separator: ", ")))" }

    func newName(_ name: String) -> String {
        guard !renamed.isEmpty else { return name }
        let cases = renamed.map { "WHEN \(literal($0)) THEN \(literal($1))" }.joined(separator: " ")
        return "(CASE \(name) \(cases) ELSE \(name) END)"
    }

    /// The relationships of the entities that are left; the new name is nil if a relationship is gone, or is a to-one
    /// relationship and wasn't, or the other way around.
    var relationships: [(entity: String, old: String, new: String?)] {
        let (before, after) = (context.oldLayout.tree, context.newLayout.tree)
        func stored(_ entity: String, _ tree: EntityTree) -> [RelationshipDescription] {
            tree.lineage(of: entity).compactMap(tree.model.entity(named:)).flatMap(\.relationships)
                .filter { !$0.isTransient }
        }
        return context.pairing.survivors(among: after.names).flatMap { new, old in
            var names: [String: String] = [:]
            for relationship in stored(new, after) {
                guard let key = context.pairing.source(of: relationship, in: new),
                    before.relationship(key)?.isToMany == relationship.isToMany
                else { continue }
                names[key.name] = relationship.name
            }
            return stored(old, before).map { (old, $0.name, names[$0.name]) }
        }
    }

    private func literal(_ text: String) -> String { "'" + text.replacing("'", with: "''") + "'" }

    /// Returns SQL: an old relationship of an entity that is left is gone.
    func isGone(relationship: String, of entity: String) -> String {
        let pairs = relationships.filter { $0.new == nil }.map { "(\(literal($0.entity)), \(literal($0.old)))" }
        return pairs.isEmpty ? "0" : "(\(entity), \(relationship)) IN (VALUES \(pairs.joined(separator: ", ")))"
    }

    func newName(relationship: String, of entity: String) -> String {
        let renamed = relationships.filter { $0.new != nil && $0.new != $0.old }
        guard !renamed.isEmpty else { return relationship }
        let cases = renamed.map {
            "WHEN \(entity) = \(literal($0.entity)) AND \(relationship) = \(literal($0.old)) "
                + "THEN \(literal($0.new ?? ""))"
        }
        return "(CASE \(cases.joined(separator: " ")) ELSE \(relationship) END)"
    }
}

/// A check of the tables that mirror a store to CloudKit. Rows about removed entities must be gone, the others must
/// have their entities' new numbers and names, and everything else is the same.
struct MirroringCheck {
    let context: AuditContext

    func check(_ earlier: AuditSchema.Table) throws {
        guard let table = context.newSchema.table(earlier.name) else {
            throw AuditFailure(entity: "the table \(earlier.name)", expected: "the table", found: "none")
        }
        let changes = EntityChanges(context)
        var comparison = TableComparison(context: context, table: table, earlier: earlier)
        var (gone, same): ([String], [String]) = ([], [])
        func old(_ column: String) -> String? { earlier.column(column).map { ColumnRule.oldValue($0.name) } }
        func expect(_ column: String, _ value: String) {
            comparison.ignoredColumns.insert(column)
            same.append(ColumnRule.equal(ColumnRule.newValue(column), value))
        }
        if let number = old("ZENTITYID") {
            gone.append(changes.isGone(number))
            expect("ZENTITYID", changes.newNumber(number))
        }
        if let record = old("ZRECORDMETADATA"),
            context.oldSchema.table("ANSCKRECORDMETADATA")?.column("ZENTITYID") != nil
        {
            let records = context.oldSchema.qualified("ANSCKRECORDMETADATA")
            gone.append("\(record) IN (SELECT Z_PK FROM \(records) WHERE \(changes.isGone("ZENTITYID")))")
        }
        if let entity = old("ZCDENTITYNAME") {
            gone.append(changes.isGone(name: entity))
            expect("ZCDENTITYNAME", changes.newName(entity))
            if let related = old("ZRELATEDENTITYNAME") {
                gone.append(changes.isGone(name: related))
                expect("ZRELATEDENTITYNAME", changes.newName(related))
            }
            if let name = old("ZRELATIONSHIPNAME") {
                gone.append(changes.isGone(relationship: name, of: entity))
                expect("ZRELATIONSHIPNAME", changes.newName(relationship: name, of: entity))
            }
        }
        if gone.isEmpty || changes.isEmpty, context.isUntouched(table, earlier: earlier) { return }
        // Each condition may be NULL, which must not hide another one.
        if !gone.isEmpty { comparison.expect(gone: gone.map { "coalesce(\($0), 0)" }.joined(separator: " OR ")) }
        if !same.isEmpty { comparison.condition = same.joined(separator: " AND ") }
        try comparison.check()
    }
}
